// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

// listFixed is the size in bytes of a Listed message without entries and with the longest Next.
const listFixed = wire.HeaderSize + 4 + 4 + 1 + 4 + wire.MaxName

// list answers a List with one page, or with the first part of a page that does not fit into one message.
func (c *conn) list(ctx context.Context, m *wire.List) wire.Message {
	err := c.s.opts.Authorizer.Authorize(ctx,
		object.Access{Account: c.account, Action: object.ActionList, Bucket: m.Bucket, Key: m.Prefix,
			Delimiter: m.Delimiter, Limit: int(m.Limit)})
	if err != nil {
		return denied(err)
	}
	limit := int(min(m.Limit, 1000)) // 0 means the store's default, 1000
	page, err := c.s.opts.Store.List(ctx, object.List{Bucket: m.Bucket, Prefix: m.Prefix, Delimiter: m.Delimiter,
		After: m.After, Limit: limit})
	if err != nil {
		return failure(err)
	}
	c.s.count.listed.Add(1)
	out := &wire.Listed{Truncated: page.Truncated, Next: page.Next}
	size, last := listFixed, ""
	objects, prefixes := page.Objects, page.Prefixes
	// Objects and prefixes are added in one common order, so that the next page begins where this one ends.
	for len(objects)+len(prefixes) > 0 {
		if len(prefixes) == 0 || len(objects) > 0 && objects[0].Key < prefixes[0] {
			o := &objects[0]
			item := wire.ListedItem{Key: o.Key, ETag: o.ETag, Size: o.Size, Modified: o.Modified}
			if size += item.Length(); size > wire.MaxMessage {
				break
			}
			out.Items = append(out.Items, item)
			last, objects = o.Key, objects[1:]
			continue
		}
		if size += 4 + len(prefixes[0]); size > wire.MaxMessage {
			break
		}
		out.Prefixes = append(out.Prefixes, prefixes[0])
		last, prefixes = prefixes[0], prefixes[1:]
	}
	if len(objects)+len(prefixes) > 0 {
		out.Truncated, out.Next = true, last
	}
	return out
}
