// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"slices"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Slots of all kinds lie apart, each is given out once, and there are no more than the layout says.
func TestSlotsLieApart(t *testing.T) {
	l := Layout{Large: Cut{3, units.MiB}, Small: Cut{5, 64 * units.KiB}, Write: Cut{2, 256 * units.KiB}}
	var p Pool
	p.SetLayout(l)
	seen, bytes := map[*byte]bool{}, int64(0)
	for kind, c := range map[Kind]Cut{Large: l.Large, Small: l.Small, Write: l.Write} {
		slots, err := p.Take(c.Slots+1, kind)
		if err != nil {
			t.Fatal(err)
		}
		if len(slots) != c.Slots {
			t.Errorf("kind %d: %d slots, expected %d", kind, len(slots), c.Slots)
		}
		for _, s := range slots {
			if int64(len(s.Mem)) != c.Size || int64(cap(s.Mem)) != c.Size || seen[&s.Mem[0]] {
				t.Errorf("kind %d: a slot of %d bytes, capacity %d, seen before: %v", kind, len(s.Mem), cap(s.Mem), seen[&s.Mem[0]])
			}
			seen[&s.Mem[0]], bytes = true, bytes+c.Size
		}
	}
	if bytes != l.Size() {
		t.Errorf("%d bytes of slots, the layout has %d", bytes, l.Size())
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// A slot has one mark for each queue, and the pool closes them.
func TestOneMarkForEachQueue(t *testing.T) {
	var p Pool
	p.SetLayout(Layout{Large: Cut{1, units.MiB}})
	slots, err := p.Take(1, Large)
	if err != nil {
		t.Fatal(err)
	}
	dev := host.Staged()
	a, errA := dev.NewQueue()
	b, errB := dev.NewQueue()
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	first, err := slots[0].MarkFor(a)
	if err != nil {
		t.Fatal(err)
	}
	again, err1 := slots[0].MarkFor(a)
	other, err2 := slots[0].MarkFor(b)
	if err1 != nil || err2 != nil || again != first || other == first {
		t.Errorf("%v %v: the same %v, another %v", err1, err2, again == first, other != first)
	}
	if slots[0].Ensure(dev); !slots[0].ReadyFor(dev) || p.PinError() != nil {
		t.Errorf("not ready: %v", p.PinError())
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestPrepareCanLeaveSlots checks that slots come in the order in which they are prepared, and that those which were
// left out are prepared later.
func TestPrepareCanLeaveSlots(t *testing.T) {
	_, d := fakegpu.OpenOne(t)
	var p Pool
	p.SetLayout(Layout{Large: Cut{6, partSize}, Small: Cut{2, units.MiB}})
	slots, err := p.Take(All, Large)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 4, All} {
		p.Prepare(d, Large, n)
		p.preparing.Wait()
		for i, s := range slots {
			if s.ReadyFor(d) != (i < n) {
				t.Errorf("after Prepare of %d slots, slot %d is ready: %v", n, i, s.ReadyFor(d))
			}
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// recorder is a device that records the sizes of what it pins, and pins the first range only when first is closed.
type recorder struct {
	device.Device
	began, first chan struct{}

	mu    sync.Mutex
	sizes []int
}

func (r *recorder) Register(mem []byte) (func() error, error) {
	r.mu.Lock()
	r.sizes = append(r.sizes, len(mem)/int(units.MiB))
	n := len(r.sizes)
	r.mu.Unlock()
	if n == 1 {
		close(r.began)
		<-r.first
	}
	return func() error { return nil }, nil
}

// TestSlotsThatALoadWaitsForComeFirst prepares large slots ahead of any load. While the first of them is being pinned,
// a load needs the small slots. These come before the other large slots.
func TestSlotsThatALoadWaitsForComeFirst(t *testing.T) {
	var p Pool
	p.SetLayout(Layout{Large: Cut{3, 4 * units.MiB}, Small: Cut{2, 3 * units.MiB}})
	if err := p.Open(); err != nil {
		t.Fatal(err)
	}
	_, gpu := fakegpu.OpenOne(t)
	r := &recorder{Device: gpu, began: make(chan struct{}), first: make(chan struct{})}
	p.Prepare(r, Large, All)
	<-r.began
	p.PrepareNow(r, Small, All)
	close(r.first)
	p.preparing.Wait()
	if want := []int{4, 3, 3, 4, 4}; !slices.Equal(r.sizes, want) {
		t.Errorf("pinned ranges of %d MiB, expected %d", r.sizes, want)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}
