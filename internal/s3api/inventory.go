// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/xml"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/inventory"
	"github.com/nebulaio/nebulaio/internal/object"
)

// inventoryPage is the number of configurations on one page of their listing, as in S3.
const inventoryPage = 100

// inventoryConfiguration serves the inventory configurations of buckets.
func inventoryConfiguration() configuration {
	return configuration{
		get: auth.GetInventoryConfigurationAction, put: auth.PutInventoryConfigurationAction,
		write: putInventory, read: getInventory, remove: deleteInventory,
	}
}

// inventoryID returns the configuration that a request names.
func inventoryID(ctx fiber.Ctx) string { return string(ctx.RequestCtx().QueryArgs().Peek("id")) }

func noInventory() error {
	return refusal(http.StatusNotFound, noConfiguration, "The specified configuration does not exist.")
}

func putInventory(b *backend, ctx fiber.Ctx, bucket string, body []byte) error {
	c, err := inventory.Parse(body)
	if f := (*inventory.Fault)(nil); errors.As(err, &f) {
		return refusal(f.Status, f.Code, f.Reason+".")
	}
	if err != nil {
		return err
	}
	if id := inventoryID(ctx); id != c.ID {
		return invalid("The argument id is " + quoted(id) + ", and the Id of the configuration is " + quoted(c.ID) + ".")
	}
	from, err := b.bucketOf(ctx.RequestCtx(), bucket)
	if err != nil {
		return err
	}
	to, err := b.store.Bucket(patient(ctx.RequestCtx()), c.Target())
	if err == nil {
		err = inventory.Allowed(from, to)
	}
	if err != nil {
		return refusal(http.StatusBadRequest, "InvalidS3DestinationBucket", "The destination bucket "+quoted(c.Target())+
			" does not exist, has another owner than the bucket, or cannot hold inventories.")
	}
	return changeInventories(b, ctx, bucket, func(all map[string]*inventory.Config) error {
		if all[c.ID] = c; len(all) > inventory.MaxConfigs {
			return refusal(http.StatusBadRequest, "TooManyConfigurations",
				"You are attempting to create a new configuration but have already reached the 1,000-configuration limit.")
		}
		return nil
	})
}

// changeInventories changes the inventory configurations of a bucket.
func changeInventories(b *backend, ctx fiber.Ctx, bucket string,
	change func(map[string]*inventory.Config) error) error {
	return b.change(ctx.RequestCtx(), bucket, func(bk *object.Bucket) error {
		all, err := inventory.ConfigsOf(bk)
		if err != nil {
			return err
		}
		if all == nil {
			all = map[string]*inventory.Config{}
		}
		if err := change(all); err != nil {
			return err
		}
		if len(all) == 0 {
			delete(bk.Settings, inventory.Setting)
			return nil
		}
		bk.Settings[inventory.Setting], err = inventory.EncodeConfigs(all)
		return err
	})
}

func deleteInventory(b *backend, ctx fiber.Ctx, bucket string) error {
	return changeInventories(b, ctx, bucket, func(all map[string]*inventory.Config) error {
		delete(all, inventoryID(ctx))
		return nil
	})
}

// inventoryList is one page of all inventory configurations of a bucket.
type inventoryList struct {
	XMLName   xml.Name            `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListInventoryConfigurationsResult"`
	Token     string              `xml:"ContinuationToken,omitempty"`
	Configs   []*inventory.Config `xml:"InventoryConfiguration"`
	Truncated bool                `xml:"IsTruncated"`
	Next      string              `xml:"NextContinuationToken,omitempty"`
}

func getInventory(b *backend, ctx fiber.Ctx, bucket string) ([]byte, error) {
	bk, err := b.bucketOf(ctx.RequestCtx(), bucket)
	if err != nil {
		return nil, err
	}
	all, err := inventory.ConfigsOf(bk)
	if err != nil {
		return nil, err
	}
	args := ctx.RequestCtx().QueryArgs()
	if args.Has("id") {
		c, ok := all[inventoryID(ctx)]
		if !ok {
			return nil, noInventory()
		}
		return c.XML()
	}
	page := inventoryList{Token: string(args.Peek("continuation-token"))}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if id <= page.Token {
			continue
		}
		if len(page.Configs) == inventoryPage {
			page.Truncated, page.Next = true, page.Configs[inventoryPage-1].ID
			break
		}
		page.Configs = append(page.Configs, all[id])
	}
	return xml.Marshal(page)
}
