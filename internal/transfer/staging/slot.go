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

// Slot is one staging buffer. It belongs to one worker, which alone touches it.
type Slot struct {
	// Mem is the buffer. Its size does not change.
	Mem []byte

	kind  Kind
	part  *part
	marks map[device.Queue]device.Mark
	sums  map[device.Queue]device.Sum // nil until one is needed
}

// ReadyFor reports whether nothing is left to do before the slot can be copied to dev.
func (s *Slot) ReadyFor(dev device.Device) bool { return s.part.readyFor(dev) }

// Ensure faults the slot in and pins it for dev. Later calls return at once.
func (s *Slot) Ensure(dev device.Device) { s.part.ensure(dev) }

// MarkFor returns the slot's mark on a queue, made on first use.
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

// SumFor returns the slot's sum on a queue, made on first use. The queue is a device.Summer.
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

// Poison overwrites the slot, so that tests catch bytes that are used after their time.
func (s *Slot) Poison() {
	for i := range s.Mem {
		s.Mem[i] = 0xdb
	}
}

// Kind is what a slot is for.
type Kind uint8

const (
	Large Kind = iota // copies out of the page cache
	Small             // reads from storage
	Write             // saves
	kinds
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
