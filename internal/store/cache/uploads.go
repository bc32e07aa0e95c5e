// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/object"
)

// uploads is the multipart uploads of all buckets.
type uploads struct{ s *Store }

// CreateUpload implements object.Uploads.
func (u uploads) CreateUpload(ctx context.Context, bucket, key string, attributes map[string]string) (string, error) {
	b, err := u.s.mayChange("create upload", bucket)
	if err != nil {
		return "", err
	}
	if b == nil {
		return u.s.local.CreateUpload(ctx, bucket, key, attributes)
	}
	return b.Pass.CreateUpload(ctx, bucket, key, attributes)
}

// GetUpload implements object.Uploads.
func (u uploads) GetUpload(ctx context.Context, bucket, key, id string) (object.Upload, error) {
	at, err := u.of("get upload", bucket)
	if err != nil {
		return object.Upload{}, err
	}
	return at.GetUpload(ctx, bucket, key, id)
}

// of returns the multipart uploads of a bucket.
func (u uploads) of(op, bucket string) (object.Uploads, error) {
	b, err := u.s.upstreamOf(op, bucket)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return u.s.local, nil
	}
	return b.Pass, nil
}

// PutPart implements object.Uploads.
func (u uploads) PutPart(ctx context.Context, p object.PutPart) (object.PartInfo, error) {
	at, err := u.of("put part", p.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	return at.PutPart(ctx, p)
}

// CopyPart implements object.Uploads. If the source is on another server, the content passes through this server.
func (u uploads) CopyPart(ctx context.Context, c object.CopyPart) (object.PartInfo, error) {
	const op = "copy part"
	to, err := u.s.mayChange(op, c.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	from, err := u.s.upstreamOf(op, c.From.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	switch {
	case to == nil && from == nil:
		return u.s.local.CopyPart(ctx, c)
	case to == from:
		return to.Pass.CopyPart(ctx, c)
	}
	ctx = object.ExpectRange(ctx, object.Range{Off: c.Off, N: c.N})
	src, err := u.s.Open(ctx, c.From)
	if err != nil {
		return object.PartInfo{}, err
	}
	defer src.Close()
	r := object.Range{Off: c.Off, N: c.N}
	size := src.Info().Size
	if r.N < 0 {
		r.N = max(size-r.Off, 0)
	}
	if r.Off < 0 || r.Off > size || r.N > size-r.Off {
		return object.PartInfo{}, object.Fail(op, c.From.Key, object.ErrInvalidRange,
			fmt.Sprintf("%d bytes from %d of %d", r.N, r.Off, size))
	}
	body, err := strict(src, r)
	if err != nil {
		return object.PartInfo{}, err
	}
	defer body.Close()
	return u.PutPart(ctx, object.PutPart{Bucket: c.Bucket, Key: c.Key, Upload: c.Upload, Number: c.Number, Size: r.N,
		Body: body, Finish: c.Finish})
}

// ListParts implements object.Uploads.
func (u uploads) ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]object.PartInfo, bool,
	error) {
	at, err := u.of("list parts", bucket)
	if err != nil {
		return nil, false, err
	}
	return at.ListParts(ctx, bucket, key, id, after, limit)
}

// CompleteUpload implements object.Uploads.
func (u uploads) CompleteUpload(ctx context.Context, c object.Complete) (object.Info, error) {
	b, err := u.s.mayChange("complete upload", c.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	if b == nil {
		return u.s.local.CompleteUpload(ctx, c)
	}
	defer b.changing(c.Key)()
	return b.Pass.CompleteUpload(ctx, c)
}

// AbortUpload implements object.Uploads.
func (u uploads) AbortUpload(ctx context.Context, bucket, key, id string) error {
	at, err := u.of("abort upload", bucket)
	if err != nil {
		return err
	}
	return at.AbortUpload(ctx, bucket, key, id)
}

// ListUploads implements object.Uploads.
func (u uploads) ListUploads(ctx context.Context, l object.UploadList) (object.UploadPage, error) {
	at, err := u.of("list uploads", l.Bucket)
	if err != nil {
		return object.UploadPage{}, err
	}
	return at.ListUploads(ctx, l)
}
