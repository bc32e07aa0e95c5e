// SPDX-License-Identifier: Apache-2.0

package device

// SumTile is the largest size of a tile in bytes; a tile is a range of memory with one checksum.
const SumTile = 64 << 10

// Summer is a queue of a device that can compute checksums of its own memory. A Queue may implement Summer, and
// callers check with a type assertion. The checksums of a Summer are CRC-64/NVME, as checksum.Of computes them.
type Summer interface {
	// NewSum creates a Sum of this queue with room for the checksums of the given number of tiles (memory ranges).
	// NewSum fails with kind Unsupported, the reason and a fix if the device cannot compute checksums. The first call
	// of NewSum may compile a kernel, which takes tens of milliseconds. The caller closes the Sum before the queue.
	NewSum(tiles int) (Sum, error)
}

// Sum computes the checksums of one range of device memory at a time. A Sum can be used many times, by one goroutine
// at a time. Several Sums of one queue run in parallel with each other and with the queue's copies.
type Sum interface {
	// Start queues the checksum computation for the n bytes at address p and returns at once. The computation that
	// Start queues begins after the work before m, a mark of the same queue. Start divides the n bytes into tiles
	// with one checksum each. The parameter first is the size of the first tile in bytes, and the parameter size is
	// that of each later tile; the last tile may be shorter. The parameter first must not exceed the parameter size,
	// and size must not exceed SumTile. Start fails with kind Invalid if a size is wrong or there are too many tiles.
	// If Start fails, no computation is queued.
	Start(m Mark, p Ptr, n, first, size int64) error
	// Done reports without blocking whether Wait would return at once.
	Done() (bool, error)
	// Wait waits until the checksum computation has ended, and returns its error. After Wait, even with an error, the
	// device no longer reads the memory of which Start computes checksums. If Start was never called, Wait returns
	// nil at once.
	Wait() error
	// Tiles returns the checksums of the tiles of the last Start, in order. Callers call Tiles only after Wait has
	// returned nil. The next Start overwrites the returned slice.
	Tiles() []uint64
	// Close frees the resources of the Sum.
	Close() error
}

// SumBatcher is implemented by a Summer that starts several Sums by one call, which takes less time than a call for
// each.
type SumBatcher interface {
	Summer
	// StartAll starts several computations, as Sum.Start starts one. The computations begin after the work before the
	// mark `after`. StartAll places the mark `end` behind all computations. The marks `after` and `end` belong to this
	// queue. The caller waits for `end`, not for the Sums. If `end` is done without an error, the Tiles of each Sum are
	// valid. If `end` fails, the computations have ended when its Wait returns. If StartAll fails, no computation is
	// queued or running.
	StartAll(after Mark, all []SumStart, end Mark) error
}

// SumStart is a Sum with the arguments of its Start.
type SumStart struct {
	Sum            Sum
	Ptr            Ptr
	N, First, Size int64
}
