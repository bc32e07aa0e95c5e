// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
)

const (
	seatSize = 64 * units.KiB
	seats    = 10
)

// waiting is a convoy with some seats, each with a copy of its own bytes, on a GPU that copies nothing yet.
type waiting struct {
	g     *fakegpu.GPU
	v     *convoy
	all   [seats]seat
	mem   []byte
	dst   device.Ptr
	added [seats]error
}

// newWaiting adds the copies of all seats: as many batches of one as may fly, and the others are held.
func newWaiting(t *testing.T, without []string, arrange func(g *fakegpu.GPU)) *waiting {
	t.Helper()
	g := fakegpu.Build(t, fakegpu.Options{Without: without})
	d := g.Open("cuda:0")
	r, err := hostmem.Map(seats * seatSize)
	if err != nil {
		t.Fatal(err)
	}
	unpin, err := d.Register(r.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	w := &waiting{g: g, v: convoyOf(q), mem: r.Bytes()[:seats*seatSize], dst: alloc(t, d, seats*seatSize).Ptr()}
	t.Cleanup(func() {
		if err := errors.Join(w.v.close(), q.Close(), unpin(), r.Unmap()); err != nil {
			t.Error(err)
		}
	})
	if w.v == nil {
		return w
	}
	arrange(g)
	g.Hold(0)
	for i := range w.all {
		part := w.mem[i*seatSize:][:seatSize]
		for k := range part {
			part[k] = byte(i + k + 1)
		}
		w.all[i] = seat{convoy: w.v, copies: []device.Copy{
			{Dst: w.dst + device.Ptr(i*seatSize), Src: part[:seatSize/2]},
			{Dst: w.dst + device.Ptr(i*seatSize+seatSize/2), Src: part[seatSize/2:]}}}
		w.added[i] = w.v.add(&w.all[i])
	}
	return w
}

// TestHeldCopiesGoTogether checks with each kind of driver that copies which wait go in batches, and arrive.
func TestHeldCopiesGoTogether(t *testing.T) {
	for kind, without := range fakegpu.OldDrivers() {
		t.Run(kind, func(t *testing.T) {
			w := newWaiting(t, without, func(*fakegpu.GPU) {})
			if kind == "single copies" {
				if w.v != nil {
					t.Fatal("a convoy without batches")
				}
				return
			}
			if n := w.g.Count("copies_in_flight"); n != 2*mostFlying {
				t.Errorf("%d copies are in flight, expected %d of %d seats", n, 2*mostFlying, mostFlying)
			}
			if done, err := w.all[seats-1].Done(); done || err != nil {
				t.Errorf("a held copy is done: %v, %v", done, err)
			}
			w.g.Release()
			for i := range w.all {
				if err := errors.Join(w.added[i], w.all[i].Wait()); err != nil {
					t.Errorf("seat %d: %v", i, err)
				}
			}
			if got := w.g.Bytes(w.dst, int64(len(w.mem))); !bytes.Equal(got, w.mem) {
				t.Error("other bytes arrived")
			}
			// The first batches have one seat each, and the others as many as go together.
			want := int64(mostFlying + (seats-mostFlying+mostTogether-1)/mostTogether)
			if n := w.g.Count("batches"); n != want {
				t.Errorf("%d batches, expected %d", n, want)
			}
			w.g.CheckPinned()
		})
	}
}

// TestABatchThatCannotBeQueued refuses one copy of a batch: its seats fail, all others arrive, and no seat claims that
// nothing is queued, because the copies before the refused one are.
func TestABatchThatCannotBeQueued(t *testing.T) {
	w := newWaiting(t, nil, fakegpu.FailingCall(fakegpu.CopyToDevice, 2*mostFlying+1, fakegpu.InvalidValue))
	w.g.Release()
	failed := 0
	for i := range w.all {
		err := errors.Join(w.added[i], w.all[i].Wait())
		if in := i >= mostFlying && i < mostFlying+mostTogether; (err != nil) != in {
			t.Errorf("seat %d: %v", i, err)
		}
		if err != nil {
			failed++
			if w.all[i].unqueued() {
				t.Errorf("seat %d: nothing is queued", i)
			}
			continue
		}
		at := w.dst + device.Ptr(i*seatSize)
		if !bytes.Equal(w.g.Bytes(at, seatSize), w.mem[i*seatSize:][:seatSize]) {
			t.Errorf("seat %d: other bytes arrived", i)
		}
	}
	if failed != mostTogether {
		t.Errorf("%d seats failed, expected %d", failed, mostTogether)
	}
}

// TestAMarkThatCannotBeMade fails the seat that needs the mark at once, and no other.
func TestAMarkThatCannotBeMade(t *testing.T) {
	w := newWaiting(t, nil, fakegpu.FailingCall("cuEventCreate", 1, fakegpu.OutOfMemory))
	w.g.Release()
	for i := range w.all {
		if (w.added[i] != nil) != (i == 1) {
			t.Errorf("seat %d: %v", i, w.added[i])
		}
		if w.added[i] == nil {
			if err := w.all[i].Wait(); err != nil {
				t.Errorf("seat %d: %v", i, err)
			}
		}
	}
}
