// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// The bounds of sweeping.
const (
	sweepLeast    = 4 << 20          // bytes of records that were deleted
	sweepShare    = 10               // of the metadata, one in so many bytes
	sweepQuiet    = 3 * time.Second  // without changes, before it begins
	sweepPatience = 30 * time.Second // after which it begins in spite of changes
	sweepSlice    = 32 << 20         // bytes of tables that are compacted at a time
	sweepDeleted  = 20               // of the entries of a part one in so many is a deletion, else it is left alone
	recordCost    = 96               // about what a record takes beside its content
	mostProds     = 6                // how often Pebble is asked to rewrite files of values after a sweep
)

// sweeper gives the space of deleted records back while the store runs. Pebble does so by itself only when more is
// written: after a mass deletion nothing would happen until then. It begins when a tenth of the metadata was deleted
// and the store is quiet, compacts a part of the keys at a time, and rests after each as long as that took.
type sweeper struct {
	s       *Store
	freed   atomic.Int64 // bytes of records that were deleted since the last sweep
	changes atomic.Int64 // that were committed

	seen  int64     // of changes, at the last step
	quiet time.Time // since when there were none
	due   time.Time // since when there is enough to sweep
	after time.Time // a sweep that failed is not tried again before

	prods int       // how often Pebble is still asked to rewrite files of values
	prod  time.Time // when it is asked next
}

// step sweeps where it is time to.
func (w *sweeper) step(ctx context.Context, now time.Time) {
	if n := w.changes.Load(); n != w.seen || w.quiet.IsZero() {
		w.seen, w.quiet = n, now
	}
	if w.prods > 0 && !now.Before(w.prod) {
		w.rewrite(ctx, now)
	}
	freed := w.freed.Load()
	if freed < sweepLeast || uint64(freed) < w.s.db.Metrics().DiskSpaceUsage()/sweepShare {
		w.due = time.Time{}
		return
	}
	if w.due.IsZero() {
		w.due = now
	}
	if now.Sub(w.quiet) < sweepQuiet && now.Sub(w.due) < sweepPatience || now.Before(w.after) {
		return
	}
	w.freed.Add(-freed)
	w.due = time.Time{}
	if err := w.sweep(ctx); err != nil && ctx.Err() == nil {
		w.freed.Add(freed)
		w.after = now.Add(sweepPatience)
		w.s.background(errs.Wrap("give back space of metadata", w.s.opts.Dir, err))
		return
	}
	w.prods, w.prod = mostProds, time.Now().Add(w.s.opts.blobAge)
}

// rewrite has Pebble rewrite files of values of which much was deleted. Pebble leaves young files alone, and looks for
// others only after a flush or a compaction. So there is a flush when they are old enough.
func (w *sweeper) rewrite(ctx context.Context, now time.Time) {
	w.prods--
	w.prod = now.Add(w.s.opts.blobAge)
	b := w.s.db.Metrics().BlobFiles
	if float64(b.ValueSize-b.ReferencedValueSize) <= metadb.BlobGarbage*float64(b.ValueSize) {
		w.prods = 0
		return
	}
	if err := w.flush(ctx); err != nil && ctx.Err() == nil {
		w.s.background(errs.Wrap("give back space of metadata", w.s.opts.Dir, err))
	}
}

// sweep compacts the parts of the keys in which much was deleted.
func (w *sweeper) sweep(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	parts, err := w.parts()
	if err != nil {
		return err
	}
	for _, part := range parts {
		before := w.changes.Load()
		began := time.Now()
		if err := w.s.db.Compact(ctx, part.from, part.to, false); err != nil {
			return err
		}
		rest := time.Since(began)
		if w.changes.Load() != before {
			rest *= 3 // requests come first
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.s.fence.Closed:
			return nil
		case <-time.After(rest):
		}
	}
	return nil
}

// flush writes what is in memory to tables: the deletions have to be there to meet what they delete.
func (w *sweeper) flush(ctx context.Context) error {
	done, err := w.s.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.s.fence.Closed:
		return nil
	}
}

// keyRange is a part of the keys, both ends included.
type keyRange struct{ from, to []byte }

// parts are the parts of the keys that are worth compacting, each with about sweepSlice bytes of tables.
func (w *sweeper) parts() ([]keyRange, error) {
	levels, err := w.s.db.SSTables()
	if err != nil {
		return nil, err
	}
	var all []pebble.SSTableInfo
	for _, level := range levels {
		all = append(all, level...)
	}
	slices.SortFunc(all, func(a, b pebble.SSTableInfo) int {
		return bytes.Compare(a.Smallest.UserKey,
			b.Smallest.UserKey)
	})
	var out []keyRange
	var from, to []byte
	var size uint64
	for _, t := range all {
		if from != nil && size >= sweepSlice && bytes.Compare(t.Smallest.UserKey, from) > 0 {
			out = append(out, keyRange{from, t.Smallest.UserKey})
			from, size = t.Smallest.UserKey, 0
		}
		if from == nil {
			from = t.Smallest.UserKey
		}
		size += t.Size
		if bytes.Compare(t.Largest.UserKey, to) > 0 {
			to = t.Largest.UserKey
		}
	}
	if from != nil && bytes.Compare(from, to) < 0 {
		out = append(out, keyRange{from, to})
	}
	return slices.DeleteFunc(out, func(r keyRange) bool { return !worth(r, all) }), nil
}

// worth says whether enough of a part was deleted, or whether that is not known yet.
func worth(r keyRange, all []pebble.SSTableInfo) bool {
	var entries, deletions uint64
	for _, t := range all {
		if bytes.Compare(t.Smallest.UserKey, r.to) <= 0 && bytes.Compare(t.Largest.UserKey, r.from) >= 0 {
			if t.TableStats.NumEntries == 0 {
				return true
			}
			entries += t.TableStats.NumEntries
			deletions += t.TableStats.NumDeletions
		}
	}
	return deletions > 0 && deletions*sweepDeleted >= entries
}
