// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"container/list"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/fence"
)

// Store is a cache in a directory. An entry takes about 500 bytes of memory.
type Store struct {
	opts  Options
	fs    vfs.FS
	data  string // the folder of the files
	lock  io.Closer
	fence *fence.Fence
	db    *pebble.DB
	ids   numbers

	namesMu  sync.Mutex
	folders  map[string]bool // folders of files that exist
	unsynced map[string]bool // directories with names that are not durable

	// life is held for reading while the database is used, and for writing while it is closed. Only mu may be
	// waited for while life is held.
	life sync.RWMutex
	over bool // guarded by life: the database is closed

	// writing is held while records of entries are written, so that the last writer is right. It is taken before any
	// version.mu and Store.mu.
	writing sync.Mutex

	mu        sync.Mutex
	closed    bool
	entries   map[object.Identity]*version
	byKey     map[keyName][]*version
	byFile    map[uint64]*version // files that must not be swept, also of drafts and of evicted entries in use
	queues    [3]list.List        // see queue numbers; the entry that was read last is in front
	idle      list.List           // loaded entries without users
	idleSums  int64               // blocks of them
	whole     int64               // entries with all blocks
	used      int64               // bytes on the disk
	promised  int64
	guard     Guard
	ghosts    ghosts
	clock     int64
	dirty     map[*version]struct{} // entries with changes that the database does not have
	touched   map[*version]struct{} // entries with read times that the database does not have
	doomed    []doomed              // evicted entries whose records are still to be removed
	unsaved   int64                 // bytes that are not durable
	pins      map[Pin]Pin           // by pin without expiry
	pinEpoch  uint64
	known     generations
	origins   map[string]string // one copy of each origin
	knownMu   sync.Mutex        // orders changes of Known records
	wake      chan struct{}     // tells the flusher that there is enough to do
	evicts    chan struct{}     // tells the flusher that there are evicted entries
	stop      chan struct{}
	tasks     sync.WaitGroup
	evicted   atomic.Int64
	freed     atomic.Int64
	refused   atomic.Int64
	damaged   atomic.Int64
	lost      atomic.Int64
	abandoned atomic.Int64
	join      *checksum.Joiner
	pieces    sync.Pool     // of *[piece]byte; the garbage collector frees what is not used
	swept     chan struct{} // closed when the files were compared with the index
}

// piece lends memory to compare and copy.
func (s *Store) piece() *[piece]byte {
	if p, ok := s.pieces.Get().(*[piece]byte); ok {
		return p
	}
	return new([piece]byte)
}

// use keeps the database open until the returned function is called.
func (s *Store) use(op, name string) (func(), error) {
	s.life.RLock()
	if s.over {
		s.life.RUnlock()
		return nil, object.Fail(op, name, object.ErrClosed, "")
	}
	return s.life.RUnlock, nil
}

// The queues in the order in which their entries are evicted.
const (
	queueSuperseded = iota
	queueForeign
	queueOrdinary
)

// keyName is a key of an origin.
type keyName struct{ origin, key string }

// Stats returns the current numbers.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Capacity: s.opts.Capacity, Bytes: s.used, Entries: int64(len(s.entries)), Whole: s.whole,
		Pending: s.unsaved,
		Known:   s.known.total(), Evicted: s.evicted.Load(), Freed: s.freed.Load(), Refused: s.refused.Load(),
		Damaged: s.damaged.Load(), Lost: s.lost.Load(), Abandoned: s.abandoned.Load()}
	if len(s.pins) == 0 {
		return st
	}
	now := s.opts.Now()
	for _, v := range s.entries {
		if s.isPinned(v, now) {
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
	s.mu.Lock()
	s.note(id, n)
	v := s.take(id)
	s.mu.Unlock()
	return s.ready(v)
}

// Peek returns the entry of id like Lookup, but notes no read.
func (s *Store) Peek(id object.Identity) (*Entry, bool) {
	s.mu.Lock()
	v := s.take(id)
	s.mu.Unlock()
	return s.ready(v)
}

// note advances the access clock, and tells the Guard of a re-read. The caller holds mu.
func (s *Store) note(id object.Identity, n int64) {
	s.clock += n
	now := Moment{Bytes: s.clock, Time: s.opts.Now()}
	if v := s.entries[id]; v != nil {
		s.guard.Reread(now.Bytes-v.read.Bytes, n)
		s.touch(v, now)
		return
	}
	if before, ok := s.ghosts.note(ghostOf(id), s.clock); ok {
		s.guard.Reread(s.clock-before, n)
	}
}

// touch records a read of an entry. The caller holds mu.
func (s *Store) touch(v *version, now Moment) {
	v.read = now
	if v.place != nil {
		v.queue.MoveToFront(v.place)
	}
	if v.named && !v.touched {
		v.touched = true
		s.touched[v] = struct{}{}
	}
}

// take adds a user to the entry of id, or returns nil if there is none. The caller holds mu.
func (s *Store) take(id object.Identity) *version {
	v := s.entries[id]
	if v == nil || s.closed {
		return nil
	}
	s.hold(v)
	return v
}

// hold adds a user to an entry. The caller holds mu.
func (s *Store) hold(v *version) {
	v.refs++
	s.unrest(v)
}

// mostSums limits the blocks of entries that stay loaded without users to 64 MiB of sums.
const mostSums = 8 << 20

// unrest removes an entry from the idle ones. The caller holds mu.
func (s *Store) unrest(v *version) {
	if v.rest != nil {
		s.idle.Remove(v.rest)
		v.rest = nil
		s.idleSums -= v.all()
	}
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
			s.lost.Add(1)
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
	s.mu.Lock()
	v.refs--
	if v.refs > 0 {
		s.mu.Unlock()
		return
	}
	s.promised -= v.promise
	v.promise = 0
	if v.known && v.count == 0 && !v.named {
		s.forget(v)
	}
	gone := v.gone || s.closed
	var out []*version
	if _, dirty := s.dirty[v]; !dirty && !gone { // the flusher releases a dirty one once more
		v.rest = s.idle.PushFront(v)
		s.idleSums += v.all()
		for s.idle.Len() > s.opts.OpenFiles || s.idleSums > mostSums {
			old := s.idle.Back().Value.(*version)
			s.unrest(old)
			out = append(out, old)
		}
	}
	s.mu.Unlock()
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
	s.mu.Lock()
	_, dirty := s.dirty[v]
	used := v.refs > 0 || v.rest != nil || dirty && !v.gone
	gone, erased := v.gone, v.erased
	s.mu.Unlock()
	if used {
		return
	}
	if v.blocks != nil && v.blocks.file != nil {
		_ = v.blocks.file.Close() // what was written is synced, or belongs to an evicted entry
	}
	v.blocks = nil
	if v.spill != "" {
		s.remove(v.spill)
		v.spill = ""
	}
	if gone && erased {
		s.unlink(v)
		s.mu.Lock()
		delete(s.byFile, v.file)
		s.mu.Unlock()
	}
}
