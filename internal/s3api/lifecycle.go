// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/lifecycle"
	"github.com/nebulaio/nebulaio/internal/object"
)

// lifecycleConfiguration serves the lifecycle rules of buckets.
func lifecycleConfiguration() configuration {
	return configuration{
		get: auth.GetLifecycleConfigurationAction, put: auth.PutLifecycleConfigurationAction,
		write: putLifecycle, read: getLifecycle,
		remove: func(b *backend, ctx fiber.Ctx, bucket string) error {
			return b.put(ctx.RequestCtx(), bucket, lifecycle.Setting, nil)
		},
	}
}

func putLifecycle(b *backend, ctx fiber.Ctx, bucket string, body []byte) error {
	c, err := lifecycle.Parse(body)
	if err != nil {
		var f *lifecycle.Fault
		if errors.As(err, &f) {
			return refusal(f.Status, f.Code, f.Reason+".")
		}
		return err
	}
	bk, err := b.bucketOf(ctx.RequestCtx(), bucket)
	if err != nil {
		return err
	}
	if bk.OnUpstream() {
		return refusal(http.StatusNotImplemented, "NotImplemented",
			"Another S3 server keeps the objects of this bucket: put the lifecycle configuration there.")
	}
	doc, err := xml.Marshal(c) // rules without ID have one now
	if err != nil {
		return err
	}
	return b.put(ctx.RequestCtx(), bucket, lifecycle.Setting, doc)
}

func getLifecycle(b *backend, ctx fiber.Ctx, bucket string) ([]byte, error) {
	bk, err := b.bucketOf(ctx.RequestCtx(), bucket)
	if err != nil {
		return nil, err
	}
	doc, ok := bk.Settings[lifecycle.Setting]
	if !ok {
		return nil, refusal(http.StatusNotFound, "NoSuchLifecycleConfiguration",
			"The lifecycle configuration does not exist.")
	}
	return doc, nil
}

// lifecycleRules are the lifecycle rules of a bucket, as they were read once.
type lifecycleRules struct {
	of     *object.Bucket
	config *lifecycle.Config // nil if the rules cannot be read
}

// tellExpiration adds the header x-amz-expiration to the reply, if a lifecycle rule will remove the current version. A
// version that is not the current one has no such header.
func tellExpiration(ctx context.Context, b *backend, bk *object.Bucket, info *object.Info) {
	doc, ok := bk.Settings[lifecycle.Setting]
	if !ok || info.Marker || !info.Latest {
		return
	}
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return
	}
	known, ok := b.lifecycles.Load(bk.Name)
	if !ok || known.(*lifecycleRules).of != bk {
		c, err := lifecycle.Parse(doc)
		if err != nil {
			c = nil
			b.log.Warn("the lifecycle rules of a bucket cannot be read", "bucket", bk.Name, "error", err,
				"fix", "put the lifecycle configuration again")
		}
		known = &lifecycleRules{of: bk, config: c}
		b.lifecycles.Store(bk.Name, known)
	}
	c := known.(*lifecycleRules).config
	if c == nil {
		return
	}
	if v := c.Judge(lifecycle.Calendar{}, info, lifecycle.Place{Latest: true}); v.Action == lifecycle.ActionExpire {
		rctx.Response.Header.Set("x-amz-expiration", `expiry-date="`+v.At.UTC().Format(http.TimeFormat)+`", rule-id="`+
			url.QueryEscape(v.Rule)+`"`)
	}
}
