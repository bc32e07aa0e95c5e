// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"slices"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/transfer/exchange"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/units"
)

// reorder moves the chunks that this load reads next to the front of a queue. All are in the window of its first chunk.
// Each process begins at another block of the window, so that it later finds the blocks of other processes in memory.
// Chunks of one block stay together, so that one thread takes all of them.
func (t *Load) reorder(queue []plan.Chunk) {
	if len(queue) < 2 || len(t.shared) == 0 || t.shared[queue[0].File] == nil {
		return
	}
	x := t.shared[queue[0].File]
	shift := x.shift.Load()
	if shift == 0 {
		return
	}
	first, blocks := queue[0], shareWindow/x.block
	place := func(c *plan.Chunk) int64 { return (c.Off%shareWindow/x.block + blocks - shift) % blocks }
	best, least := 0, place(&first)
	for i := 1; i < min(len(queue), 2*int(blocks)); i++ {
		c := &queue[i]
		if c.File != first.File || c.Off/shareWindow != first.Off/shareWindow {
			break
		}
		if p := place(c); p < least {
			best, least = i, p
		}
	}
	end := best + 1
	for end < len(queue) && sameBlock(&queue[end-1], &queue[end]) {
		end++
	}
	if best > 0 {
		run := slices.Clone(queue[best:end])
		copy(queue[len(run):end], queue[:best])
		copy(queue, run)
	}
}

// sameBlock reports whether chunk b follows chunk a in the same block of shared memory.
func sameBlock(a, b *plan.Chunk) bool {
	return a.File == b.File && a.Off+a.Len == b.Off && a.Off/exchange.Block == b.Off/exchange.Block
}

// bringSize is the largest number of bytes that are brought into the page cache at once, and then copied to the device
// at once. They fit into one staging slot of the threads that copy from the page cache.
const bringSize = 2 * units.MiB

// run returns how many of the first chunks of a queue are brought into the page cache together. If the load is alone,
// or reads into place, this is one chunk.
func (t *Load) run(queue []plan.Chunk) int {
	if len(queue) < 2 || t.port.mapper != nil || t.shared[queue[0].File] == nil || !t.shared[queue[0].File].met.Load() {
		return 1
	}
	size := min(bringSize, t.e.opts.MaxTransfer)
	n, end := 1, (queue[0].Off/size+1)*size
	for n < len(queue) {
		a, b := &queue[n-1], &queue[n]
		if a.Extra || b.Extra || a.Weave != nil || b.Weave != nil || a.File != b.File || a.Off+a.Len != b.Off ||
			a.Dst+device.Ptr(a.Len) != b.Dst || b.Off+b.Len > end {
			break
		}
		n++
	}
	return n
}
