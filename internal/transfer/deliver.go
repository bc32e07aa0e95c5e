// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
)

// slot is a staging slot of a reading worker, and what is in it.
type slot struct {
	*staging.Slot
	// On its way to the device, or (io_uring) being read.
	t       *Load
	reading plan.Chunk
	n       int64
	mark    device.Mark
	sum     device.Sum // behind mark; nil: it was summed before, or is not verified
	also    []peerCopy // to other devices
	queued  time.Time
	lo      int64 // io_uring: file offset of the first byte
	got     int   // io_uring: bytes read so far
	pinned  bool  // io_uring: its file is kept open
}

// slotsOf makes slots of staging slots that were taken for a worker.
func slotsOf(all []*staging.Slot) []*slot {
	out := make([]*slot, len(all))
	for i, s := range all {
		out[i] = &slot{Slot: s}
	}
	return out
}

// staged is the staging slot; nil where there is none.
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

// deliver ends a chunk that was read in place, or sends a slot's content off;
// where the transfer verifies, only after its bytes were summed, unless the
// device does that.
func deliver(t *Load, c plan.Chunk, data []byte, s *slot) {
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
		send(t, c, data, s, sum, func() error { return t.port.queue.CopyIn(c.Dst, data) })
	}
}

// deliverWoven packs what is wanted of data, the bytes of c in slot s, and
// sends it off; where memory is addressable it is packed straight into place.
func deliverWoven(t *Load, c plan.Chunk, data []byte, s *slot) {
	start := time.Now()
	segs := c.Weave.Touching(c.Off, c.Off+c.Len)
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
	send(t, c, data[:n], s, nil, func() error {
		var at int64
		for dst, k := range c.Places() {
			if err := t.port.queue.CopyIn(dst, data[at:at+k]); err != nil {
				if at > 0 { // copies of this chunk are queued, and no mark is behind them
					err = errors.Join(err, t.port.queue.Drain())
				}
				return err
			}
			at += k
		}
		return nil
	})
}

// send lets copies queue the copies of data, which lies in s, queues those to
// the peers and, where sum is not nil, the summing of what has arrived. When it
// fails, none of that is under way.
func send(t *Load, c plan.Chunk, data []byte, s *slot, sum device.Sum, copies func() error) {
	m, err := s.MarkFor(t.port.queue)
	if err == nil {
		err = copies()
	}
	if err != nil {
		t.e.sched.failed(&t.task, copyError(t, c, err))
		return
	}
	if err = m.Record(); err != nil {
		// The copy is queued and cannot be waited for by itself; the
		// destination is the caller's again only when all is done.
		derr := t.port.queue.Drain()
		t.e.sched.failed(&t.task, copyError(t, c, errors.Join(err, derr)))
		return
	}
	if err = t.verify.start(sum, m, c); err != nil {
		sum = nil // it is not under way
	} else {
		s.also, err = t.fan.send(c, data, s.Slot, m, s.also)
	}
	if err != nil {
		// What is queued still reads the slot.
		err = errors.Join(err, m.Wait(), waitSum(sum), s.settleAlso(), t.port.queue.Drain())
		t.e.sched.failed(&t.task, copyError(t, c, err))
		return
	}
	s.t, s.n, s.mark, s.sum, s.queued, s.reading = t, int64(len(data)), m, sum, time.Now(), c
}

func waitSum(s device.Sum) error {
	if s == nil {
		return nil
	}
	return s.Wait()
}

// settle waits until the slot's copy, and its sum, have been done and counts it.
func settle(s *slot) {
	if s.t == nil {
		return
	}
	start := time.Now()
	sumErr := waitSum(s.sum) // it comes last, but does not tell of errors of the copy
	err := s.mark.Wait()
	if err != nil {
		// Whether the copy is done is not known from its own mark; only an
		// empty queue gives the destination back to its owner.
		err = errors.Join(err, s.t.port.queue.Drain())
	}
	release(s, start, errors.Join(err, sumErr, s.settleAlso()))
}

// release counts a slot's copy as done and frees the slot; what the device has
// summed is judged now.
func release(s *slot, waited time.Time, err error) {
	t, n, sum := s.t, s.n, s.sum
	s.t, s.sum = nil, nil
	t.tally.Copied(n, s.queued, waited)
	if t.e.opts.Poison {
		s.Poison()
	}
	if err != nil {
		t.e.sched.failed(&t.task, copyError(t, s.reading, err))
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
