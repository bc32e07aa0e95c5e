// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
)

// ObjectFile is the file of an object, lent by the server's door for reading. A program can read it with a library of
// its own, such as cuFile. The file keeps its content until Close, even if the object is overwritten or deleted.
// Nothing is compared with checksums.
type ObjectFile struct{ f *client.File }

// OpenFile borrows the file of an object. An empty version is the current one. Without a door it fails with kind
// Unsupported, because HTTP has no files to lend. The caller closes the file, then the client.
func (c *Client) OpenFile(ctx context.Context, bucket, key, version, device string) (*ObjectFile, error) {
	f, err := c.c.OpenFile(ctx, bucket, key, version, device)
	if err != nil {
		return nil, err
	}
	return &ObjectFile{f: f}, nil
}

// Info describes the object.
func (f *ObjectFile) Info() ObjectInfo { return ObjectInfo(f.f.Info()) }

// Size returns the object's size in bytes.
func (f *ObjectFile) Size() int64 { return f.f.Size() }

// Buffered returns a descriptor that uses the page cache, or -1 after Close. The ObjectFile keeps owning it.
func (f *ObjectFile) Buffered() int { return f.f.Buffered() }

// Direct returns a descriptor opened with O_DIRECT, or -1 if there is none. The ObjectFile keeps owning it.
func (f *ObjectFile) Direct() int { return f.f.Direct() }

// Close closes the descriptors and lets the server drop the content. A second call does nothing.
func (f *ObjectFile) Close() error { return f.f.Close() }

// ObjectDraft is the file of an object that does not exist yet, lent by the server's door for writing.
type ObjectDraft struct{ f *client.DraftFile }

// DraftOptions describe the object that a draft becomes.
type DraftOptions struct {
	// Device is the device whose memory will be written. If it is empty, the client's device counts.
	Device      string
	ContentType string
	// Metadata, IfMatch and IfNoneMatch are as in ObjectWrite.
	Metadata             map[string]string
	IfMatch, IfNoneMatch string
}

// request returns the options as the client takes them.
func (o DraftOptions) request(bucket, key string, size int64) client.Write {
	return client.Write{Bucket: bucket, Key: key, Size: size, Device: o.Device, ContentType: o.ContentType,
		Metadata: o.Metadata,
		IfMatch:  o.IfMatch, IfNoneMatch: o.IfNoneMatch}
}

// CreateDraft begins an object of at most size bytes and borrows its file. The object becomes visible with Commit.
// Without a door that takes writes it fails with kind Unsupported. The caller closes the draft, then the client.
func (c *Client) CreateDraft(ctx context.Context, bucket, key string, size int64, o DraftOptions) (*ObjectDraft,
	error) {
	f, err := c.c.CreateFile(ctx, o.request(bucket, key, size))
	if err != nil {
		return nil, err
	}
	return &ObjectDraft{f: f}, nil
}

// Name returns the object's URL, for messages.
func (d *ObjectDraft) Name() string { return d.f.Name() }

// Buffered returns a descriptor that uses the page cache, or -1 after Commit or Close. The draft keeps owning it.
func (d *ObjectDraft) Buffered() int { return d.f.Buffered() }

// Direct returns a descriptor opened with O_DIRECT, or -1 if there is none. The draft keeps owning it.
func (d *ObjectDraft) Direct() int { return d.f.Direct() }

// Commit publishes the first size bytes of the file. It reads them once for their checksums and closes the descriptors.
// After success the object is durable and visible. All other descriptors of the file must be closed before. The draft
// cannot be used again, whatever the result.
func (d *ObjectDraft) Commit(ctx context.Context, size int64) (ObjectInfo, error) {
	info, err := d.f.Commit(ctx, size)
	return ObjectInfo(info), err
}

// Close discards a draft that was not committed. A second call does nothing.
func (d *ObjectDraft) Close() error { return d.f.Close() }
