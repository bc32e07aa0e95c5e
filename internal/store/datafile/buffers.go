// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"sync"
	"sync/atomic"
)

const (
	// largePiece is how much of a body is taken at a time: what was read is hashed and written while it is still in the
	// core's cache, and a system call for it costs nothing beside the copying. Processor seconds for a durable GiB: 0.45
	// with 256 KiB, 0.49 with 128 KiB and with 1 MiB.
	largePiece = 256 << 10
	// smallPiece is taken instead while more than manyUsers bodies are on their way, so that thousands of slow clients
	// cost thousands of small buffers. Nobody ever waits for a buffer: a slow client cannot stop a fast one.
	smallPiece = 32 << 10
	manyUsers  = 64
	// checkPiece is how much of a block is read at a time to be compared: 64 MiB take 7.4 ms of a core, of which 7.3 are
	// the copy out of the page cache. To map the file instead takes 8 ms, and a bad sector would be a signal.
	checkPiece = 256 << 10
	// mostChecks bounds the blocks that are in memory to be compared. Who has one waits for the disk and for nobody else.
	mostChecks = 32
)

// buffers lends the memory through which content passes. What nobody uses goes back to the garbage collector.
type buffers struct {
	users        atomic.Int64 // bodies that pass through memory now
	large, small sync.Pool    // of *buffer
	checks       sync.Pool    // of *[checkPiece]byte
	blocks       sync.Pool    // of *[Block]byte
}

// buffer is a piece of a body, and how many still work on it.
type buffer struct {
	b    []byte
	n    int
	refs atomic.Int32
}

// piece lends a buffer to one user.
func (b *buffers) piece() *buffer {
	pool, size := &b.large, largePiece
	if b.users.Load() > manyUsers {
		pool, size = &b.small, smallPiece
	}
	p, _ := pool.Get().(*buffer)
	if p == nil {
		p = &buffer{b: make([]byte, size)}
	}
	p.refs.Store(1)
	return p
}

// done gives a buffer back when its last user is done with it.
func (b *buffers) done(p *buffer) {
	if p.refs.Add(-1) > 0 {
		return
	}
	if len(p.b) == largePiece {
		b.large.Put(p)
	} else {
		b.small.Put(p)
	}
}

// block lends room for one block.
func (b *buffers) block() *[Block]byte {
	if p, ok := b.blocks.Get().(*[Block]byte); ok {
		return p
	}
	return new([Block]byte)
}

// check lends room to compare a block.
func (b *buffers) check() *[checkPiece]byte {
	if p, ok := b.checks.Get().(*[checkPiece]byte); ok {
		return p
	}
	return new([checkPiece]byte)
}
