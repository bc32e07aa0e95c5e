// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// syncers is the number of files that are synced at once. The file system joins their commits.
const syncers = 8

// writer makes the changes of entries durable: their data first, and their records after it.
type writer struct {
	s      *Store
	wake   chan struct{} // there is enough to do
	evicts chan struct{} // there are evicted entries

	// mu is held while records of entries are written, so that the last writer is right. It is taken before any
	// version.mu and index.mu.
	mu sync.Mutex
}

func newWriter(s *Store) *writer {
	return &writer{s: s, wake: make(chan struct{}, 1), evicts: make(chan struct{}, 1)}
}

// Flush makes all blocks durable that are present now.
func (s *Store) Flush(ctx context.Context) error { return s.writer.flush(ctx, nil, false) }

// changed lets the flusher write an entry.
func (w *writer) changed(v *version) {
	w.s.index.mu.Lock()
	if v.known {
		w.s.index.dirty[v] = struct{}{}
	}
	enough := w.s.index.unsaved >= w.s.opts.FlushBytes
	w.s.index.mu.Unlock()
	if enough {
		select {
		case w.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// run flushes by bytes and by time until the cache is closed.
func (w *writer) run() {
	var tick <-chan time.Time
	if w.s.opts.FlushEvery > 0 {
		t := time.NewTicker(w.s.opts.FlushEvery)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-w.s.stop:
			return
		case <-w.evicts:
			w.report(w.erase())
			continue
		case <-w.wake:
		case <-tick:
		}
		w.report(w.flush(context.Background(), nil, true))
	}
}

// report tells of an error of background work.
func (w *writer) report(err error) {
	if err != nil {
		w.s.opts.Failed(err)
	}
}

// erase removes the records of evicted entries durably, and then their files. So an entry without a file is never left,
// whenever the process is killed.
func (w *writer) erase() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.eraseNow("evict")
}

// eraseNow does the work of erase. The caller holds writer.mu, so that nobody else writes records.
func (w *writer) eraseNow(op string) error {
	w.s.index.mu.Lock()
	gone := slices.Clip(w.s.index.doomed)
	named := slices.ContainsFunc(gone, func(d doomed) bool { return d.v == nil || d.v.named })
	var sets []pair
	if named {
		sets = append(sets, w.s.index.policy(w.s.known.now()))
	}
	w.s.index.mu.Unlock()
	if named {
		if err := w.s.meta.commit(op, sets, gone, false); err != nil {
			return err
		}
	}
	w.s.index.mu.Lock()
	w.s.index.doomed = w.s.index.doomed[len(gone):] // only the holder of writer.mu takes from it
	for _, d := range gone {
		if d.v != nil {
			d.v.erased = true
		}
	}
	w.s.index.mu.Unlock()
	for _, d := range gone {
		if d.v != nil {
			w.s.unload(d.v)
		}
	}
	return nil
}

// save is what a flush writes about one entry.
type save struct {
	v    *version
	what bitmap // blocks that the flush makes durable
	sets []pair
}

// flush removes evicted entries, syncs the data of changed entries, then the names of their files, and then writes
// their records durably. If only is not nil, only that entry is written. If lazy is true, read times need not be
// durable.
func (w *writer) flush(ctx context.Context, only *version, lazy bool) error {
	const op = "flush cache"
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return fail(op, w.s.opts.Dir, err)
	}
	if err := w.eraseNow(op); err != nil {
		return err
	}
	w.s.index.mu.Lock()
	var saves []*save
	for v := range w.s.index.dirty {
		if only == nil || v == only {
			delete(w.s.index.dirty, v)
			w.s.index.hold(v)
			saves = append(saves, &save{v: v})
		}
	}
	var sets []pair
	if only == nil {
		sets = w.s.index.takeReads()
	}
	if len(saves)+len(sets) > 0 {
		sets = append(sets, w.s.index.policy(w.s.known.now()))
	}
	w.s.index.mu.Unlock()
	defer func() {
		for _, sv := range saves {
			w.s.release(sv.v)
		}
	}()
	w.syncAll(saves)
	err := w.s.files.syncNames()
	if err == nil {
		for _, sv := range saves {
			sv.sets = sv.v.records(sv.what)
			sets = append(sets, sv.sets...)
		}
		err = w.s.meta.commit(op, sets, nil, lazy && len(saves) == 0)
	}
	if err != nil {
		w.s.index.mu.Lock()
		for _, sv := range saves {
			if sv.v.known {
				w.s.index.dirty[sv.v] = struct{}{}
			}
		}
		w.s.index.mu.Unlock()
		return err
	}
	for _, sv := range saves {
		sv.v.saved(sv.what, len(sv.sets) > 0)
	}
	return nil
}

// syncAll syncs the data of entries. Blocks whose sync fails are given up.
func (w *writer) syncAll(saves []*save) {
	slots := make(chan struct{}, syncers)
	var wg sync.WaitGroup
	for _, sv := range saves {
		slots <- struct{}{}
		wg.Go(func() {
			sv.what = sv.v.sync()
			<-slots
		})
	}
	wg.Wait()
}

// sync makes the bytes of all pending blocks durable, and returns these blocks. After an error of the disk, the kernel
// may have dropped unwritten data, so the pending blocks are given up.
func (v *version) sync() bitmap {
	v.mu.Lock()
	if err := v.load(); err != nil {
		v.mu.Unlock()
		return nil // only its marks have changed, and the next user drops it
	}
	b := v.blocks
	what := slices.Clone(b.pending)
	file := b.file
	v.mu.Unlock()
	if file == nil || !what.any() {
		return what
	}
	err := file.SyncData()
	if err == nil {
		return what
	}
	v.s.opts.Failed(fail("sync", v.s.files.path(v.file), err))
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.all() {
		if what.has(i) && b.pending.has(i) {
			v.s.counts.abandoned.Add(1)
			v.clear(i)
		}
	}
	return newBitmap(v.all())
}

// clear makes a block absent. The caller holds v.mu.
func (v *version) clear(i int64) {
	b := v.blocks
	if !b.have.has(i) {
		return
	}
	v.s.index.refund(v, v.size(i), b.pending.has(i))
	b.have.clear(i)
	b.count--
	b.pending.clear(i)
	b.seen.clear(i)
	b.rewrite.set(i / chunkBlocks)
	if v.inline {
		b.data = nil
	}
}

// records returns the records of an entry in which the given blocks and all saved ones are present. The
// caller holds writer.mu.
func (v *version) records(what bitmap) []pair {
	if what == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	b := v.blocks
	r := entryRecord{id: v.id, inline: v.inline}
	var out []pair
	for c := range b.have {
		mask := b.have[c] & (^b.pending[c] | what[c])
		r.blocks += int64(bits.OnesCount64(mask))
		from := int64(c) * chunkBlocks
		if last := v.all() - 1; last >= from && last < from+chunkBlocks && mask>>(last-from)&1 != 0 {
			r.bytes -= object.SumBlock - v.size(last)
		}
		if what[c] != 0 || b.rewrite.has(int64(c)) {
			out = append(out, pair{chunkKey(v.file, int64(c)), encodeChunk(mask, b.sums[from:min(from+chunkBlocks, v.all())])})
		}
	}
	r.bytes += r.blocks * object.SumBlock
	r.allocated = allocatedOf(r.bytes)
	if v.inline && len(what) > 0 && what.has(0) && b.have.has(0) {
		out = append(out, pair{numberKey(kindContent, v.file), b.data})
	}
	v.s.index.mu.Lock()
	r.superseded, r.foreign, r.proof = v.superseded, v.foreign, v.proof
	r.admitted, r.read = v.admitted, v.read
	gone := v.gone || !v.known
	v.s.index.mu.Unlock()
	if gone || v.file == 0 {
		return nil
	}
	return append(out, pair{numberKey(kindEntry, v.file), r.encode()})
}

// saved notes that blocks are in the database. named is true if there is a record of the entry now.
func (v *version) saved(what bitmap, named bool) {
	if what == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var n int64
	for i := range v.all() {
		if what.has(i) && v.blocks.pending.has(i) {
			v.blocks.pending.clear(i)
			n += v.size(i)
		}
	}
	clear(v.blocks.rewrite)
	v.s.index.mu.Lock()
	v.s.index.unsave(v, -n)
	v.named = v.named || named
	v.s.index.mu.Unlock()
}

// damage drops a block durably because it does not match its sum or cannot be read.
func (v *version) damage(block int64, sum uint64) {
	s := v.s
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	v.mu.Lock()
	b := v.blocks
	if b == nil || !b.have.has(block) || b.sums[block] != sum || b.seen.has(block) {
		v.mu.Unlock()
		return // somebody else has dropped it, and it may be right again
	}
	v.clear(block)
	v.mu.Unlock()
	s.counts.damaged.Add(1)
	s.index.mu.Lock()
	v.proof = ""
	s.index.mu.Unlock()
	none := newBitmap(v.all())
	sets := v.records(none)
	if sets == nil {
		return
	}
	if err := s.meta.commit("drop damaged block", sets, nil, false); err != nil {
		s.opts.Failed(err)
		s.writer.changed(v)
		return
	}
	v.saved(none, true)
}
