// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"container/list"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
)

// version is one entry of the cache, which its users share.
type version struct {
	s      *Store
	id     object.Identity // changed only while a draft becomes an entry
	file   uint64
	inline bool

	// The following fields are guarded by Store.mu.
	refs       int
	known      bool // the index has it
	gone       bool // it was evicted or dropped, and never comes back
	queue      *list.List
	place      *list.Element // in queue; nil if not known
	rest       *list.Element // in Store.idle; nil while in use or closed
	read       Moment
	touched    bool // read is not in the database yet
	admitted   time.Time
	superseded bool
	foreign    bool
	proof      string
	promise    int64 // bytes of room that Admit found for it and that are not used yet
	count      int64 // present blocks, and those that are being written
	bytes      int64 // content bytes in them
	allocated  int64
	unsaved    int64  // content bytes that are not durable
	pinEpoch   uint64 // of pins, when pin was looked up
	pin        time.Time
	pinned     bool
	named      bool // the database has a record
	erased     bool // the database has no record any more, and never gets one: the file may go

	// mu guards blocks and what is below it. It may be held while Store.mu is taken, never the other way round.
	mu     sync.Mutex
	done   *sync.Cond // signals the end of a write
	blocks *blocks    // nil if not loaded
	spill  string     // path of the copy of inline content; empty if there is none
}

// blocks is the state of an entry's blocks, which is loaded when somebody uses the entry.
type blocks struct {
	file    vfs.File // nil if inline, or if no block was ever put
	fd      int      // -1 where the file has no descriptor
	data    []byte   // inline content; nil if absent
	have    bitmap   // present
	count   int64    // blocks in have
	pending bitmap   // present, but not in the database yet
	seen    bitmap   // compared with its sum while the file is open
	writing bitmap
	rewrite bitmap // chunks that have lost a block since they were written to the database
	sums    []uint64
}

// bitmap is a set of blocks.
type bitmap []uint64

func newBitmap(n int64) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) has(i int64) bool { return b[i>>6]>>(uint(i)&63)&1 != 0 }

func (b bitmap) set(i int64) { b[i>>6] |= 1 << (uint(i) & 63) }

func (b bitmap) clear(i int64) { b[i>>6] &^= 1 << (uint(i) & 63) }

func (b bitmap) any() bool {
	for _, w := range b {
		if w != 0 {
			return true
		}
	}
	return false
}

func newVersion(s *Store, id object.Identity) *version {
	v := &version{s: s, id: id, inline: id.Size <= s.opts.Inline}
	v.done = sync.NewCond(&v.mu)
	return v
}

// size returns the number of bytes of block i.
func (v *version) size(i int64) int64 { return min(object.SumBlock, v.id.Size-i*object.SumBlock) }

// all returns the number of blocks of the content.
func (v *version) all() int64 { return blocksOf(v.id.Size) }

// empty returns the state of an entry without blocks.
func (v *version) empty() *blocks {
	n := v.all()
	return &blocks{fd: -1, have: newBitmap(n), pending: newBitmap(n), seen: newBitmap(n), writing: newBitmap(n),
		rewrite: newBitmap((n + chunkBlocks - 1) / chunkBlocks), sums: make([]uint64, n)}
}

// name is the key of the content, for messages.
func (v *version) name() string { return v.id.Key }
