// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/exchange"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
)

// leastFills is the smallest number of blocks that a load reads at once into the shared memory. While one block is
// copied there, the disk reads another.
const leastFills = 2

// fillsForDepth says how many times as many reads all loads of a file together have in flight as one load alone. A load
// alone copies to the device while it reads. A thread that fills a block of shared memory copies between two of its
// reads, and then reads nothing. With eight loads to an H200, a virtual disk delivered 4.5 GB/s if all loads together
// had 16 reads in flight, and 5.0 GB/s with 32. With 16 reads in each load, it delivered less.
const fillsForDepth = 2

// fillsAtOnce returns how many blocks this load may read at once into the shared memory. The loads of the file share
// the number evenly.
func (x *sharing) fillsAtOnce(depth int) int {
	n := 1
	if ex := x.trade.joined.Load(); ex != nil {
		n = max(n, ex.Loads())
	}
	return max(leastFills, (fillsForDepth*depth+n-1)/n)
}

// sharesMemory reports whether this load shares memory with other loads of a chunk's file, and the chunk may be read
// into that memory. A worker may then wait for the other loads before it reads the chunk.
func (t *Load) sharesMemory(c *plan.Chunk) bool {
	return len(t.shared) > 0 && t.shared[c.File] != nil && !c.Extra && c.Weave == nil &&
		t.shared[c.File].trade.joined.Load() != nil
}

// isFilling reports whether a worker that takes the chunk would wait. This is so if the chunk's block is not in the
// shared memory, and the load is already reading as many blocks as it may read at once.
func (t *Load) isFilling(c *plan.Chunk) bool {
	if !t.sharesMemory(c) {
		return false
	}
	x := t.shared[c.File]
	ex := x.trade.joined.Load()
	return ex != nil && !ex.Has(c.Off/exchange.Block) &&
		x.trade.filling.full(func() int { return x.fillsAtOnce(t.e.opts.QueueDepth) })
}

// fillBlock reads a block past the page cache into p, the block's place in the shared memory. It reads the block in
// pieces into a small buffer, and copies each piece to p. A read straight into p would be slower, because the shared
// memory often has no huge pages and does not fit into a CPU cache.
func fillBlock(t *Load, x *sharing, block int64, p []byte) error {
	most := func() int { return x.fillsAtOnce(t.e.opts.QueueDepth) }
	x.trade.filling.take(most)
	defer x.trade.filling.give(most)
	if t.e.sched.hasFailed(&t.task) {
		return context.Canceled // nobody sees it: the load has an error already
	}
	scratch := t.e.scratch.take(t.e.opts.block)
	defer t.e.scratch.give(scratch)
	off, n := x.blockRange(block)
	a := x.f.Align().Offset
	start := t.tally.Begin(tally.StageReadDirect)
	for at := int64(0); at < n; {
		via := scratch
		if via == nil {
			via = p[at:]
		}
		k := min(n-at, t.e.opts.block)
		if err := x.f.ReadDirect(via[:(k+a-1)/a*a], off+at, int(k)); err != nil {
			start.Drop()
			return err
		}
		if scratch != nil {
			copy(p[at:at+k], via)
		}
		at += k
	}
	took := start.Drop()
	t.tally.Padded(n) // takeOver takes back what this load gets from the block: it may have got parts of it before
	x.trade.mu.Lock()
	defer x.trade.mu.Unlock()
	if x.trade.fills == nil {
		x.trade.fills = map[int64]time.Duration{}
	}
	x.trade.fills[block] = took
	return nil
}
