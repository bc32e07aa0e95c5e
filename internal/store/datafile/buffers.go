// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"sync"
	"sync/atomic"
)

const (
	// largePiece is the number of bytes of a body that are read at a time. They are hashed and written while they are
	// in the core's cache, and the system call costs little beside the copying. Processor seconds for a durable GiB:
	// 0.45 with 256 KiB, 0.49 with 128 KiB and with 1 MiB.
	largePiece = 256 << 10
	// smallPiece is used instead if more than manyUsers bodies are in progress, so that thousands of slow clients
	// cost thousands of small buffers. Nobody ever waits for a buffer: a slow client cannot stop a fast one.
	smallPiece = 32 << 10
	manyUsers  = 64
	// checkPiece is the number of bytes of a block that are read at a time for comparison. 64 MiB take 7.4 ms of a
	// core, 7.3 ms of them for the copy from the page cache. Mapping the file instead takes 8 ms, and a bad sector
	// would be a signal.
	checkPiece = 256 << 10
	// mostChecks limits the blocks in memory for comparison. A check waits only for the disk.
	mostChecks = 32
)

// buffers lends the memory for content. The garbage collector frees unused buffers.
type buffers struct {
	users        atomic.Int64 // bodies that pass through memory now
	large, small sync.Pool    // of *buffer
	checks       sync.Pool    // of *[checkPiece]byte
	blocks       sync.Pool    // of *[Block]byte
}

// buffer is a piece of a body, and the number of its users.
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

// done returns a buffer when its last user has finished.
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
