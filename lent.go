// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"

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

// ObjectDraft holds file descriptors for writing the content of a new object, received through the server's door.
type ObjectDraft struct{ f *client.DraftFile }

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

// Commit publishes the first `size` bytes of the file as the object. Commit reads the bytes once to compute their
// checksums, and closes the descriptors. After a successful Commit the object is durable and visible. The caller must
// close all its own duplicates of the descriptors before Commit. After Commit, successful or not, the draft cannot be
// used again.
func (d *ObjectDraft) Commit(ctx context.Context, size int64) (ObjectInfo, error) {
	info, err := d.f.Commit(ctx, size)
	return ObjectInfo(info), err
}

// Close discards a draft that was not committed. A second call of Close does nothing.
func (d *ObjectDraft) Close() error { return d.f.Close() }
