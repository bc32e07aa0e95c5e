// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

const (
	seatSize = mostTogether / together
	together = 3 // seats of a full batch
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

// pinnedConvoy makes a queue of device d, and returns the convoy of the queue and `size` bytes of pinned memory. The
// convoy is nil if the queue takes single copies only. The end of the test closes both.
func pinnedConvoy(t *testing.T, d device.Device, size int64) (*convoy, []byte) {
	t.Helper()
	r, err := hostmem.Map(size)
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
	v := convoyOf(q)
	t.Cleanup(func() {
		if err := errors.Join(v.close(), q.Close(), unpin(), r.Unmap()); err != nil {
			t.Error(err)
		}
	})
	return v, r.Bytes()[:size]
}

// newWaiting adds the copies of all seats to a convoy, after it has called each function of `with` for each seat. The
// first mostFlying seats go to the GPU, each as a batch of its own. The convoy holds the other seats.
func newWaiting(t *testing.T, without []string, arrange func(g *fakegpu.GPU),
	with ...func(w *waiting, i int)) *waiting {
	t.Helper()
	g := fakegpu.Build(t, fakegpu.Options{Without: without})
	d := g.Open("cuda:0")
	v, mem := pinnedConvoy(t, d, seats*seatSize)
	w := &waiting{g: g, v: v, mem: mem, dst: alloc(t, d, seats*seatSize).Ptr()}
	if w.v == nil {
		return w
	}
	arrange(g)
	g.Hold(0)
	for i := range w.all {
		part := w.mem[i*seatSize:][:seatSize]
		for k := range part[:251] {
			part[k] = byte(i + k + 1)
		}
		for n := 251; n < len(part); n *= 2 {
			copy(part[n:], part[:n])
		}
		w.all[i] = seat{convoy: w.v, copies: []device.Copy{
			{Dst: w.dst + device.Ptr(i*seatSize), Src: part[:seatSize/2]},
			{Dst: w.dst + device.Ptr(i*seatSize+seatSize/2), Src: part[seatSize/2:]}}}
		for _, f := range with {
			f(w, i)
		}
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
			want := int64(mostFlying + (seats-mostFlying+together-1)/together)
			if n := w.g.Count("batches"); n != want {
				t.Errorf("%d batches, expected %d", n, want)
			}
			w.g.CheckPinned()
		})
	}
}

// TestASeatThatCannotBeCopiedFailsAlone gives one seat of a batch a destination outside the allocation. That seat
// fails, and does not claim that nothing of it is queued. The others of the batch arrive all the same.
func TestASeatThatCannotBeCopiedFailsAlone(t *testing.T) {
	const bad = mostFlying + 1 // in the middle of the first batch of held copies
	w := newWaiting(t, nil, func(*fakegpu.GPU) {})
	w.all[bad].copies[1].Dst = w.dst + device.Ptr(len(w.mem))
	w.g.Release()
	w.checkAllBut(t, bad)
}

// TestABatchThatIsRefusedOnce refuses one copy of a batch once: all seats arrive at the second attempt.
func TestABatchThatIsRefusedOnce(t *testing.T) {
	w := newWaiting(t, nil, fakegpu.FailingCall(fakegpu.CopyToDevice, 2*mostFlying+1, fakegpu.InvalidValue))
	w.g.Release()
	w.checkAllBut(t, -1)
	if n := w.g.Count("batches"); n < mostFlying+together {
		t.Errorf("%d batches, expected %d and more: no copy was refused", n, mostFlying+together)
	}
}

// checkAllBut checks that the bytes of all seats arrive except those of the given one, which fails.
func (w *waiting) checkAllBut(t *testing.T, bad int) {
	t.Helper()
	for i := range w.all {
		err := errors.Join(w.added[i], w.all[i].Wait())
		if (err != nil) != (i == bad) {
			t.Errorf("seat %d: %v", i, err)
		}
		if err != nil {
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

// TestManyWorkersShareAConvoy lets workers add copies and wait for them at the same time: all arrive, in batches that
// are not larger than allowed.
func TestManyWorkersShareAConvoy(t *testing.T) {
	const workers, rounds, size = 8, 40, 4096
	g, d := fakegpu.OpenOne(t)
	v, pinned := pinnedConvoy(t, d, workers*size)
	dst := alloc(t, d, workers*size).Ptr()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			at := dst + device.Ptr(w*size)
			mem := pinned[w*size:][:size]
			s := seat{convoy: v}
			for round := range rounds {
				for i := range mem {
					mem[i] = byte(w*31 + round + i)
				}
				s.copies = append(s.copies[:0], device.Copy{Dst: at, Src: mem})
				if err := errors.Join(v.add(&s), s.Wait()); err != nil {
					t.Errorf("worker %d: %v", w, err)
					return
				}
				if !bytes.Equal(g.Bytes(at, size), mem) {
					t.Errorf("worker %d: other bytes arrived", w)
					return
				}
			}
		})
	}
	all.Wait()
	g.CheckIdle()
}
