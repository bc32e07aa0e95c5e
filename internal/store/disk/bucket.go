// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// bucket is a bucket in memory. All keys of a bucket contain its number, so that a new bucket of the same name sees
// nothing of the old one.
type bucket struct {
	id       uint64
	settings atomic.Pointer[object.Bucket]
	rules    atomic.Pointer[[]object.JournalRule] // which changes get journal entries; nil if none
	// held for reading while objects change, for writing while the bucket changes
	mu      sync.RWMutex
	gone    atomic.Bool
	countMu sync.Mutex
	counts  record.Counts
	quota   atomic.Pointer[ledger] // nil if the bucket has no quota
}

// set replaces the settings in memory, and the journal's rules in them.
func (b *bucket) set(o *object.Bucket, rules []object.JournalRule) {
	b.settings.Store(o)
	if len(rules) == 0 {
		b.rules.Store(nil)
	} else {
		b.rules.Store(&rules)
	}
}

func (b *bucket) count(d record.Counts) {
	b.countMu.Lock()
	b.counts.Add(d)
	b.countMu.Unlock()
}

func (b *bucket) counted() record.Counts {
	b.countMu.Lock()
	defer b.countMu.Unlock()
	return b.counts
}

// find returns a bucket.
func (s *Store) find(op, name string) (*bucket, error) {
	s.bucketMu.RLock()
	b := s.buckets[name]
	s.bucketMu.RUnlock()
	if b == nil {
		return nil, noBucket(op, name)
	}
	return b, nil
}

// hold prevents deletion and changes of a bucket until release is called.
func (b *bucket) hold(op string) (release func(), err error) {
	b.mu.RLock()
	if b.gone.Load() {
		b.mu.RUnlock()
		return nil, object.Fail(op, b.settings.Load().Name, object.ErrNoSuchBucket, "it was deleted meanwhile")
	}
	return b.mu.RUnlock, nil
}

// loadBuckets reads all buckets and the quotas of their owners.
func (s *Store) loadBuckets() error {
	if err := s.quotas.load(); err != nil {
		return err
	}
	return s.each(record.KindBucket, func(k, v []byte) error {
		id, o, err := record.DecodeBucket(string(k[1:]), v)
		if err != nil {
			return err
		}
		b := &bucket{id: id}
		rules, err := object.JournalRules(o)
		if err != nil {
			s.background(err) // without its rules, the bucket is served and has no journal
		}
		b.set(o, rules)
		if b.counts, err = metadb.LoadCounts(s.db, id); err != nil {
			return err
		}
		readQuota(s, b)
		s.buckets[o.Name] = b
		return nil
	})
}

// CreateBucket implements object.Buckets. If b names no kind of ETag, the bucket gets ETagMD5.
func (s *Store) CreateBucket(ctx context.Context, b object.Bucket) error {
	const op = "create bucket"
	end, err := s.begin(ctx, op, b.Name)
	if err != nil {
		return err
	}
	defer end()
	if n := len(b.Name); n < 1 || n > object.MaxKey {
		return object.Fail(op, b.Name, object.ErrInvalidName,
			fmt.Sprintf("a name of %d bytes, expected 1 to %d", n, object.MaxKey))
	}
	c := b.Clone()
	if err := object.CheckBucket(op, &c); err != nil {
		return err
	}
	rules, err := object.JournalRules(&c)
	if err != nil {
		return err
	}
	if c.Created.IsZero() {
		c.Created = s.opts.Now()
	}
	c.Created = record.Time(c.Created.UnixMilli())
	if err := s.space.check(op, b.Name, 0); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if _, err := s.find(op, b.Name); err == nil {
		return object.Fail(op, b.Name, object.ErrBucketExists, "")
	}
	id, err := s.bucketIDs.take(s)
	if err != nil {
		return err
	}
	n := &bucket{id: id}
	n.set(&c, rules)
	readQuota(s, n)
	return s.setBucket(op, n, &c, func() {
		s.bucketMu.Lock()
		s.buckets[c.Name] = n
		s.bucketMu.Unlock()
	})
}

func (s *Store) setBucket(op string, b *bucket, o *object.Bucket, then func()) error {
	t := s.change(b)
	t.then = then
	t.set(record.BucketKey(o.Name), record.EncodeBucket(b.id, o))
	return t.commit(op, o.Name)
}

// Bucket implements object.Buckets.
func (s *Store) Bucket(ctx context.Context, name string) (*object.Bucket, error) {
	const op = "bucket"
	end, err := s.begin(ctx, op, name)
	if err != nil {
		return nil, err
	}
	defer end()
	b, err := s.find(op, name)
	if err != nil {
		return nil, err
	}
	return b.settings.Load(), nil
}

// UpdateBucket implements object.Buckets. UpdateBucket refuses to turn versioning off again.
func (s *Store) UpdateBucket(ctx context.Context, name string, change func(*object.Bucket) error) error {
	const op = "update bucket"
	return s.changeBucket(ctx, op, name, func(b *bucket) error {
		c, err := object.ChangedBucket(op, b.settings.Load(), change)
		if err != nil {
			return err
		}
		rules, err := object.JournalRules(c)
		if err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return s.setBucket(op, b, c, func() {
			b.set(c, rules)
			readQuota(s, b) // no change of the bucket is in progress, so none has reserved anything
		})
	})
}

// changeBucket calls change with a bucket while no other bucket is created, changed or deleted.
func (s *Store) changeBucket(ctx context.Context, op, name string, change func(*bucket) error) error {
	end, err := s.begin(ctx, op, name)
	if err != nil {
		return err
	}
	defer end()
	s.changing.Lock()
	defer s.changing.Unlock()
	b, err := s.find(op, name)
	if err != nil {
		return err
	}
	return change(b)
}

// DeleteBucket implements object.Buckets.
func (s *Store) DeleteBucket(ctx context.Context, name string) error {
	const op = "delete bucket"
	return s.changeBucket(ctx, op, name, func(b *bucket) error { return s.deleteBucket(op, name, b) })
}

// deleteBucket deletes a bucket that has no objects, together with its unfinished uploads.
func (s *Store) deleteBucket(op, name string, b *bucket) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, kind := range []byte{record.KindObject, record.KindVersion} {
		if err := metadb.Each(s.db, record.Numbered(kind, b.id, 0), record.Numbered(kind, b.id+1, 0),
			func(_, _ []byte) error { return metadb.ErrStop }); errors.Is(err, metadb.ErrStop) {
			return object.Fail(op, name, object.ErrBucketNotEmpty, fmt.Sprintf("it has %+v", b.counted()))
		} else if err != nil {
			return err
		}
	}
	t := s.change(b)
	if err := t.dropUploads(); err != nil {
		t.cancel()
		return err
	}
	t.del(record.BucketKey(name))
	t.del(record.CountsKey(b.id))
	t.delta = record.Counts{}
	t.then = func() {
		b.gone.Store(true)
		s.bucketMu.Lock()
		delete(s.buckets, name)
		s.bucketMu.Unlock()
	}
	return t.commit(op, name)
}

// ListBuckets implements object.Buckets.
func (s *Store) ListBuckets(ctx context.Context) ([]object.Bucket, error) {
	end, err := s.begin(ctx, "list buckets", "")
	if err != nil {
		return nil, err
	}
	defer end()
	s.bucketMu.RLock()
	defer s.bucketMu.RUnlock()
	out := make([]object.Bucket, 0, len(s.buckets))
	for _, name := range slices.Sorted(maps.Keys(s.buckets)) {
		out = append(out, s.buckets[name].settings.Load().Clone())
	}
	return out, nil
}
