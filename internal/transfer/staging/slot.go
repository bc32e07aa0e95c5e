// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Slot is one staging buffer. Only the worker that owns a slot may use it.
type Slot struct {
	// Mem is the memory of the slot. The size of Mem does not change.
	Mem []byte

	kind  Kind
	part  *part
	marks map[device.Queue]device.Mark
	sums  map[device.Queue]device.Sum // nil until the first use
}

// ReadyFor reports whether the slot is prepared for copies to dev.
func (s *Slot) ReadyFor(dev device.Device) bool { return s.part.readyFor(dev) }

// Ensure allocates the pages of the slot and pins them for dev. Later calls of Ensure return at once.
func (s *Slot) Ensure(dev device.Device) { s.part.ensure(dev) }

// Pinned reports whether the memory of the slot is pinned for a device.
func (s *Slot) Pinned() bool { return s.part.tried.Load() && s.part.pinErr == nil }

// MarkFor returns the slot's mark (a completion event) on a queue, and makes it at the first call.
func (s *Slot) MarkFor(q device.Queue) (device.Mark, error) {
	if m, ok := s.marks[q]; ok {
		return m, nil
	}
	m, err := q.NewMark()
	if err != nil {
		return nil, err
	}
	s.marks[q] = m
	return m, nil
}

// SumFor returns the object that receives checksums of the slot's bytes from a device queue, and makes it at the first
// call. The queue must implement device.Summer.
func (s *Slot) SumFor(q device.Queue) (device.Sum, error) {
	if m, ok := s.sums[q]; ok {
		return m, nil
	}
	m, err := q.(device.Summer).NewSum(len(s.Mem)/checksum.MinBlock + 2)
	if err != nil {
		return nil, err
	}
	if s.sums == nil {
		s.sums = map[device.Queue]device.Sum{}
	}
	s.sums[q] = m
	return m, nil
}

// Poison overwrites the slot, so that tests detect a use of old bytes.
func (s *Slot) Poison() {
	for i := range s.Mem {
		s.Mem[i] = 0xdb
	}
}

// Kind is the purpose of a slot.
type Kind uint8

const (
	Large Kind = iota // slots for copies from the page cache
	Small             // slots for reads from storage
	Write             // slots for saves
	kinds
)

// turn allows one part at a time to be allocated, and one to be pinned.
type turn struct{ touch, pin sync.Mutex }

// rush counts the calls of PrepareNow that are at work.
type rush struct {
	mu   sync.Mutex
	n    int
	over chan struct{} // closed when n falls to 0
}

func (r *rush) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n == 1 {
		r.over = make(chan struct{})
	}
}

func (r *rush) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 {
		close(r.over)
	}
}

// wait waits until no call of PrepareNow is at work.
func (r *rush) wait() {
	for {
		r.mu.Lock()
		n, over := r.n, r.over
		r.mu.Unlock()
		if n == 0 {
			return
		}
		<-over
	}
}

// partSize is the number of bytes that are allocated and pinned at once: one large slot.
const partSize = 4 * units.MiB

// part is a range of neighbouring slots that are pinned together.
type part struct {
	mem     []byte
	turn    *turn
	mu      sync.Mutex
	touched atomic.Bool
	tried   atomic.Bool // pinning was tried; pinErr is the result
	pinErr  error
	unpin   func() error
}

// readyFor reports whether the part is prepared for dev.
func (pt *part) readyFor(dev device.Device) bool {
	return pt.tried.Load() || dev.Info().Kind == device.Host
}

// ensure allocates the pages of the part and pins them for dev. Later calls of Ensure return at once. Memory that
// cannot be pinned still works, but slower; PinError gives the reason.
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
