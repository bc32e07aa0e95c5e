// SPDX-License-Identifier: Apache-2.0

// Package staging keeps the pinned host memory that bytes pass on their way to and from devices.
package staging

import (
	"errors"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

// Pool is the staging memory of an engine: one mapping cut into large and small slots. It is
// mapped on first use, and faulted in and pinned part by part while the first
// chunks flow. Fresh memory comes at a fixed rate, however many threads ask for
// it, and drivers pin one range at a time: so one part is faulted in while the
// one before is pinned, every worker's first slot before any second one.
type Pool struct {
	layout Layout

	mu     sync.Mutex
	region *hostmem.Region
	parts  []*part
	free   [kinds][]*Slot // not yet taken
	all    []*Slot
	// stats is what backing found when counted parts had been touched.
	stats   hostmem.Stats
	counted int

	preparing sync.WaitGroup
	turn      turn
	others    []*hostmem.Region // freed with the pool
	beside    []*Slot           // of adopt
}

// Layout is how the pool is cut.
type Layout struct {
	Large, Small, Write Cut
	Near                *hostmem.Node // where the memory comes from; nil: anywhere
}

// Cut is a number of slots of one size.
type Cut struct {
	Slots int
	Size  int64
}

// Size is the memory that all slots take.
func (l Layout) Size() int64 {
	return int64(l.Large.Slots)*l.Large.Size + int64(l.Small.Slots)*l.Small.Size + int64(l.Write.Slots)*l.Write.Size
}

// SetLayout says how the pool is cut. It comes before Open.
func (p *Pool) SetLayout(l Layout) { p.layout = l }

// Open maps the pool, once.
func (p *Pool) Open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.region != nil {
		return nil
	}
	return p.mapSlots()
}

// Take gives n slots to a worker for the life of the engine; fewer when there
// are no more.
func (p *Pool) Take(n int, kind Kind) ([]*Slot, error) {
	if err := p.Open(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	from := &p.free[kind]
	// A worker's first slot comes from the front, where preparation begins,
	// its second from the back.
	var out []*Slot
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

func (p *Pool) mapSlots() error {
	r, err := hostmem.MapFor("map staging memory of the engine",
		"lower buffer_pool_size (--buffer-pool-size), which sets its size", p.layout.Size())
	if err != nil {
		return err
	}
	p.region = r
	if p.layout.Near != nil {
		_ = r.Prefer(p.layout.Near.ID) // from anywhere else it is slower, not wrong
	}
	mem := r.Bytes()
	mem = p.cut(mem, Large, p.layout.Large.Slots, p.layout.Large.Size)
	mem = p.cut(mem, Small, p.layout.Small.Slots, p.layout.Small.Size)
	p.cut(mem, Write, p.layout.Write.Slots, p.layout.Write.Size)
	return nil
}

// cut makes n slots of size from mem, in parts, and returns what is left.
func (p *Pool) cut(mem []byte, kind Kind, n int, size int64) []byte {
	if n == 0 {
		return mem
	}
	perPart := max(1, int(partSize/size))
	for n > 0 {
		k := min(n, perPart)
		pt := &part{mem: mem[:int64(k)*size], turn: &p.turn}
		p.parts = append(p.parts, pt)
		for i := range int64(k) {
			s := &Slot{Mem: pt.mem[i*size : (i+1)*size : (i+1)*size], kind: kind, part: pt,
				marks: map[device.Queue]device.Mark{}}
			p.all = append(p.all, s)
			p.free[kind] = append(p.free[kind], s)
		}
		mem = mem[len(pt.mem):]
		n -= k
	}
	return mem
}

// Prepare starts to fault in and pin the parts of slots of that kind for dev in
// the background, in order.
func (p *Pool) Prepare(dev device.Device, kind Kind) {
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

// PinError returns why a part that was tried could not be pinned.
func (p *Pool) PinError() error {
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

// Backing reports what the kernel gave for the pool, asked anew only when more
// of it has been faulted in since.
func (p *Pool) Backing() hostmem.Stats {
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

// PrepareSlots pins slots for dev in the background, in order.
func (p *Pool) PrepareSlots(dev device.Device, slots []*Slot) {
	p.preparing.Go(func() {
		for _, s := range slots {
			s.Ensure(dev)
		}
	})
}

// Adopt cuts r into n slots beside those of the pool, freed with it.
func (p *Pool) Adopt(r *hostmem.Region, n int, size int64) []*Slot {
	p.Keep(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	// In a pool of their own: prepare looks only for slots of reads.
	own := &Pool{layout: p.layout}
	own.cut(r.Bytes(), Write, n, size)
	slots := own.all
	for _, pt := range own.parts {
		pt.turn = &p.turn
	}
	p.parts, p.beside = append(p.parts, own.parts...), append(p.beside, slots...)
	return slots
}

// Keep frees r with the pool.
func (p *Pool) Keep(r *hostmem.Region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.others = append(p.others, r)
}

// Close unpins and unmaps; no slot is in use any more.
func (p *Pool) Close() error {
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
	p.region, p.parts, p.all, p.free = nil, nil, nil, [kinds][]*Slot{}
	return errors.Join(all...)
}
