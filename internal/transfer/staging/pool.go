// SPDX-License-Identifier: Apache-2.0

// Package staging manages the pinned host memory through which bytes are copied to and from devices.
package staging

import (
	"errors"
	"math"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

// Pool is the staging memory of an engine: one mapping that is split into slots. The pool is mapped at its first use,
// and its parts are allocated and pinned while the first chunks of the first transfer are read. The pool allocates one
// part while it pins the previous part; more threads would not be faster.
type Pool struct {
	layout Layout

	mu     sync.Mutex
	region *hostmem.Region
	parts  []*part
	free   [kinds][]*Slot // slots that no worker has
	all    []*Slot
	// stats is the result of Backing when counted parts had been touched.
	stats   hostmem.Stats
	counted int

	preparing sync.WaitGroup
	rush      rush
	turn      turn
	others    []*hostmem.Region // regions that are freed with the pool
	beside    []*Slot           // slots of Adopt
}

// Layout is the number and size of a pool's slots, for each kind of slot.
type Layout struct {
	Large, Small, Write Cut
	Near                *hostmem.Node // NUMA node of the memory; nil means any node
}

// Cut is a number of slots with the same size in bytes.
type Cut struct {
	Slots int
	Size  int64
}

// Size returns the total size of all slots in bytes.
func (l Layout) Size() int64 {
	return int64(l.Large.Slots)*l.Large.Size + int64(l.Small.Slots)*l.Small.Size + int64(l.Write.Slots)*l.Write.Size
}

// SetLayout sets the layout of the pool. SetLayout must be called before Open.
func (p *Pool) SetLayout(l Layout) { p.layout = l }

// Open maps the memory of the pool. Later calls of Open do nothing.
func (p *Pool) Open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.region != nil {
		return nil
	}
	return p.mapSlots()
}

// Take returns n slots for workers, which keep them for the life of the engine. The slots are in the order in which
// Prepare prepares them. If fewer than n slots are free, Take returns all free slots.
func (p *Pool) Take(n int, kind Kind) ([]*Slot, error) {
	if err := p.Open(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	from := &p.free[kind]
	n = min(n, len(*from))
	out := (*from)[:n:n]
	*from = (*from)[n:]
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
		_ = r.Prefer(p.layout.Near.ID) // memory of another node is slower, not wrong
	}
	mem := r.Bytes()
	mem = p.cut(mem, Large, p.layout.Large.Slots, p.layout.Large.Size)
	mem = p.cut(mem, Small, p.layout.Small.Slots, p.layout.Small.Size)
	p.cut(mem, Write, p.layout.Write.Slots, p.layout.Write.Size)
	return nil
}

// cut makes n slots of size bytes from mem, in parts, and returns the rest of mem.
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

// All is the number of slots for Prepare if all are meant.
const All = math.MaxInt

// Prepare allocates and pins the memory of the first n slots of the given kind for copies to dev, in the background and
// in the order of the slots. Before each part, Prepare lets calls of PrepareNow go first.
func (p *Pool) Prepare(dev device.Device, kind Kind, n int) {
	if todo := p.unready(dev, kind, n); len(todo) > 0 {
		p.preparing.Go(func() {
			for _, pt := range todo {
				p.rush.wait()
				pt.ensure(dev)
			}
		})
	}
}

// PrepareNow prepares slots as Prepare does. Slots of PrepareNow come before those of Prepare, because a load waits for
// them.
func (p *Pool) PrepareNow(dev device.Device, kind Kind, n int) {
	todo := p.unready(dev, kind, n)
	if len(todo) == 0 {
		return
	}
	p.rush.enter()
	p.preparing.Go(func() {
		defer p.rush.leave()
		for _, pt := range todo {
			pt.ensure(dev)
		}
	})
}

// unready returns the parts of the first n slots of the given kind that are not prepared for dev, in order.
func (p *Pool) unready(dev device.Device, kind Kind, n int) []*part {
	p.mu.Lock()
	defer p.mu.Unlock()
	var todo []*part
	for _, s := range p.all {
		if s.kind != kind {
			continue
		}
		if n--; n < 0 {
			break
		}
		if !s.part.readyFor(dev) && (len(todo) == 0 || todo[len(todo)-1] != s.part) {
			todo = append(todo, s.part)
		}
	}
	return todo
}

// PinError returns the error of the first part of the pool that could not be pinned, or nil.
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

// Backing returns how many bytes of the pool are in memory, and how many of them in huge pages. Backing asks the
// kernel again only if more memory was allocated since the last call.
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

// PrepareSlots allocates and pins the given slots for copies to dev, in the background and in the given order.
func (p *Pool) PrepareSlots(dev device.Device, slots []*Slot) {
	p.preparing.Go(func() {
		for _, s := range slots {
			s.Ensure(dev)
		}
	})
}

// Adopt splits the memory region r into n further slots. The parameter `size` is the size of each slot in bytes. The
// pool frees the region when the pool is closed.
func (p *Pool) Adopt(r *hostmem.Region, n int, size int64) []*Slot {
	p.Keep(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	// The slots are made in another Pool, so that Prepare does not find them.
	own := &Pool{layout: p.layout}
	own.cut(r.Bytes(), Write, n, size)
	slots := own.all
	for _, pt := range own.parts {
		pt.turn = &p.turn
	}
	p.parts, p.beside = append(p.parts, own.parts...), append(p.beside, slots...)
	return slots
}

// Keep gives the memory region r to the pool, which frees the region when the pool is closed.
func (p *Pool) Keep(r *hostmem.Region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.others = append(p.others, r)
}

// Close unpins and unmaps the memory of the pool. The caller must not call Close while a slot is in use.
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
