// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// writer is one write in flight. With two slots, the copies for the next block
// are queued before the block at hand is written.
type writer struct {
	e     *Engine
	slots []*slot
	turn  int
}

// gathered is a block whose bytes are in memory, or on their way there.
type gathered struct {
	t *Transfer
	c plan.Chunk
	// data is the block: in slot, or in the caller's own memory and slot nil.
	data   []byte
	slot   *slot
	ports  []*port // whose marks are to be waited for
	queued time.Time
}

func (w *writer) run() {
	var ahead *gathered
	for {
		if ahead != nil && len(w.slots) == 1 {
			w.write(ahead) // there is no second slot to gather into
			ahead = nil
		}
		t, cs := w.e.sched.next(plan.ViaWrite, 1, ahead == nil)
		switch {
		case t == nil && ahead == nil:
			return
		case t == nil:
			w.write(ahead)
			ahead = nil
		default:
			g := w.gather(t, cs[0])
			if ahead != nil {
				w.write(ahead)
			}
			ahead = g
		}
	}
}

// gather brings the bytes of a block together; nil where the save has failed.
func (w *writer) gather(t *Transfer, c plan.Chunk) *gathered {
	if w.e.sched.hasFailed(t) {
		w.e.sched.drop(t)
		return nil
	}
	g := &gathered{t: t, c: c, queued: time.Now()}
	if g.data = t.save.inPlace(c); g.data != nil {
		return g
	}
	g.slot = w.slots[w.turn]
	w.turn = (w.turn + 1) % len(w.slots)
	g.data = g.slot.mem[:c.Len]
	var err error
	g.ports, err = t.save.collect(c.Off, g.slot, g.data)
	if err == nil {
		if len(g.ports) == 0 {
			t.tally.copied(c.Len, g.queued, time.Now()) // nothing is waited for
		}
		return g
	}
	// Some copies may be queued and have no mark behind them: the sources are
	// the caller's again only when the queues are empty.
	for _, p := range g.ports {
		err = errors.Join(err, p.queue.Drain())
	}
	w.e.sched.failed(t, gatherError(t, c, err))
	return nil
}

// inPlace is the block where it lies, if it can be written from there: in one
// piece of addressable memory, aligned as the file wants it.
func (sv *save) inPlace(c plan.Chunk) (data []byte) {
	ok, _ := sv.sink.Direct()
	a := sv.sink.Align()
	if !ok || sv.req.Route == report.RouteBuffered || c.Len%a.Offset != 0 {
		return nil
	}
	_ = sv.pieces(c.Off, c.Len, func(s *source, at, _, n int64) error {
		switch {
		case n != c.Len:
		case s.port == nil:
			data = s.Data[at : at+n]
		case s.port.mapper != nil:
			data = s.port.mapper.Map(s.Ptr+device.Ptr(at), n)
		}
		return nil
	})
	if data == nil || uintptr(unsafe.Pointer(&data[0]))%uintptr(a.Memory) != 0 {
		return nil
	}
	return data
}

// write waits for the copies of a block, sums it and writes it.
func (w *writer) write(g *gathered) {
	t, c := g.t, g.c
	waited := time.Now()
	var err error
	for _, p := range g.ports {
		if werr := g.slot.marks[p].Wait(); werr != nil {
			err = errors.Join(err, werr, p.queue.Drain())
		}
	}
	if len(g.ports) > 0 {
		t.tally.copied(c.Len, g.queued, waited)
	}
	if g.slot != nil {
		defer w.release(g.slot)
	}
	switch {
	case err != nil:
		w.e.sched.failed(t, gatherError(t, c, err))
		return
	case w.e.sched.hasFailed(t):
		w.e.sched.drop(t)
		return
	}
	t.sum(c, g.data)
	if err := w.store(t, c, g); err != nil {
		w.e.sched.failed(t, err)
		return
	}
	w.e.sched.done(t, c.Len)
}

// store writes a block past the page cache where that is possible, else
// through it. The last block is filled up to a whole page with zeros, which are
// cut off when the file is sealed.
func (w *writer) store(t *Transfer, c plan.Chunk, g *gathered) error {
	sv := t.save
	if w.e.onStep != nil {
		if err := w.e.onStep("write"); err != nil {
			return err
		}
	}
	if sv.cu != nil {
		// What the library leaves is less than a page, or lies in several places.
		n, err := t.storeCuFile(c)
		if err != nil || n == c.Len {
			return err
		}
		start := time.Now()
		if err := sv.sink.WriteBuffered(g.data[n:], c.Off+n); err != nil {
			return err
		}
		t.stored(report.RouteTakenBuffered, c.Len-n, start)
		return nil
	}
	start := time.Now()
	if ok, _ := sv.sink.Direct(); ok && sv.req.Route != report.RouteBuffered {
		a := sv.sink.Align().Offset
		data := g.data
		if pad := (a - c.Len%a) % a; pad > 0 && g.slot != nil && c.Len+pad <= int64(len(g.slot.mem)) {
			data = g.slot.mem[:c.Len+pad]
			clear(data[c.Len:])
		}
		if int64(len(data))%a == 0 {
			err := sv.sink.WriteDirect(data, c.Off)
			if err == nil {
				t.stored(writtenDirect(sv.storage), c.Len, start)
			}
			if !errors.Is(err, vfs.ErrDirectRefused) {
				return err
			}
			if sv.req.Route == report.RouteDirect {
				return sv.mustBeDirect()
			}
		}
	}
	if err := sv.sink.WriteBuffered(g.data, c.Off); err != nil {
		return err
	}
	t.stored(report.RouteTakenBuffered, c.Len, start)
	return nil
}

// stored counts a block that was written.
func (t *Transfer) stored(r report.RouteTaken, n int64, start time.Time) {
	end := time.Now()
	t.tally.mu.Lock()
	defer t.tally.mu.Unlock()
	t.tally.route(r).note(n, start, end)
	t.save.write.note(n, start, end)
}

// release frees a slot; in tests it is overwritten, so that a byte of an
// earlier block that is taken for one of a later block shows.
func (w *writer) release(s *slot) {
	if w.e.opts.Poison {
		for i := range s.mem {
			s.mem[i] = 0xdb
		}
	}
}

func gatherError(t *Transfer, c plan.Chunk, err error) error {
	return errs.Wrap(fmt.Sprintf("copy %d bytes for offset %d of", c.Len, c.Off), t.save.req.Path+" from "+t.save.devices(), err)
}
