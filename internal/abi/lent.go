// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"fmt"
	"math"

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
	if err := checkSize("create object", bucket+"/"+key, size); err != nil {
		return 0, nil, err
	}
	f, err := c.CreateDraft(context.Background(), bucket, key, int64(size), nebulaio.DraftOptions{Device: o.Device,
		ContentType: o.ContentType, Metadata: o.Metadata, IfMatch: o.IfMatch, IfNoneMatch: o.IfNoneMatch})
	if err != nil {
		return 0, nil, err
	}
	return t.put(f), f, nil
}

type editOptions struct {
	Device  string `json:"device"`
	Size    uint64 `json:"size"`
	Replace bool   `json:"replace"`
}

// edit reads the options of a draft that grows.
func (o *editOptions) edit(options, name string) (nebulaio.EditOptions, error) {
	if err := decode(options, o); err != nil {
		return nebulaio.EditOptions{}, err
	}
	if err := checkSize("edit object", name, o.Size); err != nil {
		return nebulaio.EditOptions{}, err
	}
	return nebulaio.EditOptions{Device: o.Device, Size: int64(o.Size), Replace: o.Replace}, nil
}

func checkSize(op, name string, size uint64) error {
	if size > 1<<62 {
		return errs.New(errs.Invalid, op, name, fmt.Sprintf("%d bytes; expected less than 2^62", size))
	}
	return nil
}

// EditObject is nebulaio_object_edit.
func EditObject(t *Table, object uint64, options string) (uint64, *nebulaio.ObjectDraft, error) {
	f, err := get[*nebulaio.ObjectFile](t, object, "object")
	if err != nil {
		return 0, nil, err
	}
	var o editOptions
	eo, err := o.edit(options, f.Info().Key)
	if err != nil {
		return 0, nil, err
	}
	d, err := f.Edit(context.Background(), eo)
	if err != nil {
		return 0, nil, err
	}
	return t.put(d), d, nil
}

// DraftObject is nebulaio_object_draft.
func DraftObject(t *Table, client uint64, bucket, key, mode, options string) (uint64, *nebulaio.ObjectDraft, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, nil, err
	}
	var o editOptions
	eo, err := o.edit(options, bucket+"/"+key)
	if err != nil {
		return 0, nil, err
	}
	d, err := c.OpenDraft(context.Background(), bucket, key, nebulaio.DraftMode(mode), eo)
	if err != nil {
		return 0, nil, err
	}
	return t.put(d), d, nil
}

// ExtendObject is nebulaio_object_extend.
func ExtendObject(t *Table, object, size uint64) error {
	f, err := get[*nebulaio.ObjectDraft](t, object, "new object")
	if err != nil {
		return err
	}
	if err := checkSize("extend object", f.Name(), size); err != nil {
		return err
	}
	return f.Extend(context.Background(), int64(size))
}

// NoteWrite is nebulaio_object_wrote.
func NoteWrite(t *Table, object, off, n uint64) error {
	f, err := get[*nebulaio.ObjectDraft](t, object, "new object")
	if err != nil {
		return err
	}
	if off > 1<<62 || n > 1<<62 {
		return errs.New(errs.Invalid, "note a write", f.Name(),
			fmt.Sprintf("%d bytes at offset %d; expected both below 2^62", n, off))
	}
	f.Wrote(int64(off), int64(n))
	return nil
}

// Whole is NEBULAIO_WHOLE, the size that commits the whole file of a draft that grows.
const Whole = math.MaxUint64

// StartCommit is nebulaio_object_commit_start.
func (t *Table) StartCommit(object, size uint64) (uint64, error) {
	f, err := get[*nebulaio.ObjectDraft](t, object, "new object")
	if err != nil {
		return 0, err
	}
	n := int64(nebulaio.WholeDraft)
	if size != Whole {
		if err := checkSize("commit object", f.Name(), size); err != nil {
			return 0, err
		}
		n = int64(size)
	}
	return ask(t, func(ctx context.Context) (any, error) { return f.Commit(ctx, n) }), nil
}
