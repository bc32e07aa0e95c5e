// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// worker reads chunks one after the other. With two or more slots, it reads into one slot while the others are copied
// to the device.
type worker struct {
	e     *loads
	way   plan.Way
	slots []*slot
	turn  int
}

// fillRun is the number of neighbouring blocks that one filler takes. Each filler reads in order, so that the kernel
// reads ahead for it.
const fillRun = 128

func (w *worker) run() {
	for {
		t, cs := w.e.sched.take(w.way, false, w.count)
		if t == nil {
			// No work: settle the running copies before sleeping.
			for _, s := range w.slots {
				settle(s)
			}
			if t, cs = w.e.sched.take(w.way, true, w.count); t == nil {
				return
			}
		}
		if w.way == plan.ViaFill {
			w.fill(t, cs)
			continue
		}
		if w.way == plan.ViaDirect && t.sharesMemory(&cs[0]) {
			// The worker may wait, and other loads need to know that its copies have ended.
			for _, s := range w.slots {
				settle(s)
			}
		}
		switch {
		case w.way == plan.ViaDirect && bringTogether(t, cs):
		case w.way != plan.ViaCache:
			for _, c := range cs {
				w.do(t, c)
			}
		case len(cs) > 1:
			w.doJoined(t, cs)
		default:
			w.do(t, cs[0])
		}
	}
}

// count returns how many of a transfer's queued chunks the worker takes at once; all is the number of queued chunks of
// all transfers. A load that shares its reads with others may change the order of its queue. Small chunks that follow
// each other in the destination are taken together and share a slot, but some are left for the other workers. count
// returns 0 if the worker would have to wait while other transfers have chunks.
func (w *worker) count(t *Load, queue []plan.Chunk, all int) int {
	if w.way == plan.ViaFill {
		return fillRun
	}
	if w.way == plan.ViaDirect || w.way == plan.ViaDirectInPlace {
		if all > len(queue) && t.isFilling(&queue[0]) {
			return 0
		}
		t.reorder(queue)
		return t.run(queue)
	}
	if len(queue) < 2 || !w.joins(t, &queue[0], &queue[1]) {
		return 1
	}
	most := min((all+w.e.opts.Workers-1)/w.e.opts.Workers, len(queue))
	room := min(mostJoined, w.e.opts.MaxTransfer)
	n, size := 1, queue[0].Len
	for n < most && w.joins(t, &queue[n-1], &queue[n]) && size+queue[n].Len <= room {
		size += queue[n].Len
		n++
	}
	return n
}

func (w *worker) do(t *Load, c plan.Chunk) {
	f := t.req.Files[c.File]
	if err := f.Pin(); err != nil {
		w.e.sched.failed(&t.task, err)
		return
	}
	defer f.Unpin()
	switch {
	case w.way == plan.ViaDirectInPlace:
		readInPlace(t, c)
	case w.way == plan.ViaCuFile:
		readCuFile(t, c)
	case w.way == plan.ViaCache && t.inPlace(c):
		readCached(t, c, t.port.mapper.Map(c.Dst, c.Len), nil)
	case w.way == plan.ViaCache && t.port.mapper != nil && byRows(t, &c):
		readRows(t, c, nil, nil)
	default:
		s := w.slot(t)
		switch {
		case s == nil:
			w.e.sched.drop(&t.task)
		case w.way == plan.ViaDirect:
			readDirect(t, c, s)
		default:
			readCached(t, c, s.Mem[:c.Len], s)
		}
	}
}

// slot returns the worker's next slot, free and prepared for the transfer's device. It returns nil if the transfer
// has failed.
func (w *worker) slot(t *Load) *slot {
	at := w.turn
	for i := range w.slots {
		// In the first moments of an engine, slots are still being pinned.
		if k := (w.turn + i) % len(w.slots); w.slots[k].ReadyFor(t.port.dev) {
			at = k
			break
		}
	}
	w.turn = (at + 1) % len(w.slots)
	s := w.slots[at]
	settle(s)
	if w.e.sched.hasFailed(&t.task) {
		return nil
	}
	s.Ensure(t.port.dev)
	return s
}

// fill reads neighbouring uncached blocks through the page cache, in order. It uses its own file descriptor, so that
// no other reader disturbs its readahead.
func (w *worker) fill(t *Load, cs []plan.Chunk) {
	var r *vfs.Reader
	var err error
	for _, c := range cs {
		if w.e.sched.hasFailed(&t.task) {
			w.e.sched.drop(&t.task)
			continue
		}
		f := t.req.Files[c.File]
		if r == nil || r.File() != f {
			r.Close()
			if r, err = f.NewReader(t.req.Cache == report.CacheBypass); err != nil {
				w.e.sched.failed(&t.task, err)
				continue
			}
		}
		var s *slot
		var buf []byte
		if t.inPlace(c) {
			buf = t.port.mapper.Map(c.Dst, c.Len)
		} else if s = w.slot(t); s != nil {
			buf = s.Mem[:c.Len]
		} else {
			w.e.sched.drop(&t.task)
			continue
		}
		start := t.tally.Begin(tally.StageReadCache)
		if err := r.ReadFull(buf, c.Off); err != nil {
			start.Drop()
			w.e.sched.failed(&t.task, err)
			continue
		}
		t.tally.Read(c.Extra, t.truths[c.File].below(report.RouteTakenBuffered), c.Len, start)
		deliver(t, c, buf, s)
	}
	r.Close()
}
