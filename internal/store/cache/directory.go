// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

var _ object.Directories = (*Store)(nil)

// Append implements object.Directories. Upstream buckets are no directory buckets.
func (s *Store) Append(ctx context.Context, a object.Append) (object.Info, error) {
	b, err := s.upstreamOf("append", a.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	if b != nil {
		return object.Info{}, noDirectory("append", b)
	}
	return s.local.Append(ctx, a)
}

// Rename implements object.Directories. Upstream buckets are no directory buckets.
func (s *Store) Rename(ctx context.Context, r object.Rename) error {
	b, err := s.upstreamOf("rename", r.Bucket)
	if err != nil {
		return err
	}
	if b != nil {
		return noDirectory("rename", b)
	}
	return s.local.Rename(ctx, r)
}

func noDirectory(op string, b *bucket) error {
	return errs.New(errs.Unsupported, op, b.Name, "another S3 server keeps the bucket, which is no directory bucket")
}
