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
	closed bool
	err    error // of freeing memory
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
	if have := p.free[n]; len(have) > 0 {
		b := have[len(have)-1]
		p.free[n] = have[:len(have)-1]
		p.kept -= n
		return b, nil
	}
	b, err := p.device.Alloc(n)
	if err != nil && p.kept > 0 {
		p.drop()
		b, err = p.device.Alloc(n)
	}
	return b, err
}

// put keeps the memory for later, or frees it. A nil buffer is ignored.
func (p *pool) put(b device.Buffer) {
	if b == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
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

// close frees what is kept. Memory that comes back later is freed at once.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.drop()
	return p.err
}

// sizes describes a file that has another size than its table says.
func sizes(got, want int64) string {
	return fmt.Sprintf("the file has %d bytes, and its index is of a file with %d bytes", got, want)
}
