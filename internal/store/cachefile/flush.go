// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// syncers is the number of files that are synced at once. The file system joins their commits.
const syncers = 8

// doomed is an evicted entry whose records are still to be removed.
type doomed struct {
	file   uint64
	blocks int64
	v      *version // nil for a record that is not readable
}

// Flush makes all blocks durable that are present now.
func (s *Store) Flush(ctx context.Context) error { return s.flush(ctx, nil, false) }

// changed lets the flusher write an entry.
func (s *Store) changed(v *version) {
	s.mu.Lock()
	if v.known {
		s.dirty[v] = struct{}{}
	}
	enough := s.unsaved >= s.opts.FlushBytes
	s.mu.Unlock()
	if enough {
		select {
		case s.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// flusher flushes by bytes and by time until the cache is closed.
func (s *Store) flusher() {
	var tick <-chan time.Time
	if s.opts.FlushEvery > 0 {
		t := time.NewTicker(s.opts.FlushEvery)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-s.stop:
			return
		case <-s.evicts:
			s.report(s.erase())
			continue
		case <-s.wake:
		case <-tick:
		}
		s.report(s.flush(context.Background(), nil, true))
	}
}

// report tells of an error of background work.
func (s *Store) report(err error) {
	if err != nil {
		s.opts.Failed(err)
	}
}

// erase removes the records of evicted entries durably, and then their files. So an entry without a file is never left,
// whenever the process is killed.
func (s *Store) erase() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.eraseNow("evict")
}

// eraseNow does the work of erase. The caller holds Store.writing, so that nobody else writes records.
func (s *Store) eraseNow(op string) error {
	s.mu.Lock()
	gone := slices.Clip(s.doomed)
	named := slices.ContainsFunc(gone, func(d doomed) bool { return d.v == nil || d.v.named })
	var sets []pair
	if named {
		sets = append(sets, s.policy())
	}
	s.mu.Unlock()
	if named {
		if err := s.commit(op, sets, gone, false); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.doomed = s.doomed[len(gone):] // only the holder of writing takes from it
	for _, d := range gone {
		if d.v != nil {
			d.v.erased = true
		}
	}
	s.mu.Unlock()
	for _, d := range gone {
		if d.v != nil {
			s.unload(d.v)
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

// pair is a key and a value of the database.
type pair struct{ key, value []byte }

// flush removes evicted entries, syncs the data of changed entries, then the names of their files, and then writes their
// records durably. If only is not nil, only that entry is written. If lazy is true, read times need not be durable.
func (s *Store) flush(ctx context.Context, only *version, lazy bool) error {
	const op = "flush cache"
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := context.Cause(ctx); err != nil {
		return fail(op, s.opts.Dir, err)
	}
	if err := s.eraseNow(op); err != nil {
		return err
	}
	s.mu.Lock()
	var saves []*save
	for v := range s.dirty {
		if only == nil || v == only {
			delete(s.dirty, v)
			s.hold(v)
			saves = append(saves, &save{v: v})
		}
	}
	var sets []pair
	if only == nil {
		sets = s.takeReads()
	}
	if len(saves)+len(sets) > 0 {
		sets = append(sets, s.policy())
	}
	s.mu.Unlock()
	defer func() {
		for _, sv := range saves {
			s.release(sv.v)
		}
	}()
	s.syncAll(saves)
	err := s.syncNames()
	if err == nil {
		for _, sv := range saves {
			sv.sets = sv.v.records(sv.what)
			sets = append(sets, sv.sets...)
		}
		err = s.commit(op, sets, nil, lazy && len(saves) == 0)
	}
	if err != nil {
		s.mu.Lock()
		for _, sv := range saves {
			if sv.v.known {
				s.dirty[sv.v] = struct{}{}
			}
		}
		s.mu.Unlock()
		return err
	}
	for _, sv := range saves {
		sv.v.saved(sv.what, len(sv.sets) > 0)
	}
	return nil
}

// takeReads returns the read times that the database does not have. The caller holds mu.
func (s *Store) takeReads() []pair {
	var out []pair
	for v := range s.touched {
		v.touched = false
		out = append(out, pair{numberKey(kindRead, v.file), encodeRead(v.read)})
	}
	clear(s.touched)
	return out
}

// policy returns the record of the access clock and the Guard. The caller holds mu.
func (s *Store) policy() pair {
	var e codec.Encoder
	e.Byte(recordVersion)
	e.Int(s.clock)
	e.Word(math.Float64bits(s.guard.Usual))
	s.known.encode(&e)
	return pair{metaKey("policy"), e}
}

// syncAll syncs the data of entries. Blocks whose sync fails are given up.
func (s *Store) syncAll(saves []*save) {
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
	v.s.opts.Failed(fail("sync", v.s.path(v.file), err))
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.all() {
		if what.has(i) && b.pending.has(i) {
			v.s.abandoned.Add(1)
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
	v.s.refund(v, v.size(i), b.pending.has(i))
	b.have.clear(i)
	b.pending.clear(i)
	b.seen.clear(i)
	b.rewrite.set(i / chunkBlocks)
	if v.inline {
		b.data = nil
	}
}

// records returns the records of an entry in which the given blocks and all saved ones are present. The
// caller holds Store.writing.
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
	v.s.mu.Lock()
	r.superseded, r.foreign, r.proof = v.superseded, v.foreign, v.proof
	r.admitted, r.read = v.admitted, v.read
	gone := v.gone || !v.known
	v.s.mu.Unlock()
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
	v.s.mu.Lock()
	v.s.unsave(v, -n)
	v.named = v.named || named
	v.s.mu.Unlock()
}

// commit writes records and removes those of evicted entries. If lazy is true, they need not be durable.
func (s *Store) commit(op string, sets []pair, gone []doomed, lazy bool) error {
	if len(sets)+len(gone) == 0 {
		return nil
	}
	done, err := s.use(op, s.opts.Dir)
	if err != nil {
		return err
	}
	defer done()
	fill := func(b *pebble.Batch) error {
		for _, p := range sets {
			if err := b.Set(p.key, p.value, nil); err != nil {
				return err
			}
		}
		for _, d := range gone {
			if err := d.remove(b); err != nil {
				return err
			}
		}
		return nil
	}
	if lazy {
		s.fence.ApplyLazily(s.db, fill)
		return nil
	}
	b := s.db.NewBatch()
	if err := fill(b); err != nil {
		_ = b.Close()
		return fail(op, s.opts.Dir, err)
	}
	return s.fence.Apply(s.db, op, s.opts.Dir, b, nil)
}

// remove removes the records of an entry.
func (d doomed) remove(b *pebble.Batch) error {
	for _, kind := range []byte{kindEntry, kindRead, kindContent} {
		if err := b.Delete(numberKey(kind, d.file), nil); err != nil {
			return err
		}
	}
	chunks := (d.blocks + chunkBlocks - 1) / chunkBlocks
	if chunks > chunkBlocks {
		return b.DeleteRange(numberKey(kindSums, d.file), numberKey(kindSums, d.file+1), nil)
	}
	for c := range chunks {
		if err := b.Delete(chunkKey(d.file, c), nil); err != nil {
			return err
		}
	}
	return nil
}

// damage drops a block durably because it does not match its sum or cannot be read.
func (v *version) damage(block int64, sum uint64) {
	s := v.s
	s.writing.Lock()
	defer s.writing.Unlock()
	v.mu.Lock()
	b := v.blocks
	if b == nil || !b.have.has(block) || b.sums[block] != sum || b.seen.has(block) {
		v.mu.Unlock()
		return // somebody else has dropped it, and it may be right again
	}
	v.clear(block)
	v.mu.Unlock()
	s.damaged.Add(1)
	s.mu.Lock()
	v.proof = ""
	s.mu.Unlock()
	none := newBitmap(v.all())
	sets := v.records(none)
	if sets == nil {
		return
	}
	if err := s.commit("drop damaged block", sets, nil, false); err != nil {
		s.opts.Failed(err)
		s.changed(v)
		return
	}
	v.saved(none, true)
}
