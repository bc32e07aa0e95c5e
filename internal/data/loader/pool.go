// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
)

// smallest is the size of the smallest allocation.
const smallest = 64 << 10

// pool keeps freed device memory for later batches, because drivers allocate slowly. Sizes are rounded up by at most an
// eighth, so that batches of nearly the same size share memory.
type pool struct {
	device device.Device
	limit  int64 // the most bytes that are kept

	mu     sync.Mutex
	free   map[int64][]device.Buffer // by size
	kept   int64
	busy   []busy // memory that the caller's stream may still use, the oldest first
	used   int64  // bytes of busy
	queue  device.Queue
	closed bool
	err    error // of freeing memory
}

// busy is memory that is free when the mark is passed.
type busy struct {
	memory device.Buffer
	mark   device.Mark
}

// rounded returns the size of the allocation for n bytes.
func rounded(n int64) int64 {
	if n <= smallest {
		return smallest
	}
	step := int64(1) << (bits.Len64(uint64(n-1)) - 4) // an eighth of the power of two below n
	return (n + step - 1) / step * step
}

// get returns memory for n bytes. If the device has no memory left, get frees what the pool keeps and tries again.
func (p *pool) get(n int64) (device.Buffer, error) {
	n = rounded(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(p.limit)
	if have := p.free[n]; len(have) > 0 {
		b := have[len(have)-1]
		p.free[n] = have[:len(have)-1]
		p.kept -= n
		return b, nil
	}
	b, err := p.device.Alloc(n)
	if err != nil && p.kept+p.used > 0 {
		p.settle(0)
		p.drop()
		b, err = p.device.Alloc(n)
	}
	return b, err
}

// settle takes back memory that the caller's stream no longer uses. While more than `most` bytes are in use, settle
// waits for the stream. The caller holds mu.
func (p *pool) settle(most int64) {
	for len(p.busy) > 0 {
		first := p.busy[0]
		if done, err := first.mark.Done(); !done && err == nil && p.used <= most {
			return
		}
		p.err = errors.Join(p.err, first.mark.Wait(), first.mark.Close())
		p.busy, p.used = p.busy[1:], p.used-first.memory.Size()
		p.keep(first.memory)
	}
}

// put keeps the memory for later, or frees it. If has is set, the memory is used again only after the work that is now
// queued on the caller's stream. A nil buffer is ignored.
func (p *pool) put(b device.Buffer, stream uint64, has bool) {
	if b == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !has {
		p.keep(b)
		return
	}
	mark, err := p.after(stream)
	if err != nil { // nobody knows when the stream has passed; to free the memory waits for the device
		p.err = errors.Join(p.err, err, b.Free())
		return
	}
	p.busy, p.used = append(p.busy, busy{b, mark}), p.used+b.Size()
	if p.closed {
		p.settle(0)
		p.endQueue()
	}
}

// after returns a mark that is passed after the work that is now queued on a stream.
func (p *pool) after(stream uint64) (device.Mark, error) {
	if p.queue == nil {
		q, err := p.device.NewQueue()
		if err != nil {
			return nil, err
		}
		p.queue = q
	}
	if err := p.queue.After(stream); err != nil {
		return nil, err
	}
	m, err := p.queue.NewMark()
	if err != nil {
		return nil, err
	}
	if err := m.Record(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// keep keeps memory for later, or frees it. The caller holds mu.
func (p *pool) keep(b device.Buffer) {
	if p.closed || p.kept+b.Size() > p.limit || b.Size() != rounded(b.Size()) {
		p.err = errors.Join(p.err, b.Free())
		return
	}
	if p.free == nil {
		p.free = map[int64][]device.Buffer{}
	}
	p.free[b.Size()] = append(p.free[b.Size()], b)
	p.kept += b.Size()
}

// drop frees all memory that is kept. The caller holds mu.
func (p *pool) drop() {
	for _, all := range p.free {
		for _, b := range all {
			p.err = errors.Join(p.err, b.Free())
		}
	}
	p.free, p.kept = nil, 0
}

// close frees what is kept. Memory that comes back later is freed as soon as the caller's stream has passed.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.settle(0)
	p.drop()
	p.endQueue()
	return p.err
}

// endQueue closes the queue of marks. The caller holds mu.
func (p *pool) endQueue() {
	if p.queue != nil {
		p.err = errors.Join(p.err, p.queue.Close())
		p.queue = nil
	}
}

// sizes describes a file that has another size than its table says.
func sizes(got, want int64) string {
	return fmt.Sprintf("the file has %d bytes, and its index is of a file with %d bytes", got, want)
}
