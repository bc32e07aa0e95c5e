// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// OpenObject is nebulaio_object_open.
func (t *Table) OpenObject(client uint64, bucket, key, version, device string) (uint64, *nebulaio.ObjectFile, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, nil, err
	}
	f, err := c.OpenFile(context.Background(), bucket, key, version, device)
	if err != nil {
		return 0, nil, err
	}
	return t.put(f), f, nil
}

type createOptions struct {
	describeOptions
	Device string `json:"device"`
}

// CreateObject is nebulaio_object_create.
func (t *Table) CreateObject(client uint64, bucket, key string, size uint64, options string) (uint64,
	*nebulaio.ObjectDraft, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, nil, err
	}
	var o createOptions
	if err := decode(options, &o); err != nil {
		return 0, nil, err
	}
	if size > 1<<62 {
		return 0, nil, errs.New(errs.Invalid, "create object", bucket+"/"+key,
			fmt.Sprintf("%d bytes; expected less than 2^62", size))
	}
	f, err := c.CreateDraft(context.Background(), bucket, key, int64(size), nebulaio.DraftOptions{Device: o.Device,
		ContentType: o.ContentType, Metadata: o.Metadata, IfMatch: o.IfMatch, IfNoneMatch: o.IfNoneMatch})
	if err != nil {
		return 0, nil, err
	}
	return t.put(f), f, nil
}

// StartCommit is nebulaio_object_commit_start.
func (t *Table) StartCommit(object, size uint64) (uint64, error) {
	f, err := get[*nebulaio.ObjectDraft](t, object, "new object")
	if err != nil {
		return 0, err
	}
	if size > 1<<62 {
		return 0, errs.New(errs.Invalid, "commit object", f.Name(), fmt.Sprintf("%d bytes; expected less than 2^62", size))
	}
	return ask(t, func(ctx context.Context) (any, error) { return f.Commit(ctx, int64(size)) }), nil
}
