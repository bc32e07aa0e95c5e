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

// The limits of sweeping.
const (
	sweepLeast    = 4 << 20          // a sweep needs at least so many bytes of deleted records
	sweepShare    = 10               // and at least one in so many bytes of the metadata
	sweepQuiet    = 3 * time.Second  // time without changes before a sweep begins
	sweepPatience = 30 * time.Second // time after which a sweep begins in spite of changes
	sweepSlice    = 32 << 20         // bytes of tables that are compacted at a time
	sweepDeleted  = 20               // a part is compacted only if at least one in so many entries is a deletion
	recordCost    = 96               // about the size of a record without its content
	mostProds     = 6                // how often Pebble is asked to rewrite blob files after a sweep
)

// sweeper frees the space of deleted records while the store runs. Pebble does so by itself only when more is
// written, so nothing would happen after a mass deletion. A sweep begins when a tenth of the metadata was deleted and
// the store is quiet. It compacts a part of the keys at a time, and rests after each part as long as that took.
type sweeper struct {
	s       *Store
	freed   atomic.Int64 // bytes of records that were deleted since the last sweep
	changes atomic.Int64 // committed changes

	seen  int64     // value of changes at the last step
	quiet time.Time // since when there were no changes
	due   time.Time // since when there is enough to sweep
	after time.Time // a failed sweep is not tried again before this time

	prods int       // how often Pebble is still asked to rewrite blob files
	prod  time.Time // when Pebble is asked next
}

// step sweeps if it is time to.
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

// rewrite makes Pebble rewrite blob files with many deleted values. Pebble leaves young files alone, and looks for
// others only after a flush or a compaction. For this reason rewrite flushes when the files are old enough.
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

// sweep compacts the parts of the keys with many deletions.
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

// flush writes memory tables to disk: only then a compaction can apply the deletions.
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

// keyRange is a range of keys, both ends included.
type keyRange struct{ from, to []byte }

// parts returns the ranges of keys that are worth compacting, each with about sweepSlice bytes of tables.
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

// worth reports whether enough of a range was deleted, or whether that is unknown.
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
