// SPDX-License-Identifier: Apache-2.0

package device

// SumTile is the largest number of bytes that one sum covers.
const SumTile = 64 << 10

// Summer is a queue whose device can compute checksums of its own memory, so that the
// CPU need not. Callers check with a type assertion. A sum is a CRC-64/NVME, as
// checksum.Of returns it.
type Summer interface {
	// NewSum makes a sum of this queue with room for so many tiles. Kind
	// Unsupported, with the reason and a fix, where the device cannot compute;
	// the first call may compile, which takes tens of milliseconds. The caller
	// closes it before the queue.
	NewSum(tiles int) (Sum, error)
}

// Sum computes checksums again and again, one range at a time, for one goroutine at a
// time. The sums of a queue run in parallel with its copies and with each other.
type Sum interface {
	// Start queues the summing of n bytes at p and returns at once. It begins
	// when m, a mark of the queue, has been passed as it is recorded now. The
	// bytes are cut into tiles: one of first bytes, then each of size, which is
	// at most SumTile, and the last of what is left. It returns kind Invalid if they do
	// not fit. After an error nothing is queued.
	Start(m Mark, p Ptr, n, first, size int64) error
	// Done reports without blocking whether Wait would return at once.
	Done() (bool, error)
	// Wait blocks until what was started has been done and returns its error;
	// the memory is not looked at any more, also after an error. What was never
	// started is done.
	Wait() error
	// Tiles are the sums of what was last started, in order, once Wait has
	// returned nil. They are overwritten by the next Start.
	Tiles() []uint64
	// Close frees the sum.
	Close() error
}
