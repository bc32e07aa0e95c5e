// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Store is a cache in a directory. An entry takes about 500 bytes of memory.
type Store struct {
	opts   Options
	lock   io.Closer
	files  *files
	meta   *metadata
	index  *index
	known  *knowledge
	writer *writer
	memory memory
	counts counts
	stop   chan struct{}
	swept  chan struct{} // closed when the files were compared with the index
	tasks  sync.WaitGroup
}

// counts counts what happened since the cache was opened.
type counts struct{ evicted, freed, refused, damaged, lost, abandoned atomic.Int64 }

// memory lends memory to compare and copy. The garbage collector frees what is not used.
type memory struct {
	pieces sync.Pool // of *[piece]byte
	join   *checksum.Joiner
}

func (m *memory) lend() *[piece]byte {
	if p, ok := m.pieces.Get().(*[piece]byte); ok {
		return p
	}
	return new([piece]byte)
}

func (m *memory) back(p *[piece]byte) { m.pieces.Put(p) }

// Stats returns the current numbers.
func (s *Store) Stats() Stats {
	known := s.known.now()
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	st := Stats{Capacity: s.opts.Capacity, Bytes: s.index.used, Entries: int64(len(s.index.entries)), Whole: s.index.whole,
		Pending: s.index.unsaved,
		Known:   known.total(), Evicted: s.counts.evicted.Load(), Freed: s.counts.freed.Load(),
		Refused: s.counts.refused.Load(),
		Damaged: s.counts.damaged.Load(), Lost: s.counts.lost.Load(), Abandoned: s.counts.abandoned.Load()}
	if len(s.index.pins.all) == 0 {
		return st
	}
	now := s.opts.Now()
	for _, v := range s.index.entries {
		if s.index.isPinned(v, now) {
			st.Pinned += v.allocated
		}
	}
	return st
}

// Lookup returns the entry of id, and notes that a client reads n bytes of id, whether there is an entry or not. Call
// Lookup once for each read, before Admit: the access clock of the Guard counts these bytes. The caller releases the
// entry. The second result is false if there is no entry. Some blocks of an entry may be absent; see Entry.Missing.
func (s *Store) Lookup(id object.Identity, n int64) (*Entry, bool) {
	n = allocatedOf(max(0, min(n, id.Size))) // in the unit of Capacity
	s.index.mu.Lock()
	s.index.note(id, n)
	v := s.index.take(id)
	s.index.mu.Unlock()
	return s.ready(v)
}

// Peek returns the entry of id like Lookup, but notes no read.
func (s *Store) Peek(id object.Identity) (*Entry, bool) {
	s.index.mu.Lock()
	v := s.index.take(id)
	s.index.mu.Unlock()
	return s.ready(v)
}

// ready loads the blocks of an entry, or drops the entry if they cannot be loaded.
func (s *Store) ready(v *version) (*Entry, bool) {
	if v == nil {
		return nil, false
	}
	v.mu.Lock()
	err := v.load()
	v.mu.Unlock()
	if err == nil {
		return &Entry{v: v}, true
	}
	if err == errLost || errs.Is(err, errs.Corrupt) {
		if s.drop(v) { // the sweep may have been faster
			s.counts.lost.Add(1)
		}
	}
	if err != errLost {
		s.opts.Failed(errs.Wrap("open cache entry", v.name(), err))
	}
	s.release(v)
	return nil, false
}

// release ends a use of an entry. The last user of an evicted entry removes its file. An entry without blocks is
// forgotten.
func (s *Store) release(v *version) {
	s.index.mu.Lock()
	v.refs--
	if v.refs > 0 {
		s.index.mu.Unlock()
		return
	}
	s.index.promised -= v.promise
	v.promise = 0
	if v.known && v.count == 0 && !v.named {
		s.index.forget(v)
	}
	gone := v.gone || s.index.closed
	var out []*version
	if _, dirty := s.index.dirty[v]; !dirty && !gone { // the flusher releases a dirty one once more
		out = s.index.rest(v)
	}
	s.index.mu.Unlock()
	if gone {
		out = append(out, v)
	}
	for _, v := range out {
		s.unload(v)
	}
}

// unload closes the file of an entry that nobody uses. It removes the file if the entry is gone and has no record any
// more.
func (s *Store) unload(v *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.index.mu.Lock()
	_, dirty := s.index.dirty[v]
	used := v.refs > 0 || v.rest != nil || dirty && !v.gone
	gone, erased := v.gone, v.erased
	s.index.mu.Unlock()
	if used {
		return
	}
	if v.blocks != nil && v.blocks.file != nil {
		_ = v.blocks.file.Close() // what was written is synced, or belongs to an evicted entry
	}
	v.blocks = nil
	if v.spill != "" {
		s.files.remove(v.spill)
		v.spill = ""
	}
	if gone && erased {
		s.files.unlink(v)
		s.index.mu.Lock()
		delete(s.index.byFile, v.file)
		s.index.mu.Unlock()
	}
}

// discard closes the files of entries that forget has removed from the index, unless they are in use.
func (s *Store) discard(out []*version) {
	for _, v := range out {
		s.unload(v)
	}
}

// drop evicts one entry, whoever uses it, and reports whether it was still in the index.
func (s *Store) drop(v *version) bool {
	s.index.mu.Lock()
	known := v.known
	s.index.forget(v)
	s.index.mu.Unlock()
	if known {
		s.unload(v)
	}
	return known
}

// giveWay frees space without asking the Guard, so that the database can write to a full disk. A crash may then leave
// records without files. giveWay reports whether it freed anything.
func (s *Store) giveWay() bool {
	const enough = 64 << 20
	s.index.mu.Lock()
	out := s.index.spare(enough)
	s.index.mu.Unlock()
	s.discard(out)
	return len(out) > 0
}

// Reopenable returns nil if a descriptor from Entry.Open cannot be reopened for writing, or the reason why it can.
// Without a read-only mount, root and the user of this process can reopen a client's descriptor for writing.
func (s *Store) Reopenable() error { return s.files.lent.Reopenable() }
