// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/units"
)

const (
	// mostTogether is the most bytes of slots whose copies go as one batch. A slot is free only when its whole batch is
	// copied, so larger batches take slots from the readers. On an H200, batches of 6 MiB were as fast.
	mostTogether = 12 * units.MiB
	// mostFlying is the number of batches that a device has at once. While one is copied, the next ones wait behind it.
	// With 2, some loads on an H200 were slower by a few percent.
	mostFlying = 3
	// seatPoll is the time between two checks whether a copy has ended. A copy of 2 MiB takes 40 µs.
	seatPoll = 20 * time.Microsecond
	// From longCopy on, the time between two checks grows to slowPoll: other processes use the device, and their threads
	// need the CPU.
	longCopy = 500 * time.Microsecond
	slowPoll = 300 * time.Microsecond
)

// convoy queues the copies of several slots to one device as one batch. An H200 loses 2.7 µs between two copies, but
// nothing between the copies of a batch.
//
// As long as fewer than mostFlying batches are on their way, a copy goes at once. Otherwise the copy waits, and goes
// together with those that come meanwhile. So batches are large only while the load waits for the device.
//
// One worker at a time talks to the device, and no other worker waits for it: a worker that finds the device taken
// leaves its copies to the one that has it. When workers waited, a copy of 1 MiB took 45 µs instead of 20.
//
// The checksums of a batch also start by one call, and one mark tells their end. On an H200, the call for six slots
// takes 40 µs, and calls for each of them took 55 µs.
type convoy struct {
	queue  device.CopyBatcher
	summer device.SumBatcher // nil if the queue starts checksums one by one

	mu   sync.Mutex
	held []*seat // copies that wait, in order

	moving sync.Mutex        // taken by the worker that talks to the device; only tried, never waited for
	full   atomic.Bool       // mostFlying batches are on their way
	flying []*batch          // on their way, the oldest first; guarded by moving
	summed []*batch          // copied, with checksums on their way, the oldest first; guarded by moving
	marks  []device.Mark     // guarded by moving
	seats  []*seat           // of the batch that is being queued; guarded by moving
	copies []device.Copy     // of these seats; guarded by moving
	sums   []device.SumStart // of these seats; guarded by moving
}

// batch is several copies with one mark.
type batch struct {
	mark     device.Mark
	err      error       // valid after ended
	unqueued bool        // nothing of the batch was queued; valid after ended
	ended    atomic.Bool // the device has done the copies, or they failed

	sums   device.Mark // behind the checksums; nil if none started together
	sumErr error       // valid after proved
	proved atomic.Bool // the checksums have ended; set after ended
}

// seat is the place of a slot's copies in a convoy. A seat takes the copies of one slot after the other.
type seat struct {
	convoy *convoy
	copies []device.Copy
	sum    device.SumStart // starts after the copies; its Sum is nil if there is none
	late   error           // why the sum did not start; valid when the batch has ended
	bytes  int64
	batch  atomic.Pointer[batch] // nil while the copies are held
}

// convoyOf returns the convoy of a queue, or nil if the queue takes single copies only.
func convoyOf(q device.Queue) *convoy {
	b, ok := q.(device.CopyBatcher)
	if !ok || !b.Batches() {
		return nil
	}
	summer, _ := q.(device.SumBatcher)
	return &convoy{queue: b, summer: summer}
}

// add takes the copies of a seat. They go now, or later when any seat of the convoy is added or asked for. After an
// error none of them is queued, and the seat must not be asked for. Errors of copies that go later come from the seat.
func (v *convoy) add(s *seat) error {
	s.batch.Store(nil)
	s.bytes, s.late = 0, nil
	for _, c := range s.copies {
		s.bytes += int64(len(c.Src))
	}
	v.mu.Lock()
	v.held = append(v.held, s)
	v.mu.Unlock()
	v.move()
	if b := s.batch.Load(); b != nil && b.ended.Load() && b.unqueued {
		return b.err
	}
	return nil
}

// move notes which batches have ended, and sends held copies if there is room. If another worker is doing so, move
// leaves the work to that worker.
func (v *convoy) move() {
	for v.moving.TryLock() {
		v.advance()
		v.moving.Unlock()
		// A seat that was added meanwhile has found the lock taken.
		if v.full.Load() || !v.waiting() {
			return
		}
	}
}

func (v *convoy) waiting() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.held) > 0
}

// advance looks once at the batches on their way, and sends held copies if there is room. The caller holds moving.
func (v *convoy) advance() {
	for len(v.flying) > 0 {
		b := v.flying[0]
		done, err := b.mark.Done()
		if !done && err == nil {
			break
		}
		v.flying = v.flying[1:]
		v.end(b, err)
		if b.sums != nil {
			v.summed = append(v.summed, b)
		}
	}
	for len(v.summed) > 0 && v.prove(v.summed[0]) {
		v.summed = v.summed[1:]
	}
	for len(v.flying) < mostFlying {
		b := v.board()
		if b == nil {
			break
		}
		v.launch(b)
	}
	v.full.Store(len(v.flying) >= mostFlying)
}

// end records the result of a batch.
func (v *convoy) end(b *batch, err error) {
	b.err = v.takeBack(b.mark, err)
	b.ended.Store(true)
}

// takeBack keeps a mark for later batches. The mark of work that failed is in no known state and not used again.
func (v *convoy) takeBack(m device.Mark, err error) error {
	switch {
	case m == nil:
	case err == nil:
		v.marks = append(v.marks, m)
	default:
		err = errors.Join(err, m.Close())
	}
	return err
}

// board makes a batch of the first waiting seats, or returns nil if no seat waits.
func (v *convoy) board() *batch {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.held) == 0 {
		return nil
	}
	b := &batch{}
	v.seats, v.copies = v.seats[:0], v.copies[:0]
	n, size := 0, int64(0)
	for n < len(v.held) && (n == 0 || size+v.held[n].bytes <= mostTogether) {
		s := v.held[n]
		size += s.bytes
		v.seats, v.copies = append(v.seats, s), append(v.copies, s.copies...)
		s.batch.Store(b)
		v.held[n] = nil
		n++
	}
	if v.held = v.held[n:]; len(v.held) == 0 {
		v.held = nil
	}
	return b
}

// launch queues the copies of a batch.
func (v *convoy) launch(b *batch) {
	err := v.giveMark(b)
	if err == nil {
		if err = v.queue.CopyInAll(v.copies); err != nil && len(v.seats) > 1 {
			v.marks = append(v.marks, b.mark)
			v.launchAlone()
			return
		}
		b.unqueued = err != nil && len(v.copies) == 1
	}
	v.fly(b, v.seats, err)
}

// launchAlone queues the seats of a refused batch again, each as a batch of its own. The seats may belong to several
// loads, and only the load with the refused copy may fail. Some copies of the refused batch may be queued already. They
// write the same bytes to the same place and end before the new copies, so they do no harm.
func (v *convoy) launchAlone() {
	for i, s := range v.seats {
		b := &batch{}
		err := v.giveMark(b)
		b.unqueued = false // the refused batch may have queued copies of the seat
		if err == nil {
			err = v.queue.CopyInAll(s.copies)
		}
		s.batch.Store(b)
		v.fly(b, v.seats[i:i+1], err)
	}
}

// giveMark gives a batch a mark that is not in use. After an error nothing of the batch is queued.
func (v *convoy) giveMark(b *batch) (err error) {
	b.mark, err = v.anyMark()
	b.unqueued = err != nil
	return err
}

// anyMark returns a mark that is not in use.
func (v *convoy) anyMark() (device.Mark, error) {
	if k := len(v.marks); k > 0 {
		m := v.marks[k-1]
		v.marks = v.marks[:k-1]
		return m, nil
	}
	return v.queue.NewMark()
}

// fly marks the end of a batch of seats, whose copies were queued or failed with err.
func (v *convoy) fly(b *batch, seats []*seat, err error) {
	if err == nil {
		err = b.mark.Record()
	}
	if err != nil {
		v.end(b, err)
		return
	}
	v.startSums(b, seats)
	v.flying = append(v.flying, b)
}

// close frees the marks. No seat may have copies on their way.
func (v *convoy) close() error {
	if v == nil {
		return nil
	}
	v.move() // the copies and sums of a batch whose seats were all asked for have ended
	var all []error
	for _, m := range v.marks {
		all = append(all, m.Close())
	}
	v.marks = nil
	return errors.Join(all...)
}

// Done reports without blocking whether the copies of the seat have ended, and their error.
func (s *seat) Done() (bool, error) {
	if b := s.batch.Load(); b == nil || !b.ended.Load() {
		s.convoy.move()
	}
	if b := s.batch.Load(); b != nil && b.ended.Load() {
		return true, errors.Join(b.err, s.late)
	}
	return false, nil
}

// unqueued reports whether no copy of the seat was queued. Otherwise copies of a failed batch may still be running.
// The caller has waited for the seat.
func (s *seat) unqueued() bool { return s.batch.Load().unqueued }

// Wait waits until the copies of the seat have ended or failed, and returns their error.
func (s *seat) Wait() error { return poll(s.Done) }

// poll waits until done reports true, and returns its error.
func poll(done func() (bool, error)) error {
	pause := seatPoll
	for began := time.Now(); ; {
		if ok, err := done(); ok {
			return err
		}
		if time.Since(began) > longCopy {
			pause = min(pause*3/2, slowPoll)
		}
		nap := unix.NsecToTimespec(int64(pause))
		_ = unix.Nanosleep(&nap, nil) // an early wakeup does no harm
	}
}
