// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/exchange"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
)

// slot is a staging slot of a reading worker, with the state of its content.
type slot struct {
	*staging.Slot
	// These fields are set while the slot is copied to the device or, with io_uring, while it is read.
	t       *Load
	reading plan.Chunk
	joined  []plan.Chunk // the chunks of reading, if it is several
	n       int64
	mark    landing
	seat    seat          // mark, if the copy goes with those of other slots
	sum     device.Sum    // runs after mark; nil if the chunk is summed already or not verified
	also    []peerCopy    // copies to other devices
	lent    exchange.Lent // where the copy is read, if not in the slot
	queued  tally.Start   // of the copy or, with io_uring, of the read
	lo      int64         // io_uring: file offset of the first byte
	got     int           // io_uring: bytes read so far
	pinned  bool          // io_uring: the file is pinned open
}

// landing tells when a copy has ended.
type landing interface {
	Wait() error
	Done() (bool, error)
}

// copier queues one copy to the device.
type copier func(dst device.Ptr, data []byte) error

// slotsOf makes the slots of a worker from staging slots.
func slotsOf(all []*staging.Slot) []*slot {
	out := make([]*slot, len(all))
	for i, s := range all {
		out[i] = &slot{Slot: s}
	}
	return out
}

// staged returns the staging slot, or nil if s is nil.
func (s *slot) staged() *staging.Slot {
	if s == nil {
		return nil
	}
	return s.Slot
}

// settleAlso waits for the copies to other devices.
func (s *slot) settleAlso() error {
	err := settlePeers(s.also)
	s.also = s.also[:0]
	return err
}

// deliver settles a chunk that was read in place, or queues the copy of its slot to the device. If the transfer
// verifies, the CPU sums the bytes first, unless the device does that after the copy.
func deliver(t *Load, c plan.Chunk, data []byte, s *slot) {
	t.arrived(&c)
	sum := t.verify.sumFor(c, s.staged())
	if sum == nil && !c.Summed && t.verify.covers(c.File) {
		if err := t.verify.check(c, data); err != nil {
			t.e.sched.failed(&t.task, err)
			return
		}
	}
	switch {
	case c.Extra:
		t.e.sched.done(&t.task, 0)
	case c.Weave != nil:
		deliverWoven(t, c, data, s)
	case s == nil:
		t.fan.place(c)
		t.ready.landed(c)
		t.e.sched.done(&t.task, c.Len)
	default:
		send(t, c, data, s, sum, func(to copier) error { return t.copyIn(c.Dst, data, to) })
	}
}

// mostUnpacked is the largest number of segments in a chunk that are copied to a device one by one. To queue a copy
// takes microseconds, and to pack a chunk takes hundreds of them.
const mostUnpacked = 16

// unpacked reports whether the segments of a chunk are copied from where they are in the slot. Rows are packed, and
// peers receive packed bytes.
func (t *Load) unpacked(segs []plan.Segment) bool {
	return t.port.mapper == nil && len(t.fan.peers) == 0 && len(segs) <= mostUnpacked &&
		!slices.ContainsFunc(segs, func(s plan.Segment) bool { return s.Strided() })
}

// deliverWoven packs the wanted bytes of data, which holds chunk c in slot s, and queues their copies. If the CPU can
// address the destination, the bytes are packed into the destination. A few plain segments are not packed.
func deliverWoven(t *Load, c plan.Chunk, data []byte, s *slot) {
	segs := c.Weave.Touching(c.Off, c.Off+c.Len)
	if t.unpacked(segs) {
		sendApart(t, c, segs, data, s)
		return
	}
	start := t.tally.Begin(tally.StagePack)
	var n int64
	for i := range segs {
		x := &segs[i]
		to := data[n:]
		if m := t.port.mapper; m != nil {
			skip := x.Before(c.Off)
			to = m.Map(x.Dst+device.Ptr(skip), x.Before(c.Off+c.Len)-skip)
		}
		n += x.Pack(to, data, c.Off)
	}
	t.tally.Packed(n, start)
	if t.port.mapper != nil || n == 0 {
		t.fan.place(c)
		t.ready.landed(c)
		t.e.sched.done(&t.task, n)
		return
	}
	sendPacked(t, c, data[:n], s)
}

// sendPacked queues the copies of data, which has the wanted bytes of chunk c one after the other and is in slot s.
func sendPacked(t *Load, c plan.Chunk, data []byte, s *slot) {
	send(t, c, data, s, nil, func(to copier) error {
		var at int64
		for dst, k := range c.Places() {
			if err := t.copyIn(dst, data[at:at+k], to); err != nil {
				if at > 0 { // queued copies of this chunk have no mark behind them
					err = errors.Join(err, t.port.queue.Drain())
				}
				return err
			}
			at += k
		}
		return nil
	})
}

// sendApart queues a copy for each segment of a chunk, from where its bytes are in data.
func sendApart(t *Load, c plan.Chunk, segs []plan.Segment, data []byte, s *slot) {
	var n int64
	for i := range segs {
		n += segs[i].Before(c.Off+c.Len) - segs[i].Before(c.Off)
	}
	if n == 0 {
		t.e.sched.done(&t.task, 0)
		return
	}
	send(t, c, data[:n], s, nil, func(to copier) error {
		queued := false
		for i := range segs {
			x := &segs[i]
			lo, hi := max(x.Off, c.Off), min(x.Off+x.Len, c.Off+c.Len)
			if lo >= hi {
				continue
			}
			if err := to(x.Dst+device.Ptr(lo-x.Off), data[lo-c.Off:hi-c.Off]); err != nil {
				if queued { // queued copies of this chunk have no mark behind them
					err = errors.Join(err, t.port.queue.Drain())
				}
				return err
			}
			queued = true
		}
		return nil
	})
}

// send calls copies to queue the copies of data, which is in s. It then queues the copies to the peers and, if sum is
// not nil, the checksum on the device. After an error nothing of this is running.
func send(t *Load, c plan.Chunk, data []byte, s *slot, sum device.Sum, copies func(to copier) error) {
	if t.port.convoy != nil && len(t.fan.peers) == 0 && s.Pinned() {
		sendTogether(t, c, data, s, sum, copies)
		return
	}
	m, err := s.MarkFor(t.port.queue)
	if err == nil {
		err = copies(t.port.queue.CopyIn)
	}
	if err != nil {
		t.e.sched.failed(&t.task, copyError(t, c, err))
		return
	}
	if err = m.Record(); err != nil {
		// The queued copy has no mark to wait for. The destination is free only when the whole queue is done.
		derr := t.port.queue.Drain()
		t.e.sched.failed(&t.task, copyError(t, c, errors.Join(err, derr)))
		return
	}
	if err = t.verify.start(sum, m, c); err != nil {
		sum = nil // it is not running
	} else {
		s.also, err = t.fan.send(c, data, s.Slot, m, s.also)
	}
	if err != nil {
		// Queued work still reads the slot.
		err = errors.Join(err, m.Wait(), waitSum(sum), s.settleAlso(), t.port.queue.Drain())
		t.e.sched.failed(&t.task, copyError(t, c, err))
		return
	}
	s.t, s.n, s.mark, s.sum, s.queued, s.reading = t, int64(len(data)), m, sum, t.tally.Begin(tally.StageCopy), c
}

// sendTogether gives the copies of data, which is in s, to the device's convoy. If sum is not nil, the convoy also
// queues the checksum on the device.
func sendTogether(t *Load, c plan.Chunk, data []byte, s *slot, sum device.Sum, copies func(to copier) error) {
	s.seat.convoy, s.seat.copies, s.seat.sum = t.port.convoy, s.seat.copies[:0], t.verify.describeSum(sum, c)
	err := copies(func(dst device.Ptr, part []byte) error {
		s.seat.copies = append(s.seat.copies, device.Copy{Dst: dst, Src: part})
		return nil
	})
	queued := t.tally.Begin(tally.StageCopy)
	if err == nil {
		err = t.port.convoy.add(&s.seat)
	}
	if err != nil {
		queued.Drop()
		t.e.sched.failed(&t.task, copyError(t, c, err))
		return
	}
	s.t, s.n, s.mark, s.sum, s.queued, s.reading = t, int64(len(data)), &s.seat, sum, queued, c
}

func waitSum(s device.Sum) error {
	if s == nil {
		return nil
	}
	return s.Wait()
}

// waitSum waits for the checksum of the slot's bytes. Callers call waitSum only after the copy of the slot has ended.
func (s *slot) waitSum() error {
	if s.mark == &s.seat {
		return s.seat.WaitSum()
	}
	return waitSum(s.sum)
}

// sumDone reports without blocking whether waitSum would return at once.
func (s *slot) sumDone() (bool, error) {
	switch {
	case s.sum == nil:
		return true, nil
	case s.mark == &s.seat:
		return s.seat.SumDone()
	}
	return s.sum.Done()
}

// settle waits for the slot's copy and checksum, and counts the chunk as delivered.
func settle(s *slot) {
	if s.t == nil {
		return
	}
	start := s.t.tally.Begin(tally.StageWaitCopy)
	err := s.mark.Wait()
	sumErr := s.waitSum() // the sum ends after the copy, but does not report errors of the copy
	if err != nil && !(s.mark == &s.seat && s.seat.unqueued()) {
		// The mark does not show whether the copy is done. The destination is free only when the queue is empty, and
		// the load reads no more meanwhile.
		s.t.e.sched.stop(&s.t.task, copyError(s.t, s.reading, err))
		err = errors.Join(err, s.t.port.queue.Drain())
	}
	release(s, start, errors.Join(err, sumErr, s.settleAlso()))
}

// release counts a slot's copy as done, compares the checksums of the device, and frees the slot.
func release(s *slot, waited tally.Start, err error) {
	t, n, sum, joined, lent := s.t, s.n, s.sum, s.joined, s.lent
	s.t, s.sum, s.joined, s.lent = nil, nil, nil, exchange.Lent{}
	t.tally.Copied(n, s.queued, waited)
	if lent.Mem != nil {
		t.shared[s.reading.File].trade.lender.Load().give()
	}
	if t.e.opts.Poison {
		s.Poison()
	}
	if err != nil {
		t.e.sched.failed(&t.task, copyError(t, s.reading, err))
		t.e.sched.dropAll(&t.task, max(len(joined)-1, 0))
		return
	}
	if lent.Mem != nil && !landLent(t, s.reading, lent) {
		return
	}
	if joined != nil {
		for _, c := range joined {
			t.ready.landed(c)
		}
		t.e.sched.doneAll(&t.task, len(joined), n)
		return
	}
	if sum != nil {
		if err := t.verify.judge(s.reading, sum.Tiles()); err != nil {
			t.e.sched.failed(&t.task, err)
			return
		}
	}
	t.ready.landed(s.reading)
	t.e.sched.done(&t.task, n)
}

func copyError(t *Load, c plan.Chunk, err error) error {
	return errs.Wrap(fmt.Sprintf("copy %d bytes from offset %d of", c.Len, c.Off),
		t.req.Files[c.File].Path()+" to "+t.req.Device.Info().ID, err)
}
