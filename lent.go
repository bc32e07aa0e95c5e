// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
)

// Files of objects that the door lends to programs which move the bytes by
// themselves, with a library of their own such as cuFile.
type (
	// ObjectFile is an object's file, lent for reading. It keeps its bytes and its
	// name until Close, whatever becomes of the object.
	ObjectFile = client.File
	// NewObjectFile is the file of an object that does not exist yet, lent for writing.
	NewObjectFile = client.NewFile
)

// OpenFile borrows the file of an object; an empty version is the current one.
// Kind Unsupported where there is no door: HTTP has no files to lend. The caller closes it.
func (c *Client) OpenFile(ctx context.Context, bucket, key, version, device string) (*ObjectFile, error) {
	return c.c.OpenFile(ctx, bucket, key, version, device)
}

// CreateFile begins an object of at most w.Size bytes and borrows its file; of w
// the source is not looked at. Nothing is visible before Commit. The caller closes it.
func (c *Client) CreateFile(ctx context.Context, w ObjectWrite) (*NewObjectFile, error) {
	return c.c.CreateFile(ctx, w)
}
