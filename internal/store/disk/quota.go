// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// quotaKind is the kind of the records that hold the quotas of owners.
const quotaKind = "quota"

// ledger is the quota of a bucket or of an owner, with the growth that changes in progress have reserved.
type ledger struct {
	of    string // "bucket NAME" or "user NAME", for errors
	mu    sync.Mutex
	limit object.Quota
	held  object.Usage
}

// take reserves growth, or fails with ErrQuota. The function used returns what the bucket or owner holds.
func (l *ledger) take(op, name string, g object.Usage, used func() object.Usage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := used()
	if q := l.limit.Bytes; q > 0 && g.Bytes > 0 && u.Bytes+l.held.Bytes+g.Bytes > q {
		return object.Fail(op, name, object.ErrQuota, fmt.Sprintf("the %s has %d of %d bytes, and %d more were to be written",
			l.of, u.Bytes, q, g.Bytes))
	}
	if q := l.limit.Objects; q > 0 && g.Objects > 0 && u.Objects+l.held.Objects+g.Objects > q {
		return object.Fail(op, name, object.ErrQuota, fmt.Sprintf("the %s has %d of %d object versions", l.of, u.Objects, q))
	}
	l.held.Bytes += g.Bytes
	l.held.Objects += g.Objects
	return nil
}

// give returns reserved growth. The lock is held.
func (l *ledger) give(g object.Usage) {
	l.held.Bytes -= g.Bytes
	l.held.Objects -= g.Objects
}

// quotas holds the quotas of owners. The map is replaced as a whole, so that changes read it without a lock.
type quotas struct {
	s      *Store
	owners atomic.Pointer[map[string]*ledger] // nil if no owner has a quota
}

func (q *quotas) of(owner string) *ledger {
	all := q.owners.Load()
	if all == nil {
		return nil
	}
	return (*all)[owner]
}

// usageOf returns what counts against a quota.
func usageOf(c record.Counts) object.Usage {
	return object.Usage{Bytes: c.Bytes + c.Parts, Objects: c.Objects + c.Versions}
}

// growthOf returns the growth of what counts against a quota. Shrinking counts as no growth.
func growthOf(d record.Counts) object.Usage {
	u := usageOf(d)
	return object.Usage{Bytes: max(u.Bytes, 0), Objects: max(u.Objects, 0)}
}

// ownerUsage returns what all buckets of an owner hold.
func (q *quotas) ownerUsage(owner string) (sum object.Usage) {
	q.s.bucketMu.RLock()
	defer q.s.bucketMu.RUnlock()
	for _, b := range q.s.buckets {
		if b.settings.Load().Owner == owner {
			u := usageOf(b.counted())
			sum.Bytes += u.Bytes
			sum.Objects += u.Objects
		}
	}
	return sum
}

// reservation is the growth that a change has reserved in the quotas of its bucket and of the bucket's owner.
type reservation struct {
	growth        object.Usage
	bucket, owner *ledger // nil without a quota
}

// reserve reserves the growth of a bucket. Without a quota, reserve costs two reads of memory.
func (q *quotas) reserve(op, name string, bk *bucket, g object.Usage) (r reservation, err error) {
	if g == (object.Usage{}) {
		return r, nil
	}
	r = reservation{growth: g, bucket: bk.quota.Load()}
	owner := ""
	if q.owners.Load() != nil {
		owner = bk.settings.Load().Owner
		r.owner = q.of(owner)
	}
	if r.bucket != nil {
		if err := r.bucket.take(op, name, g, func() object.Usage { return usageOf(bk.counted()) }); err != nil {
			return reservation{}, err
		}
	}
	if r.owner != nil {
		if err := r.owner.take(op, name, g, func() object.Usage { return q.ownerUsage(owner) }); err != nil {
			r.owner = nil
			r.settle(func() {})
			return reservation{}, err
		}
	}
	return r, nil
}

// settle returns the reserved growth, and calls count in the same step, so that nothing is counted twice or not at all.
func (r reservation) settle(count func()) {
	for _, l := range []*ledger{r.bucket, r.owner} {
		if l != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.give(r.growth)
		}
	}
	count()
}

// room returns ErrQuota if content of this size cannot be committed in the bucket now. The check spares the server a
// body that it would refuse in the end. The content replaces old bytes.
func (q *quotas) room(op, name string, bk *bucket, size, old int64) error {
	if size <= 0 || bk.quota.Load() == nil && q.owners.Load() == nil {
		return nil
	}
	r, err := q.reserve(op, name, bk, object.Usage{Bytes: max(size-old, 0)})
	if err == nil {
		r.settle(func() {})
	}
	return err
}

// replaced returns the bytes that a write of the key replaces. If they are not known, replaced returns 0.
func (q *quotas) replaced(bk *bucket, key string) int64 {
	if bk.quota.Load() == nil && q.owners.Load() == nil || bk.settings.Load().Versioning == object.VersioningEnabled {
		return 0
	}
	head, err := q.s.current(bk, key)
	if err != nil || head == nil || head.Marker() || !head.Null() {
		return 0 // the commit judges exactly
	}
	return head.Size
}

// readQuota reads the quota of a bucket from its settings. A quota that cannot be read is reported and limits nothing.
func readQuota(s *Store, b *bucket) {
	o := b.settings.Load()
	limit, err := object.QuotaOf(o)
	s.background(err)
	if err != nil || limit == nil {
		b.quota.Store(nil)
		return
	}
	b.quota.Store(&ledger{of: "bucket " + o.Name, limit: *limit})
}

// load reads the quotas of all owners, while the store is being opened.
func (q *quotas) load() error {
	prefix := record.Key(quotaKind, "")
	all := map[string]*ledger{}
	err := metadb.Each(q.s.db, prefix, record.After(prefix), func(k, v []byte) error {
		name := string(k[len(prefix):])
		l := &ledger{of: "user " + name}
		if len(v) == 0 || v[0] != record.Format {
			return record.Unreadable("quota", v)
		}
		if err := json.Unmarshal(v[1:], &l.limit); err != nil {
			q.s.background(errs.New(errs.Corrupt, "read the quota", name, err.Error()).
				WithFix("set the quota again: nebulaio quota set"))
			return nil
		}
		all[name] = l
		return nil
	})
	if err == nil && len(all) > 0 {
		q.owners.Store(&all)
	}
	return err
}

// SetOwnerQuota implements object.Quotas.
func (q *quotas) SetOwnerQuota(ctx context.Context, owner string, limit *object.Quota) error {
	const op = "set the quota"
	if limit == nil {
		if err := q.s.DeleteRecord(ctx, quotaKind, owner); err != nil && !errors.Is(err, object.ErrNoSuchRecord) {
			return err
		}
	} else {
		if err := limit.Check(op, owner); err != nil {
			return err
		}
		value, err := json.Marshal(limit)
		if err != nil {
			return errs.Wrap(op, owner, err)
		}
		if err := q.s.PutRecord(ctx, quotaKind, owner, value); err != nil {
			return err
		}
	}
	q.s.changing.Lock()
	defer q.s.changing.Unlock()
	all := map[string]*ledger{}
	if old := q.owners.Load(); old != nil {
		all = maps.Clone(*old)
	}
	old := all[owner]
	switch {
	case limit == nil:
		delete(all, owner)
	case old != nil: // changes in progress keep what they have reserved
		old.mu.Lock()
		old.limit = *limit
		old.mu.Unlock()
	default:
		all[owner] = &ledger{of: "user " + owner, limit: *limit}
	}
	if len(all) == 0 {
		q.owners.Store(nil)
		return nil
	}
	q.owners.Store(&all)
	return nil
}

// OwnerQuotas implements object.Quotas.
func (q *quotas) OwnerQuotas(context.Context) (map[string]object.Quota, error) {
	out := map[string]object.Quota{}
	if all := q.owners.Load(); all != nil {
		for owner, l := range *all {
			l.mu.Lock()
			out[owner] = l.limit
			l.mu.Unlock()
		}
	}
	return out, nil
}

// BucketUsage implements object.Quotas.
func (q *quotas) BucketUsage(_ context.Context, bucket string) (object.Usage, error) {
	b, err := q.s.find("bucket usage", bucket)
	if err != nil {
		return object.Usage{}, err
	}
	return usageOf(b.counted()), nil
}

// OwnerUsage implements object.Quotas.
func (q *quotas) OwnerUsage(_ context.Context, owner string) (object.Usage, error) {
	return q.ownerUsage(owner), nil
}
