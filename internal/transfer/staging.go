// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
)

// pool is the staging memory: one mapping cut into large and small slots. It is mapped on first
// use, faulted in and pinned part by part in the background, so that the first
// chunk waits for one part and not for all of it.
type pool struct {
	deal tuned

	mu     sync.Mutex
	region *hostmem.Region
	parts  []*part
	large  []*slot // not yet taken
	small  []*slot
	all    []*slot
	// stats is what backing found when counted parts had been touched.
	stats   hostmem.Stats
	counted int

	preparing sync.WaitGroup
}

// partSize is the unit of faulting in and pinning: two large slots, one
// worker's pair, so that the workers prepare the pool side by side.
const partSize = 8 * units.MiB

// part is a run of slots that is pinned as one.
type part struct {
	mem     []byte
	mu      sync.Mutex
	touched atomic.Bool
	pinned  atomic.Bool
	pinErr  error
	unpin   func() error
}

// slot is one staging buffer. It belongs to one worker, which alone touches it.
type slot struct {
	mem   []byte
	part  *part
	marks map[*port]device.Mark
	// What was last read into it and is on its way to the device.
	t       *Transfer
	n       int64
	mark    device.Mark
	queued  time.Time
	reading chunk // io_uring only: the read in flight
	lo      int64 // io_uring only: file offset of mem[0]
	got     int   // io_uring only: bytes read so far
}

// open maps the pool, once.
func (p *pool) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.region != nil {
		return nil
	}
	return p.mapSlots()
}

// take gives n slots to a worker for the life of the engine; fewer when there
// are no more.
func (p *pool) take(n int, small bool) ([]*slot, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	from := &p.large
	if small {
		from = &p.small
	}
	n = min(n, len(*from))
	out := (*from)[:n:n]
	*from = (*from)[n:]
	return out, nil
}

func (p *pool) mapSlots() error {
	r, err := hostmem.Map(p.deal.staging())
	if err != nil {
		return err
	}
	p.region = r
	mem := r.Bytes()
	p.large, mem = p.cut(mem, p.deal.largeSlots, p.deal.MaxTransfer)
	p.small, _ = p.cut(mem, p.deal.smallSlots, p.deal.block)
	return nil
}

// cut makes n slots of size from mem, in parts, and returns what is left.
func (p *pool) cut(mem []byte, n int, size int64) ([]*slot, []byte) {
	perPart := max(1, int(partSize/size))
	var out []*slot
	for n > 0 {
		k := min(n, perPart)
		pt := &part{mem: mem[:int64(k)*size]}
		p.parts = append(p.parts, pt)
		for i := range int64(k) {
			s := &slot{mem: pt.mem[i*size : (i+1)*size : (i+1)*size], part: pt, marks: map[*port]device.Mark{}}
			p.all = append(p.all, s)
			out = append(out, s)
		}
		mem = mem[len(pt.mem):]
		n -= k
	}
	return out, mem
}

// prepare starts to fault in and pin the parts of slots of that size for dev in
// the background.
func (p *pool) prepare(dev device.Device, small bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[*part]bool{}
	for _, s := range p.all {
		if isSmall := int64(len(s.mem)) == p.deal.block; isSmall != small && p.deal.block != p.deal.MaxTransfer {
			continue
		}
		if !seen[s.part] && !s.part.readyFor(dev) {
			seen[s.part] = true
			p.preparing.Go(func() { s.part.ensure(dev) })
		}
	}
}

func (pt *part) readyFor(dev device.Device) bool {
	return pt.pinned.Load() || dev.Info().Kind == device.Host
}

// ensure faults the part in and pins it for dev; later calls return at once.
// Memory that cannot be pinned still works, slower; pinError tells why.
func (pt *part) ensure(dev device.Device) {
	if pt.pinned.Load() {
		return
	}
	pt.mu.Lock()
	defer pt.mu.Unlock()
	if !pt.touched.Load() {
		hostmem.Touch(pt.mem, 2)
		pt.touched.Store(true)
	}
	if pt.pinned.Load() || pt.pinErr != nil || dev.Info().Kind == device.Host {
		return
	}
	pt.unpin, pt.pinErr = dev.Register(pt.mem)
	pt.pinned.Store(pt.pinErr == nil)
}

// pinError returns why a part that was tried could not be pinned.
func (p *pool) pinError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pt := range p.parts {
		pt.mu.Lock()
		err := pt.pinErr
		pt.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// backing reports what the kernel gave for the pool, asked anew only when more
// of it has been faulted in since.
func (p *pool) backing() hostmem.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.region == nil {
		return hostmem.Stats{}
	}
	touched := 0
	for _, pt := range p.parts {
		if pt.touched.Load() {
			touched++
		}
	}
	if touched != p.counted {
		if s, err := p.region.Stats(); err == nil {
			p.stats, p.counted = s, touched
		}
	}
	return p.stats
}

// markFor returns the slot's mark on a port's queue, made on first use.
func (s *slot) markFor(p *port) (device.Mark, error) {
	if m, ok := s.marks[p]; ok {
		return m, nil
	}
	m, err := p.queue.NewMark()
	if err != nil {
		return nil, err
	}
	s.marks[p] = m
	return m, nil
}

// close unpins and unmaps; no slot is in use any more.
func (p *pool) close() error {
	p.preparing.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []error
	for _, s := range p.all {
		for _, m := range s.marks {
			all = append(all, m.Close())
		}
	}
	for _, pt := range p.parts {
		pt.mu.Lock()
		if pt.unpin != nil {
			all = append(all, pt.unpin())
		}
		pt.mu.Unlock()
	}
	if p.region != nil {
		all = append(all, p.region.Unmap())
	}
	p.region, p.parts, p.all, p.large, p.small = nil, nil, nil, nil, nil
	return errors.Join(all...)
}
