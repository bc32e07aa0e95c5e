// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
)

// pool is the staging memory: one mapping cut into large and small slots. It is
// mapped on first use, and faulted in and pinned part by part while the first
// chunks flow. Fresh memory comes at a fixed rate, however many threads ask for
// it, and drivers pin one range at a time: so one part is faulted in while the
// one before is pinned, every worker's first slot before any second one.
type pool struct {
	deal tuned

	mu     sync.Mutex
	region *hostmem.Region
	parts  []*part
	free   [slotKinds][]*slot // not yet taken
	all    []*slot
	// stats is what backing found when counted parts had been touched.
	stats   hostmem.Stats
	counted int

	preparing sync.WaitGroup
	turn      turn
	others    []*hostmem.Region // freed with the pool
	beside    []*slot           // of adopt
}

// slotKind is what a slot is for.
type slotKind uint8

const (
	largeSlot slotKind = iota // copies out of the page cache
	smallSlot                 // reads from storage
	writeSlot                 // saves
	slotKinds
)

// turn lets one part at a time be faulted in, and one be pinned.
type turn struct{ touch, pin sync.Mutex }

// partSize is the unit of faulting in and pinning, one large slot.
const partSize = 4 * units.MiB

// part is a run of slots that is pinned as one.
type part struct {
	mem     []byte
	turn    *turn
	mu      sync.Mutex
	touched atomic.Bool
	tried   atomic.Bool // pinning was tried; pinErr tells how it went
	pinErr  error
	unpin   func() error
}

// slot is one staging buffer. It belongs to one worker, which alone touches it.
type slot struct {
	mem   []byte
	kind  slotKind
	part  *part
	marks map[*port]device.Mark
	sums  map[*port]device.Sum // nil until one is needed
	// What is in it: on its way to the device, or (io_uring) being read.
	t       *Transfer
	reading plan.Chunk
	n       int64
	mark    device.Mark
	sum     device.Sum // behind mark; nil: it was summed before, or is not verified
	also    []peerCopy // to other devices
	queued  time.Time
	lo      int64 // io_uring: file offset of mem[0]
	got     int   // io_uring: bytes read so far
	pinned  bool  // io_uring: its file is kept open
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
func (p *pool) take(n int, kind slotKind) ([]*slot, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	from := &p.free[kind]
	// A worker's first slot comes from the front, where preparation begins,
	// its second from the back.
	var out []*slot
	for len(out) < n && len(*from) > 0 {
		if i := len(*from) - 1; len(out)%2 == 1 {
			out = append(out, (*from)[i])
			*from = (*from)[:i]
		} else {
			out = append(out, (*from)[0])
			*from = (*from)[1:]
		}
	}
	return out, nil
}

func (p *pool) mapSlots() error {
	r, err := hostmem.MapFor("map staging memory of the engine", "lower buffer_pool_size (--buffer-pool-size), which sets its size", p.deal.staging())
	if err != nil {
		return err
	}
	p.region = r
	if p.deal.Near != nil {
		_ = r.Prefer(p.deal.Near.ID) // from anywhere else it is slower, not wrong
	}
	mem := r.Bytes()
	mem = p.cut(mem, largeSlot, p.deal.largeSlots, p.deal.MaxTransfer)
	mem = p.cut(mem, smallSlot, p.deal.smallSlots, p.deal.block)
	p.cut(mem, writeSlot, p.deal.writeSlots, p.deal.WriteBlock)
	return nil
}

// cut makes n slots of size from mem, in parts, and returns what is left.
func (p *pool) cut(mem []byte, kind slotKind, n int, size int64) []byte {
	perPart := max(1, int(partSize/size))
	for n > 0 {
		k := min(n, perPart)
		pt := &part{mem: mem[:int64(k)*size], turn: &p.turn}
		p.parts = append(p.parts, pt)
		for i := range int64(k) {
			s := &slot{mem: pt.mem[i*size : (i+1)*size : (i+1)*size], kind: kind, part: pt, marks: map[*port]device.Mark{}}
			p.all = append(p.all, s)
			p.free[kind] = append(p.free[kind], s)
		}
		mem = mem[len(pt.mem):]
		n -= k
	}
	return mem
}

// prepare starts to fault in and pin the parts of slots of that kind for dev in
// the background, in order.
func (p *pool) prepare(dev device.Device, kind slotKind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var todo []*part
	for _, s := range p.all {
		if s.kind == kind && !s.part.readyFor(dev) && (len(todo) == 0 || todo[len(todo)-1] != s.part) {
			todo = append(todo, s.part)
		}
	}
	if len(todo) > 0 {
		p.preparing.Go(func() {
			for _, pt := range todo {
				pt.ensure(dev)
			}
		})
	}
}

// readyFor reports whether nothing is left to do for dev.
func (pt *part) readyFor(dev device.Device) bool {
	return pt.tried.Load() || dev.Info().Kind == device.Host
}

// ensure faults the part in and pins it for dev; later calls return at once.
// Memory that cannot be pinned still works, slower; pinError tells why.
func (pt *part) ensure(dev device.Device) {
	if pt.tried.Load() {
		return
	}
	pt.mu.Lock()
	defer pt.mu.Unlock()
	if !pt.touched.Load() {
		pt.turn.touch.Lock()
		hostmem.Touch(pt.mem, 2)
		pt.turn.touch.Unlock()
		pt.touched.Store(true)
	}
	if pt.readyFor(dev) {
		return
	}
	pt.turn.pin.Lock()
	pt.unpin, pt.pinErr = dev.Register(pt.mem)
	pt.turn.pin.Unlock()
	pt.tried.Store(true)
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

// adopt cuts r into n slots beside those of the pool, freed with it.
func (p *pool) adopt(r *hostmem.Region, n int, size int64) []*slot {
	p.keep(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	// In a pool of their own: prepare looks only for slots of reads.
	own := &pool{deal: p.deal}
	own.cut(r.Bytes(), writeSlot, n, size)
	slots := own.all
	for _, pt := range own.parts {
		pt.turn = &p.turn
	}
	p.parts, p.beside = append(p.parts, own.parts...), append(p.beside, slots...)
	return slots
}

// keep frees r with the pool.
func (p *pool) keep(r *hostmem.Region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.others = append(p.others, r)
}

// close unpins and unmaps; no slot is in use any more.
func (p *pool) close() error {
	p.preparing.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []error
	for _, s := range append(p.all, p.beside...) {
		for _, m := range s.marks {
			all = append(all, m.Close())
		}
		for _, m := range s.sums {
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
	for _, r := range p.others {
		all = append(all, r.Unmap())
	}
	p.others = nil
	p.region, p.parts, p.all, p.free = nil, nil, nil, [slotKinds][]*slot{}
	return errors.Join(all...)
}
