// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// throughDoorOrNetwork calls viaDoor, or viaNetwork if the client has no door. If the door breaks during the call,
// throughDoorOrNetwork tries once more.
func throughDoorOrNetwork[T any](ctx context.Context, c *Client, op, name string, viaDoor func(*door) (T, error),
	viaNetwork func() (T, error)) (T, error) {
	var none T
	leave, err := c.enter(op, name)
	if err != nil {
		return none, err
	}
	defer leave()
	for try := 0; ; try++ {
		w, err := c.find(ctx)
		if err != nil {
			return none, err
		}
		if w.door == nil {
			return viaNetwork()
		}
		out, err := viaDoor(w.door)
		if err != nil && w.door.broken.Load() && try == 0 {
			continue
		}
		if uncached(c, err) {
			return viaNetwork()
		}
		return out, err
	}
}

// Stat returns the metadata of an object. If the parameter version is empty, Stat uses the current version of the
// object.
func (c *Client) Stat(ctx context.Context, bucket, key, version string) (Info, error) {
	const op = "stat"
	if err := checkName(op, bucket, key); err != nil {
		return Info{}, err
	}
	return throughDoorOrNetwork(ctx, c, op, urlOf(bucket, key), func(d *door) (Info, error) {
		o, err := d.one(ctx, want{op: op, bits: wire.WantStat, device: wire.Device{Index: -1}},
			wire.OpenItem{Bucket: bucket, Key: key, Version: version, N: -1})
		if err != nil {
			return Info{}, err
		}
		o.drop()
		return o.info(bucket, key), nil
	}, func() (Info, error) { return c.network.stat(ctx, bucket, key, version) })
}

// Delete removes an object over HTTP, because the door only reads and writes. A missing object is no error.
func (c *Client) Delete(ctx context.Context, bucket, key string) error {
	const op = "delete"
	if err := checkName(op, bucket, key); err != nil {
		return err
	}
	leave, err := c.enter(op, urlOf(bucket, key))
	if err != nil {
		return err
	}
	defer leave()
	return c.network.s3.Delete(ctx, bucket, key)
}

// List returns one page of the listing of a bucket's objects.
func (c *Client) List(ctx context.Context, l List) (Page, error) {
	const op = "list"
	name := urlOf(l.Bucket, l.Prefix)
	if l.Bucket == "" {
		return Page{}, errs.New(errs.Invalid, op, name, "no bucket is named")
	}
	if l.Limit < 0 {
		return Page{}, errs.New(errs.Invalid, op, name, fmt.Sprintf("a limit of %d; expected 0 or more", l.Limit))
	}
	if l.Limit == 0 || l.Limit > wire.MaxItems {
		l.Limit = 1000
	}
	viaNetwork := func() (Page, error) { return c.network.list(ctx, l) }
	return throughDoorOrNetwork(ctx, c, op, name, func(d *door) (Page, error) {
		// A listing that began over HTTP continues over HTTP, because its token is not a key.
		if strings.HasPrefix(l.After, tokenMark) {
			return viaNetwork()
		}
		return d.list(ctx, op, name, l)
	}, viaNetwork)
}

func (d *door) list(ctx context.Context, op, name string, l List) (Page, error) {
	p := Page{Objects: []Info{}, Prefixes: []string{}}
	_, err := d.ask(ctx, asking{op: op, name: name, req: &wire.List{Bucket: l.Bucket, Prefix: l.Prefix,
		Delimiter: l.Delimiter, After: l.afterKey(), Limit: uint32(l.Limit)}, each: func(m wire.Message, fds []int) error {
		closeAll(fds)
		r, ok := m.(*wire.Listed)
		if !ok {
			return unexpected(m, "Listed")
		}
		for _, it := range r.Items {
			p.Objects = append(p.Objects, Info{Bucket: l.Bucket, Key: it.Key, Size: it.Size, ETag: it.ETag,
				Modified: it.Modified, Via: ViaDoor})
		}
		p.Prefixes = append(p.Prefixes, r.Prefixes...)
		// The door lists keys in order, so each page must end after the page before.
		if r.Truncated && (r.Next <= l.afterKey() || len(r.Items)+len(r.Prefixes) == 0) {
			return l.circle("use a client and a server of one release")
		}
		p.Truncated, p.Next = r.Truncated, marked(r.Next)
		return nil
	}})
	return p, err
}
