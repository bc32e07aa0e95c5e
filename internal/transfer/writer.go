// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// writer has one write in flight. With two slots, it queues the copies of the next block before it writes the current
// block.
type writer struct {
	e     *saves
	slots []*staging.Slot
	turn  int
}

// gathered is a block whose bytes are in memory or are being copied there.
type gathered struct {
	t *Save
	c plan.Chunk
	// data is the block. It is in slot or, if slot is nil, in the caller's memory.
	data   []byte
	slot   *staging.Slot
	ports  []*port // ports with a mark to wait for
	queued tally.Start
}

func (w *writer) run() {
	var ahead *gathered
	for {
		if ahead != nil && len(w.slots) == 1 {
			w.write(ahead) // there is no second slot for the next block
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

// gather queues the copies of a block from its sources. It returns nil if the save has failed.
func (w *writer) gather(t *Save, c plan.Chunk) *gathered {
	if w.e.sched.hasFailed(&t.task) {
		w.e.sched.drop(&t.task)
		return nil
	}
	g := &gathered{t: t, c: c}
	if g.data = inPlace(t, c); g.data != nil {
		return g
	}
	g.queued = t.tally.Begin(tally.StageCopy)
	g.slot = w.slots[w.turn]
	w.turn = (w.turn + 1) % len(w.slots)
	g.data = g.slot.Mem[:c.Len]
	var err error
	g.ports, err = t.from.collect(c.Off, g.slot, g.data)
	if err == nil {
		if len(g.ports) == 0 {
			t.tally.Copied(c.Len, g.queued, tally.Ago(0)) // no copy to wait for
		}
		return g
	}
	g.queued.Drop()
	// Some queued copies may have no mark behind them. The sources are free only when the queues are empty.
	for _, p := range g.ports {
		err = errors.Join(err, p.queue.Drain())
	}
	w.e.sched.failed(&t.task, gatherError(t, c, err))
	return nil
}

// write waits for the copies of a block, computes its checksum and writes it.
func (w *writer) write(g *gathered) {
	t, c := g.t, g.c
	var err error
	if len(g.ports) > 0 {
		waited := t.tally.Begin(tally.StageWaitCopy)
		err = await(g.slot, g.ports)
		t.tally.Copied(c.Len, g.queued, waited)
	}
	if g.slot != nil {
		defer w.release(g.slot)
	}
	switch {
	case err != nil:
		w.e.sched.failed(&t.task, gatherError(t, c, err))
		return
	case w.e.sched.hasFailed(&t.task):
		w.e.sched.drop(&t.task)
		return
	}
	t.sum(c, g.data)
	if err := w.store(t, c, g); err != nil {
		w.e.sched.failed(&t.task, err)
		return
	}
	w.e.sched.done(&t.task, c.Len)
}

// store writes a block with O_DIRECT if possible, else through the page cache. The last block is padded with zeros to
// a whole page; Seal truncates the file later.
func (w *writer) store(t *Save, c plan.Chunk, g *gathered) error {
	if w.e.onStep != nil {
		if err := w.e.onStep("write"); err != nil {
			return err
		}
	}
	if t.cu != nil {
		// libcufile leaves bytes that are less than a page, or that come from several sources.
		began := t.tally.Begin(tally.StageWrite)
		n, err := t.cu.write(t.from, c.Off, c.Len)
		if err == nil && n > 0 {
			t.tally.WroteByCuFile(n, began)
		} else {
			began.Drop()
		}
		if err != nil || n == c.Len {
			return err
		}
		start := t.tally.Begin(tally.StageWrite)
		if err := t.sink.WriteBuffered(g.data[n:], c.Off+n); err != nil {
			start.Drop()
			return err
		}
		t.tally.Wrote(report.RouteTakenBuffered, c.Len-n, start)
		return nil
	}
	start := t.tally.Begin(tally.StageWrite)
	if ok, _ := t.sink.Direct(); ok && t.req.Route != report.RouteBuffered {
		a := t.sink.Align().Offset
		data := g.data
		if pad := (a - c.Len%a) % a; pad > 0 && g.slot != nil && c.Len+pad <= int64(len(g.slot.Mem)) {
			data = g.slot.Mem[:c.Len+pad]
			clear(data[c.Len:])
		}
		if int64(len(data))%a == 0 {
			err := t.sink.WriteDirect(data, c.Off)
			if err == nil {
				t.tally.Wrote(writtenDirect(t.storage), c.Len, start)
				return nil
			}
			if !errors.Is(err, vfs.ErrDirectRefused) {
				start.Drop()
				return err
			}
			if t.req.Route == report.RouteDirect {
				start.Drop()
				return t.mustBeDirect()
			}
		}
	}
	if err := t.sink.WriteBuffered(g.data, c.Off); err != nil {
		start.Drop()
		return err
	}
	t.tally.Wrote(report.RouteTakenBuffered, c.Len, start)
	return nil
}

// release frees a slot. In tests the slot is overwritten, so that a use of old bytes is detected.
func (w *writer) release(s *staging.Slot) {
	if w.e.opts.Poison {
		s.Poison()
	}
}

// inPlace returns the memory of a block if it can be written without a copy. The block must be contiguous and
// aligned, and the CPU must be able to address it.
func inPlace(t *Save, c plan.Chunk) []byte {
	ok, _ := t.sink.Direct()
	a := t.sink.Align()
	if !ok || t.req.Route == report.RouteBuffered || c.Len%a.Offset != 0 {
		return nil
	}
	data := t.from.inPlace(c.Off, c.Len)
	if data == nil || uintptr(unsafe.Pointer(&data[0]))%uintptr(a.Memory) != 0 {
		return nil
	}
	return data
}

func gatherError(t *Save, c plan.Chunk, err error) error {
	return errs.Wrap(fmt.Sprintf("copy %d bytes for offset %d of", c.Len, c.Off),
		t.req.Path+" from "+t.from.devices(), err)
}
