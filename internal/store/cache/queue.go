// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/object"
)

const (
	blockSize = object.SumBlock
	// queued is the number of blocks that every flight may hold in memory.
	queued = 8
	// mostQueued is the largest number of blocks of one flight in memory, if the budget of the store allows it.
	mostQueued = 64
	// leftAtOnce is the number of neighbouring blocks that are left out together, so that few requests fetch them later.
	leftAtOnce = 16
)

// budget counts the blocks of all flights in memory beyond the first ones of each flight.
type budget struct {
	most int64
	used atomic.Int64
}

// take takes one block of the budget, and reports whether there was one.
func (b *budget) take() bool {
	if b.used.Add(1) <= b.most {
		return true
	}
	b.used.Add(-1)
	return false
}

// block is one block in memory. All fields are protected by flight.mu. Bytes up to have do not change any more.
type block struct {
	data    []byte // nil after the memory has been given back
	have    int
	users   int  // readers that copy from the block now
	extra   bool // the block counts in the budget
	storing bool // the block is being written to the disk
	stored  bool // the entry has the block
	left    bool // the block is not kept
	summed  bool // the checksums include the block
}

func (b *block) whole() bool { return b.data != nil && b.have == len(b.data) }

var blocks = sync.Pool{New: func() any {
	b := make([]byte, blockSize)
	return &b
}}

// queue holds the blocks of a flight that are in memory, and knows which earlier blocks were not kept. The owner of the
// queue locks it.
type queue struct {
	budget   *budget
	unsummed bool     // blocks wait for their checksums
	first    int64    // number of the first block of list
	list     []*block // in order; the last one may be incomplete
	live     int      // blocks with memory
	left     spans    // blocks that were not kept
}

// ends returns the number of the block after the last one.
func (q *queue) ends() int64 { return q.first + int64(len(q.list)) }

// at returns the block n, or nil if it is not in the queue.
func (q *queue) at(n int64) *block {
	if n < q.first || n >= q.ends() {
		return nil
	}
	return q.list[n-q.first]
}

// whole returns the block n if all of its bytes are there, or nil.
func (q *queue) whole(n int64) *block {
	if b := q.at(n); b != nil && b.whole() {
		return b
	}
	return nil
}

// isLeft reports whether block n was not kept.
func (q *queue) isLeft(n int64) bool { return q.left.after(n) != n }

// storedUpTo returns the number of the first block from n on that the entry does not have.
func (q *queue) storedUpTo(n int64) int64 {
	for n < q.first && !q.isLeft(n) {
		n++
	}
	return n
}

// grow adds a block of the given size, or returns nil if there are too many.
func (q *queue) grow(size int64) *block {
	extra := q.live >= queued
	if extra && (q.live >= mostQueued || !q.budget.take()) {
		return nil
	}
	b := &block{data: (*blocks.Get().(*[]byte))[:size], extra: extra, summed: !q.unsummed}
	q.list = append(q.list, b)
	q.live++
	return b
}

// next returns the block that is to be written to the disk next, or nil if none is complete.
func (q *queue) next() (int64, *block) {
	for i, b := range q.list {
		if !b.left && !b.stored {
			if b.whole() {
				return q.first + int64(i), b
			}
			break
		}
	}
	return 0, nil
}

// kept records that the entry has block n.
func (q *queue) kept(n int64) {
	b := q.at(n)
	b.stored = true
	q.free(b)
	q.shrink()
}

// counted records that the checksums include the block.
func (q *queue) counted(b *block) {
	b.summed = true
	q.free(b)
	q.shrink()
}

// leave gives up some blocks before the block `before`, oldest first, and returns how many.
func (q *queue) leave(before int64) (n int64) {
	for i, b := range q.list {
		at := q.first + int64(i)
		if at >= before || n == leftAtOnce {
			break
		}
		if b.left || b.stored || b.storing || b.users > 0 || !b.summed || !b.whole() {
			if n > 0 {
				break // only neighbours
			}
			continue
		}
		b.left = true
		q.left = q.left.with(at, at+1)
		q.free(b)
		n++
	}
	q.shrink()
	return n
}

// shrink removes finished blocks from the front. A reader may still use the memory of a removed block.
func (q *queue) shrink() {
	for len(q.list) > 0 && (q.list[0].stored || q.list[0].left) && q.list[0].summed {
		q.list[0] = nil
		q.list = q.list[1:]
		q.first++
	}
}

// free gives the memory of a block back when nobody needs it, and reports whether it did.
func (q *queue) free(b *block) bool {
	if !b.stored && !b.left || b.users > 0 || !b.summed || b.data == nil {
		return false
	}
	memory := b.data[:blockSize]
	blocks.Put(&memory)
	b.data = nil
	q.live--
	if b.extra {
		q.budget.used.Add(-1)
	}
	return true
}

// forgo ends the wait of blocks for their checksums.
func (q *queue) forgo() {
	q.unsummed = false
	for _, b := range q.list {
		b.summed = true
		q.free(b)
	}
	q.shrink()
}

// drop gives up all blocks.
func (q *queue) drop() {
	for _, b := range q.list {
		b.left, b.summed = true, true
		q.free(b)
	}
	q.list = nil
}
