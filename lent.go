// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
)

// ObjectFile holds file descriptors for reading the data file of an object, received through the server's door. A
// program can read the file with any library, such as cuFile. The content of an ObjectFile stays unchanged until
// Close, even if the object is overwritten or deleted. NebulaIO does not check reads of an ObjectFile against
// checksums.
type ObjectFile struct{ f *client.File }

// OpenFile opens the data file of an object through the server's door. If `version` is empty, OpenFile opens the
// current version of the object. If the server offers no door, OpenFile fails with kind Unsupported, because HTTP
// cannot pass file descriptors. The caller must close the file before it closes the client.
func (c *Client) OpenFile(ctx context.Context, bucket, key, version, device string) (*ObjectFile, error) {
	f, err := c.c.OpenFile(ctx, bucket, key, version, device)
	if err != nil {
		return nil, err
	}
	return &ObjectFile{f: f}, nil
}

// Info returns the properties that the object had when it was opened.
func (f *ObjectFile) Info() ObjectInfo { return ObjectInfo(f.f.Info()) }

// Size returns the object's size in bytes.
func (f *ObjectFile) Size() int64 { return f.f.Size() }

// Buffered returns a file descriptor that reads through the page cache, or -1 after Close. The ObjectFile owns the
// descriptor: the caller must not close it.
func (f *ObjectFile) Buffered() int { return f.f.Buffered() }

// Direct returns a file descriptor opened with O_DIRECT, or -1 if there is none. The ObjectFile owns the descriptor:
// the caller must not close it.
func (f *ObjectFile) Direct() int { return f.f.Direct() }

// Close closes the descriptors and releases the content, so that the server may delete it once the object is
// overwritten or deleted. A second call of Close does nothing.
func (f *ObjectFile) Close() error { return f.f.Close() }

// EditOptions describe a change of an object in place.
type EditOptions struct {
	// Device is the device whose memory the content is moved from and to; empty means ClientOptions.Device.
	Device string
	// Size is the largest size that the object may have at first, in bytes. If Size is less than the size of the object,
	// the size of the object is taken. ObjectDraft.Extend raises the largest size later.
	Size int64
	// Replace commits the change even if the object was replaced or deleted after it was opened. Without Replace, such a
	// commit fails with an error that matches syscall.ESTALE, and the newer object stays.
	Replace bool
}

// Edit begins a draft that is a private copy of the object, so that a part of the object can be overwritten and the
// object can be extended. The descriptors of the draft read and write. Nobody else sees the change before
// ObjectDraft.Commit, and the ObjectFile keeps the old content. If the server's file system can share blocks between
// files, the copy takes no time and no space. The committed object keeps the headers, metadata and tags of the old one.
// If the account may only read the object, Edit fails with kind Permission. The caller must close the draft before it
// closes the client, and may close the ObjectFile before.
func (f *ObjectFile) Edit(ctx context.Context, o EditOptions) (*ObjectDraft, error) {
	d, err := f.f.Edit(ctx, client.Edit(o))
	if err != nil {
		return nil, err
	}
	return &ObjectDraft{f: d}, nil
}

// WholeDraft is the size for ObjectDraft.Commit that publishes the whole file of a draft of Edit or OpenDraft.
const WholeDraft = client.WholeFile

// ObjectDraft holds file descriptors for writing the content of a new object, received through the server's door.
type ObjectDraft struct{ f *client.DraftFile }

// DraftMode says what a draft of OpenDraft begins with.
type DraftMode string

// The modes of OpenDraft are named as those of the C function fopen.
const (
	// EditObject begins with a private copy of the current object, as ObjectFile.Edit does.
	EditObject DraftMode = "r+"
	// ReplaceObject begins empty. The commit makes the object or replaces it.
	ReplaceObject DraftMode = "w"
	// CreateObject begins empty. If an object with this key exists, the commit fails with an error that matches
	// fs.ErrExist.
	CreateObject DraftMode = "x"
)

// OpenDraft begins a draft whose file the program reads and writes, in one of the modes of DraftMode. The draft becomes
// the object when it is committed with Commit. To read an object only, call OpenFile. Another mode fails with kind
// Invalid. OpenDraft fails as OpenFile and Edit do.
func (c *Client) OpenDraft(ctx context.Context, bucket, key string, mode DraftMode, o EditOptions) (*ObjectDraft,
	error) {
	w := client.Write{Bucket: bucket, Key: key, Size: o.Size, Device: o.Device}
	switch mode {
	case EditObject:
		f, err := c.OpenFile(ctx, bucket, key, "", o.Device)
		if err != nil {
			return nil, err
		}
		d, err := f.Edit(ctx, o)
		return d, errors.Join(err, f.Close())
	case CreateObject:
		w.IfNoneMatch = "*"
	case ReplaceObject:
	default:
		return nil, errs.New(errs.Invalid, "open draft", "s3://"+bucket+"/"+key,
			fmt.Sprintf("mode %q; expected %q, %q or %q", string(mode), EditObject, ReplaceObject, CreateObject))
	}
	f, err := c.c.CreateGrowing(ctx, w)
	if err != nil {
		return nil, err
	}
	return &ObjectDraft{f: f}, nil
}

// DraftOptions describe the new object that CreateDraft begins.
type DraftOptions struct {
	// Device is the device whose memory holds the content; empty means ClientOptions.Device.
	Device      string
	ContentType string
	// Metadata, IfMatch and IfNoneMatch have the same meaning as in ObjectWrite.
	Metadata             map[string]string
	IfMatch, IfNoneMatch string
}

// request converts the options to a write request of the internal client.
func (o DraftOptions) request(bucket, key string, size int64) client.Write {
	return client.Write{Bucket: bucket, Key: key, Size: size, Device: o.Device, ContentType: o.ContentType,
		Metadata: o.Metadata,
		IfMatch:  o.IfMatch, IfNoneMatch: o.IfNoneMatch}
}

// CreateDraft begins an object of at most `size` bytes and opens its file through the server's door. The object
// becomes visible when the draft is committed with Commit. If the server offers no door that accepts writes,
// CreateDraft fails with kind Unsupported. The caller must close the draft before it closes the client.
func (c *Client) CreateDraft(ctx context.Context, bucket, key string, size int64, o DraftOptions) (*ObjectDraft,
	error) {
	f, err := c.c.CreateFile(ctx, o.request(bucket, key, size))
	if err != nil {
		return nil, err
	}
	return &ObjectDraft{f: f}, nil
}

// Name returns the object's URL, for use in messages.
func (d *ObjectDraft) Name() string { return d.f.Name() }

// Buffered returns a file descriptor that writes through the page cache, or -1 after Commit or Close. The draft owns
// the descriptor: the caller must not close it.
func (d *ObjectDraft) Buffered() int { return d.f.Buffered() }

// Direct returns a file descriptor opened with O_DIRECT, or -1 if there is none. The draft owns the descriptor: the
// caller must not close it.
func (d *ObjectDraft) Direct() int { return d.f.Direct() }

// Size returns the largest size in bytes that was announced for the object.
func (d *ObjectDraft) Size() int64 { return d.f.Most() }

// Extend announces that a draft of Edit or OpenDraft is going to have up to `size` bytes. A program calls Extend before
// it writes behind the size that it announced last. If the server refuses the size, Extend returns the reason. For a
// draft of CreateDraft, Extend fails with kind Invalid.
func (d *ObjectDraft) Extend(ctx context.Context, size int64) error { return d.f.Extend(ctx, size) }

// Wrote tells a draft of Edit that the program has overwritten `n` bytes at offset `off`. Commit then does not compare
// the old content of blocks that are wholly overwritten with its checksums. A call of Wrote is never necessary.
func (d *ObjectDraft) Wrote(off, n int64) { d.f.Wrote(off, n) }

// Copied returns the number of bytes that the server copied for a draft of Edit. Copied returns 0 if the draft shares
// the blocks of the old object, or began empty.
func (d *ObjectDraft) Copied() int64 { return d.f.Copied() }

// Commit publishes the first `size` bytes of the file as the object. If the draft comes from Edit or OpenDraft,
// WholeDraft publishes the whole file. Commit reads the bytes once to compute their
// checksums, and closes the descriptors. After a successful Commit the object is durable and visible. The caller must
// close all its own duplicates of the descriptors before Commit. After Commit, successful or not, the draft cannot be
// used again.
func (d *ObjectDraft) Commit(ctx context.Context, size int64) (ObjectInfo, error) {
	info, err := d.f.Commit(ctx, size)
	return ObjectInfo(info), err
}

// Close discards a draft that was not committed. A second call of Close does nothing.
func (d *ObjectDraft) Close() error { return d.f.Close() }
