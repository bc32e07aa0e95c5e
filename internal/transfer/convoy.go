// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
)

const (
	// mostTogether is the most slots whose copies go as one batch. A slot is free only when its whole batch is copied,
	// so larger batches take slots from the readers. On an H200, 3 and 6 were as fast, and 2 was slower.
	mostTogether = 3
	// mostFlying is the number of batches that a device has at once. While one is copied, the next ones wait behind it.
	// With 2, some loads on an H200 were slower by a few percent.
	mostFlying = 3
	// seatPoll is the time between two checks whether a copy has ended. A copy of 4 MiB takes 80 µs.
	seatPoll = 20 * time.Microsecond
)

// convoy queues the copies of several slots to one device as one batch. An H200 loses 2.7 µs between two copies, but
// nothing between the copies of a batch.
//
// As long as fewer than mostFlying batches are on their way, a copy goes at once. Otherwise the copy waits, and goes
// together with those that come meanwhile. So batches are large only while the load waits for the device.
type convoy struct {
	queue device.CopyBatcher

	mu     sync.Mutex
	held   []*seat  // copies that wait, in order
	flying []*batch // on their way, the oldest first
	marks  []device.Mark
	copies []device.Copy // of the batch that is being queued
}

// batch is several copies with one mark.
type batch struct {
	mark     device.Mark
	ended    bool  // the device has done the copies, or they failed; guarded by convoy.mu
	err      error // valid after ended
	unqueued bool  // nothing of the batch was queued; valid after ended
}

// seat is the place of a slot's copies in a convoy. A seat takes the copies of one slot after the other.
type seat struct {
	convoy *convoy
	copies []device.Copy
	batch  *batch // nil while the copies are held; guarded by convoy.mu
}

// convoyOf returns the convoy of a queue, or nil if the queue takes single copies only.
func convoyOf(q device.Queue) *convoy {
	b, ok := q.(device.CopyBatcher)
	if !ok || !b.Batches() {
		return nil
	}
	return &convoy{queue: b}
}

// add takes the copies of a seat. They go now, or later when any seat of the convoy is added or asked for. After an
// error none of them is queued, and the seat must not be asked for.
func (v *convoy) add(s *seat) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.batch = nil
	v.held = append(v.held, s)
	v.move()
	if b := s.batch; b != nil && b.ended && b.unqueued {
		return b.err
	}
	return nil
}

// move notes which batches have ended, and sends held copies if there is room. The caller holds mu.
func (v *convoy) move() {
	for len(v.flying) > 0 {
		b := v.flying[0]
		done, err := b.mark.Done()
		if !done && err == nil {
			break
		}
		v.flying = v.flying[1:]
		v.end(b, err)
	}
	for len(v.held) > 0 && len(v.flying) < mostFlying {
		v.launch(min(len(v.held), mostTogether))
	}
}

// end records the result of a batch. The mark of a batch that failed is in no known state and not used again.
func (v *convoy) end(b *batch, err error) {
	switch {
	case err == nil:
		v.marks = append(v.marks, b.mark)
	case b.mark != nil:
		err = errors.Join(err, b.mark.Close())
	}
	b.err = err
	b.ended = true
}

// launch queues one batch with the copies of the first n waiting seats.
func (v *convoy) launch(n int) {
	b := &batch{}
	v.copies = v.copies[:0]
	for _, s := range v.held[:n] {
		s.batch = b
		v.copies = append(v.copies, s.copies...)
	}
	clear(v.held[:n])
	if v.held = v.held[n:]; len(v.held) == 0 {
		v.held = nil
	}
	var err error
	if k := len(v.marks); k > 0 {
		b.mark, v.marks = v.marks[k-1], v.marks[:k-1]
	} else if b.mark, err = v.queue.NewMark(); err != nil {
		b.unqueued = true
	}
	if err == nil {
		err = v.queue.CopyInAll(v.copies)
		b.unqueued = err != nil && len(v.copies) == 1
	}
	if err == nil {
		err = b.mark.Record()
	}
	if err != nil {
		v.end(b, err)
		return
	}
	v.flying = append(v.flying, b)
}

// close frees the marks. No seat may have copies on their way.
func (v *convoy) close() error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.move() // a batch whose seats were all asked for has ended
	var all []error
	for _, m := range v.marks {
		all = append(all, m.Close())
	}
	v.marks = nil
	return errors.Join(all...)
}

// Done reports without blocking whether the copies of the seat have ended, and their error.
func (s *seat) Done() (bool, error) {
	s.convoy.mu.Lock()
	defer s.convoy.mu.Unlock()
	if s.batch == nil || !s.batch.ended {
		s.convoy.move()
	}
	if s.batch == nil || !s.batch.ended {
		return false, nil
	}
	return true, s.batch.err
}

// unqueued reports whether no copy of the seat was queued. Otherwise copies of a failed batch may still be running.
// The caller has waited for the seat.
func (s *seat) unqueued() bool { return s.batch.unqueued }

// Wait waits until the copies of the seat have ended or failed, and returns their error.
func (s *seat) Wait() error {
	pause := unix.NsecToTimespec(int64(seatPoll))
	for {
		if done, err := s.Done(); done {
			return err
		}
		_ = unix.Nanosleep(&pause, nil) // an early wakeup does no harm
	}
}
