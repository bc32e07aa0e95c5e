// SPDX-License-Identifier: Apache-2.0

// Package model is an object store in memory. Package model implements the contracts of package object in the
// simplest way, as a reference for tests of other stores.
//
// All data is in maps under one mutex, and every listing sorts all keys, so that each rule is easy to see in the
// code. Nothing is durable.
package model

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// MaxRecord is the largest size of a record's value, in bytes.
const MaxRecord = 1 << 20

// Store is an object.Store in memory. The zero value of Store is not usable; New creates a Store.
type Store struct {
	mu      sync.Mutex
	closed  bool
	seq     uint64
	dir     string // of the files that are handed out; empty: none are
	buckets map[string]*bucket
	records map[[2]string][]byte
}

// bucket is never changed in its settings, only given new ones, since Bucket hands them out.
type bucket struct {
	settings *object.Bucket
	keys     map[string][]*version // newest first, never empty
	uploads  map[string]*upload
	tokens   map[string][2]string // keys of the renames by their tokens
}

// version is one version or delete marker. Its data is never changed.
type version struct {
	info object.Info // Latest is not kept here, it follows from the place
	seq  uint64
	data []byte
	sums []uint64 // of the blocks as a client said; nil: those of data
	// origin is the version of another server that this one is a copy of; nil: it is none.
	origin *object.Origin
}

var _ object.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{buckets: map[string]*bucket{}, records: map[[2]string][]byte{}}
}

// now is a time as stores keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// enter begins a method: it takes the mutex unless the call is pointless.
func (s *Store) enter(ctx context.Context, op, name string) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(op, name, err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return object.Fail(op, name, object.ErrClosed, "")
	}
	return nil
}

// find returns a bucket; the mutex is held.
func (s *Store) find(op, name string) (*bucket, error) {
	b, ok := s.buckets[name]
	if !ok {
		return nil, object.Fail(op, name, object.ErrNoSuchBucket, "")
	}
	return b, nil
}

// next returns a number above all that were given out; the mutex is held.
func (s *Store) next() uint64 {
	s.seq++
	return s.seq
}

// CreateBucket implements object.Buckets. If b names no kind of ETag, the bucket gets ETagMD5.
func (s *Store) CreateBucket(ctx context.Context, b object.Bucket) error {
	const op = "create bucket"
	if b.Name == "" {
		return object.Fail(op, b.Name, object.ErrInvalidName, "")
	}
	if err := s.enter(ctx, op, b.Name); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, ok := s.buckets[b.Name]; ok {
		return object.Fail(op, b.Name, object.ErrBucketExists, "")
	}
	c := b.Clone()
	if err := object.CheckBucket(op, &c); err != nil {
		return err
	}
	if c.Created.IsZero() {
		c.Created = now()
	}
	s.buckets[b.Name] = &bucket{settings: &c, keys: map[string][]*version{}, uploads: map[string]*upload{}}
	return nil
}

// Bucket implements object.Buckets.
func (s *Store) Bucket(ctx context.Context, name string) (*object.Bucket, error) {
	const op = "bucket"
	if err := s.enter(ctx, op, name); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	b, err := s.find(op, name)
	if err != nil {
		return nil, err
	}
	return b.settings, nil
}

// UpdateBucket implements object.Buckets. UpdateBucket refuses to turn versioning off again.
func (s *Store) UpdateBucket(ctx context.Context, name string, change func(*object.Bucket) error) error {
	const op = "update bucket"
	if err := s.enter(ctx, op, name); err != nil {
		return err
	}
	defer s.mu.Unlock()
	b, err := s.find(op, name)
	if err != nil {
		return err
	}
	c, err := object.ChangedBucket(op, b.settings, change)
	if err != nil {
		return err
	}
	b.settings = c
	return nil
}

// DeleteBucket implements object.Buckets.
func (s *Store) DeleteBucket(ctx context.Context, name string) error {
	const op = "delete bucket"
	if err := s.enter(ctx, op, name); err != nil {
		return err
	}
	defer s.mu.Unlock()
	b, err := s.find(op, name)
	if err != nil {
		return err
	}
	if len(b.keys) > 0 {
		return object.Fail(op, name, object.ErrBucketNotEmpty, fmt.Sprintf("it has %d keys", len(b.keys)))
	}
	delete(s.buckets, name)
	return nil
}

// ListBuckets implements object.Buckets.
func (s *Store) ListBuckets(ctx context.Context) ([]object.Bucket, error) {
	if err := s.enter(ctx, "list buckets", ""); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []object.Bucket
	for _, name := range slices.Sorted(maps.Keys(s.buckets)) {
		out = append(out, s.buckets[name].settings.Clone())
	}
	return out, nil
}

// Close implements object.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return object.Fail("close", "", object.ErrClosed, "")
	}
	s.closed = true
	return nil
}
