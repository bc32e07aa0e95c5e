// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/report"
)

// deliver ends a chunk that was read in place, or sends a slot's content off;
// where the transfer verifies, only after its bytes were summed, unless the
// device does that.
func (e *Engine) deliver(t *Transfer, c plan.Chunk, data []byte, s *slot) {
	sum := t.sumOf(c, s)
	if t.proof != nil && !c.Summed && sum == nil {
		if err := t.check(c, data); err != nil {
			e.sched.failed(t, err)
			return
		}
	}
	switch {
	case c.Extra:
		e.sched.done(t, 0)
	case c.Weave != nil:
		e.deliverWoven(t, c, data, s)
	case s == nil:
		t.placePeers(c)
		t.ready.landed(c)
		e.sched.done(t, c.Len)
	default:
		e.sendAll(t, c, data, s, sum, func() error { return t.port.queue.CopyIn(c.Dst, data) })
	}
}

// refused sends a chunk the other way after its file declined a direct read.
func (e *Engine) refused(t *Transfer, c plan.Chunk) {
	f := t.req.Files[c.File]
	if t.req.Route == report.RouteDirect {
		_, why := f.Direct()
		e.sched.failed(t, errDirect(f, why))
		return
	}
	c.Verdict = plan.Verdict{Way: plan.ViaFill}
	if err := e.ensure(plan.ViaFill, t); err != nil {
		e.sched.failed(t, err)
		return
	}
	e.sched.requeue(t, c)
}

// sendAll lets copies queue the copies of data, which lies in s, queues those to
// the peers and, where sum is not nil, the summing of what has arrived. When it
// fails, none of that is under way.
func (e *Engine) sendAll(t *Transfer, c plan.Chunk, data []byte, s *slot, sum device.Sum, copies func() error) {
	m, err := s.markFor(t.port)
	if err == nil {
		err = copies()
	}
	if err != nil {
		e.sched.failed(t, copyError(t, c, err))
		return
	}
	if err = m.Record(); err != nil {
		// The copy is queued and cannot be waited for by itself; the
		// destination is the caller's again only when all is done.
		derr := t.port.queue.Drain()
		e.sched.failed(t, copyError(t, c, errors.Join(err, derr)))
		return
	}
	if err = t.startSum(sum, m, c); err != nil {
		sum = nil // it is not under way
	} else {
		err = t.sendPeers(c, data, s, m)
	}
	if err != nil {
		// What is queued still reads the slot.
		err = errors.Join(err, m.Wait(), waitSum(sum), s.settlePeers(), t.port.queue.Drain())
		e.sched.failed(t, copyError(t, c, err))
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

// settleSlot waits until the slot's copy, and its sum, have been done and counts it.
func (e *Engine) settleSlot(s *slot) {
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
	e.release(s, start, errors.Join(err, sumErr, s.settlePeers()))
}

// release counts a slot's copy as done and frees the slot; what the device has
// summed is judged now.
func (e *Engine) release(s *slot, waited time.Time, err error) {
	t, n, sum := s.t, s.n, s.sum
	s.t, s.sum = nil, nil
	t.tally.copied(n, s.queued, waited)
	if e.opts.Poison {
		for i := range s.mem {
			s.mem[i] = 0xdb
		}
	}
	if err != nil {
		e.sched.failed(t, copyError(t, s.reading, err))
		return
	}
	if sum != nil {
		if err := t.judge(s.reading, sum.Tiles()); err != nil {
			e.sched.failed(t, err)
			return
		}
	}
	t.ready.landed(s.reading)
	e.sched.done(t, n)
}

// inPlace reports whether a chunk is read through the page cache straight into
// its place.
func (t *Transfer) inPlace(c plan.Chunk) bool {
	return t.port.mapper != nil && !c.Extra && c.Weave == nil
}

// verifies reports whether every byte of a file's chunks is summed.
func (t *Transfer) verifies(file int) bool {
	return t.proof != nil && t.proof.files[file].sums != nil
}

// deliverWoven packs what is wanted of data, the bytes of c in slot s, and
// sends it off; where memory is addressable it is packed straight into place.
func (e *Engine) deliverWoven(t *Transfer, c plan.Chunk, data []byte, s *slot) {
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
	t.tally.packed(n, start)
	if t.port.mapper != nil || n == 0 {
		t.placePeers(c)
		t.ready.landed(c)
		e.sched.done(t, n)
		return
	}
	e.sendAll(t, c, data[:n], s, nil, func() error {
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
