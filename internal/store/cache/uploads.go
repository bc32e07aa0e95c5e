// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/object"
)

// CreateUpload implements object.Uploads.
func (s *Store) CreateUpload(ctx context.Context, bucket, key string, attributes map[string]string) (string, error) {
	b, err := s.mayChange("create upload", bucket)
	if err != nil {
		return "", err
	}
	if b == nil {
		return s.Local.CreateUpload(ctx, bucket, key, attributes)
	}
	return b.Pass.CreateUpload(ctx, bucket, key, attributes)
}

// GetUpload implements object.Uploads.
func (s *Store) GetUpload(ctx context.Context, bucket, key, id string) (object.Upload, error) {
	u, err := s.uploadsOf("get upload", bucket)
	if err != nil {
		return object.Upload{}, err
	}
	return u.GetUpload(ctx, bucket, key, id)
}

// uploadsOf returns the multipart uploads of a bucket.
func (s *Store) uploadsOf(op, bucket string) (object.Uploads, error) {
	b, err := s.upstreamOf(op, bucket)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return s.Local, nil
	}
	return b.Pass, nil
}

// PutPart implements object.Uploads.
func (s *Store) PutPart(ctx context.Context, p object.PutPart) (object.PartInfo, error) {
	u, err := s.uploadsOf("put part", p.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	return u.PutPart(ctx, p)
}

// CopyPart implements object.Uploads. If the source is on another server, the content passes through this server.
func (s *Store) CopyPart(ctx context.Context, c object.CopyPart) (object.PartInfo, error) {
	const op = "copy part"
	to, err := s.mayChange(op, c.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	from, err := s.upstreamOf(op, c.From.Bucket)
	if err != nil {
		return object.PartInfo{}, err
	}
	switch {
	case to == nil && from == nil:
		return s.Local.CopyPart(ctx, c)
	case to == from:
		return to.Pass.CopyPart(ctx, c)
	}
	ctx = object.ExpectRange(ctx, object.Range{Off: c.Off, N: c.N})
	src, err := s.Open(ctx, c.From)
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
	return s.PutPart(ctx, object.PutPart{Bucket: c.Bucket, Key: c.Key, Upload: c.Upload, Number: c.Number, Size: r.N,
		Body: body, Finish: c.Finish})
}

// ListParts implements object.Uploads.
func (s *Store) ListParts(ctx context.Context, bucket, key, id string, after, limit int) ([]object.PartInfo, bool,
	error) {
	u, err := s.uploadsOf("list parts", bucket)
	if err != nil {
		return nil, false, err
	}
	return u.ListParts(ctx, bucket, key, id, after, limit)
}

// CompleteUpload implements object.Uploads.
func (s *Store) CompleteUpload(ctx context.Context, c object.Complete) (object.Info, error) {
	b, err := s.mayChange("complete upload", c.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	if b == nil {
		return s.Local.CompleteUpload(ctx, c)
	}
	defer b.changing(c.Key)()
	return b.Pass.CompleteUpload(ctx, c)
}

// AbortUpload implements object.Uploads.
func (s *Store) AbortUpload(ctx context.Context, bucket, key, id string) error {
	u, err := s.uploadsOf("abort upload", bucket)
	if err != nil {
		return err
	}
	return u.AbortUpload(ctx, bucket, key, id)
}

// ListUploads implements object.Uploads.
func (s *Store) ListUploads(ctx context.Context, l object.UploadList) (object.UploadPage, error) {
	u, err := s.uploadsOf("list uploads", l.Bucket)
	if err != nil {
		return object.UploadPage{}, err
	}
	return u.ListUploads(ctx, l)
}
