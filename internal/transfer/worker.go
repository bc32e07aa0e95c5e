// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// ensure starts the workers for one way of reading, once, and prepares staging
// for the transfer's device where that way uses it.
func (e *Engine) ensure(w plan.Way, t *Transfer) error {
	if w == plan.ViaNetwork {
		return e.ensureFetchers(t)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.started[w] {
		e.started[w] = true
		if err := e.start(w); err != nil {
			e.started[w] = false
			return err
		}
	}
	staged := w == plan.ViaDirect || (w != plan.ViaDirectInPlace && w != plan.ViaCuFile && (t.port.mapper == nil || t.packs))
	if staged && !t.prepared[w] {
		t.prepared[w] = true
		kind := smallSlot
		if w == plan.ViaCache {
			kind = largeSlot
		}
		e.pool.prepare(t.port.dev, kind)
	}
	return nil
}

func (e *Engine) start(w plan.Way) error {
	o := &e.opts
	switch w {
	case plan.ViaCache:
		return e.startThreads(w, o.Workers, o.largeSlots, largeSlot)
	case plan.ViaFill:
		return e.startThreads(w, o.fillers, o.smallSlots-o.directSlots, smallSlot)
	case plan.ViaWrite:
		return e.startThreads(w, o.WriteDepth, o.writeSlots, writeSlot)
	case plan.ViaDirectInPlace:
		for range o.QueueDepth {
			e.startThread(w, nil)
		}
		return nil
	case plan.ViaCuFile:
		return e.startCuFile()
	}
	if o.IO == IOUring {
		slots, err := e.pool.take(o.directSlots, smallSlot)
		if err != nil {
			return err
		}
		ready := make(chan error, 1)
		e.spawn(func() { runUring(e, slots, ready) })
		e.io = IOUring
		return <-ready
	}
	e.io = IOPread
	return e.startThreads(w, o.QueueDepth, o.directSlots, smallSlot)
}

// startThreads starts n workers and deals slots among them, two or one each.
func (e *Engine) startThreads(w plan.Way, n, slots int, kind slotKind) error {
	for i := range n {
		s, err := e.pool.take(min(2, max(1, slots/(n-i))), kind)
		if err != nil {
			return err
		}
		slots -= len(s)
		e.startThread(w, s)
	}
	return nil
}

func (e *Engine) startThread(w plan.Way, slots []*slot) {
	if w == plan.ViaWrite {
		e.spawn((&writer{e: e, slots: slots}).run)
		return
	}
	wk := &worker{e: e, way: w, slots: slots}
	e.spawn(wk.run)
}

// worker reads chunks one after the other. With two slots, one is read into
// while the other is on its way to the device.
type worker struct {
	e     *Engine
	way   plan.Way
	slots []*slot
	turn  int
}

// fillRun is how many blocks in a row one filler takes: the kernel reads ahead
// for a reader that goes through a file in order, and each filler is one.
const fillRun = 128

func (w *worker) run() {
	run := 1
	if w.way == plan.ViaFill {
		run = fillRun
	}
	for {
		t, cs := w.e.sched.next(w.way, run, false)
		if t == nil {
			// Nothing to do: deliver what is under way before sleeping.
			for _, s := range w.slots {
				w.e.settleSlot(s)
			}
			if t, cs = w.e.sched.next(w.way, run, true); t == nil {
				return
			}
		}
		if w.way == plan.ViaFill {
			w.fill(t, cs)
			continue
		}
		w.do(t, cs[0])
	}
}

func (w *worker) do(t *Transfer, c plan.Chunk) {
	f := t.req.Files[c.File]
	if err := f.Pin(); err != nil {
		w.e.sched.failed(t, err)
		return
	}
	defer f.Unpin()
	switch {
	case w.way == plan.ViaDirectInPlace:
		w.readInPlace(t, c)
	case w.way == plan.ViaCuFile:
		w.readCuFile(t, c)
	case w.way == plan.ViaCache && t.inPlace(c):
		w.cacheInto(t, c, t.port.mapper.Map(c.Dst, c.Len), nil)
	default:
		s := w.slot(t)
		switch {
		case s == nil:
			w.e.sched.drop(t)
		case w.way == plan.ViaDirect:
			w.directInto(t, c, s)
		default:
			w.cacheInto(t, c, s.mem[:c.Len], s)
		}
	}
}

// slot returns the worker's next slot, free and ready for the transfer's
// device, or nil when the transfer has failed meanwhile.
func (w *worker) slot(t *Transfer) *slot {
	s := w.slots[w.turn]
	if other := w.slots[len(w.slots)-1-w.turn]; !s.part.readyFor(t.port.dev) && other.part.readyFor(t.port.dev) {
		s = other // in the first moments of an engine, while the pool is being pinned
	} else {
		w.turn = (w.turn + 1) % len(w.slots)
	}
	w.e.settleSlot(s)
	if w.e.sched.hasFailed(t) {
		return nil
	}
	s.part.ensure(t.port.dev)
	return s
}

// fill reads a run of absent blocks through the page cache, in order and with a
// description of its own, whose readahead no other reader disturbs.
func (w *worker) fill(t *Transfer, cs []plan.Chunk) {
	var r *vfs.Reader
	var err error
	for _, c := range cs {
		if w.e.sched.hasFailed(t) {
			w.e.sched.drop(t)
			continue
		}
		f := t.req.Files[c.File]
		if r == nil || r.File() != f {
			r.Close()
			if r, err = f.NewReader(t.req.Cache == report.CacheBypass); err != nil {
				w.e.sched.failed(t, err)
				continue
			}
		}
		var s *slot
		var buf []byte
		if t.inPlace(c) {
			buf = t.port.mapper.Map(c.Dst, c.Len)
		} else if s = w.slot(t); s != nil {
			buf = s.mem[:c.Len]
		} else {
			w.e.sched.drop(t)
			continue
		}
		start := time.Now()
		if err := r.ReadFull(buf, c.Off); err != nil {
			w.e.sched.failed(t, err)
			continue
		}
		t.tally.read(c, t.truthOf(c.File).below(report.RouteTakenBuffered), c.Len, start)
		w.e.deliver(t, c, buf, s)
	}
	r.Close()
}

// readInPlace reads past the page cache straight into the destination.
func (w *worker) readInPlace(t *Transfer, c plan.Chunk) {
	f := t.req.Files[c.File]
	buf := t.port.mapper.Map(c.Dst, c.Len)
	err := t.readDirect(c, buf, c.Off, c.Len, func() error { return f.ReadDirect(buf, c.Off, int(c.Len)) })
	if errors.Is(err, vfs.ErrDirectRefused) {
		w.e.refused(t, c)
		return
	}
	if err != nil {
		w.e.sched.failed(t, err)
		return
	}
	w.e.deliver(t, c, buf, nil)
}

// cacheInto reads a chunk through the page cache into buf and, when s is its
// slot, sends it to the device.
func (w *worker) cacheInto(t *Transfer, c plan.Chunk, buf []byte, s *slot) {
	start := time.Now()
	f := t.req.Files[c.File]
	if c.NoWait {
		n := f.ReadCached(buf, c.Off)
		t.tally.read(c, report.RouteTakenCache, n, start)
		if n < c.Len && !w.e.pastCache(t, c, n, c.CuFile) {
			return
		}
		if n == 0 {
			w.e.sched.drop(t) // nothing of this chunk is left to deliver
			return
		}
		c.Len = n
		w.e.deliver(t, c, buf[:n], s)
		return
	}
	if t.verifies(c.File) && t.sumOf(c, s) == nil {
		if err := t.readSummed(c, buf); err != nil {
			w.e.sched.failed(t, err)
			return
		}
		c.Summed = true
		w.e.deliver(t, c, buf, s)
		return
	}
	b, err := f.ReadBuffered(buf, c.Off)
	if err != nil {
		w.e.sched.failed(t, err)
		return
	}
	t.countBuffered(c, b, start)
	w.e.deliver(t, c, buf, s)
}

// pastCache queues what follows the first n bytes of c, which are absent from
// the page cache, to be read past it, by cuFile where the planner has said so.
// It reports false when c has failed.
func (e *Engine) pastCache(t *Transfer, c plan.Chunk, n int64, cufile bool) bool {
	w, size := plan.ViaDirect, e.opts.block
	if cufile {
		w, size = plan.ViaCuFile, e.opts.piece
	}
	if err := e.ensure(w, t); err != nil {
		e.sched.failed(t, err)
		return false
	}
	for n < c.Len {
		off := c.Off + n
		stop := min(c.Off+c.Len, (off/size+1)*size)
		n = stop - c.Off
		rest, some := plan.Chunk{File: c.File, Off: off, Len: stop - off, Dst: c.Dst + device.Ptr(off-c.Off), Extra: c.Extra, Verdict: plan.Verdict{Way: w}}, true
		if c.Weave != nil {
			rest, some = c.Weave.Narrow(rest, t.verifies(c.File))
		}
		if some && !e.sched.add(t, rest) {
			e.sched.drop(t)
			return false
		}
	}
	return true
}

// directInto reads the aligned superset of a chunk into its slot.
func (w *worker) directInto(t *Transfer, c plan.Chunk, s *slot) {
	f := t.req.Files[c.File]
	lo, buf, need := superset(f, c, s.mem)
	err := t.readDirect(c, buf, lo, int64(need), func() error { return f.ReadDirect(buf, lo, need) })
	if errors.Is(err, vfs.ErrDirectRefused) {
		w.e.refused(t, c)
		return
	}
	if err != nil {
		w.e.sched.failed(t, err)
		return
	}
	t.tally.padding.Add(int64(need) - c.Len)
	w.e.deliver(t, c, buf[c.Off-lo:][:c.Len], s)
}

// superset widens a chunk to aligned bounds: the file offset of the read, the
// part of mem it fills, and how many bytes of it the file has.
func superset(f *vfs.File, c plan.Chunk, mem []byte) (lo int64, buf []byte, need int) {
	a := f.Align().Offset
	lo = c.Off / a * a
	hi := (c.Off + c.Len + a - 1) / a * a
	return lo, mem[:hi-lo], int(min(hi, f.Size()) - lo)
}

// runUring is the one worker of direct reads through io_uring; it tells on ready
// whether the kernel allows that.
func runUring(e *Engine, slots []*slot, ready chan<- error) {
	ring, unlock, err := newUring(slots)
	ready <- err
	if err != nil {
		return
	}
	defer unlock()
	(&uringReader{e: e, ring: ring, slots: slots}).run()
}
