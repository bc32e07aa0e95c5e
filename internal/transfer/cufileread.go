// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/report"
)

// startCuFile starts the workers of the route cufile, by the interface chosen.
func (e *Engine) startCuFile() error {
	switch e.opts.CuFile {
	case report.CuFileAsync:
		ops, err := hostmem.Map(int64(cuFileThreads * cuFileDepth * opStride))
		if err != nil {
			return err
		}
		hostmem.AdviseSmall(ops.Bytes())
		e.pool.keep(ops)
		for i := range cuFileThreads {
			e.spawn((&streamReader{e: e, mem: ops.Bytes()[i*cuFileDepth*opStride:][:cuFileDepth*opStride], queues: map[*port]*streamQueue{}}).run)
		}
	case report.CuFileBatch:
		for range cuFileBatches {
			e.spawn((&batchReader{e: e, batches: map[device.Direct]device.DirectBatch{}}).run)
		}
	default:
		for range cuFileThreads {
			e.startThread(plan.ViaCuFile, nil)
		}
	}
	return nil
}

// readCuFile lets the library read a chunk to its place and waits for it.
func (w *worker) readCuFile(t *Transfer, c plan.Chunk) {
	start := time.Now()
	n, err := t.cuFileRest(c, 0)
	t.cuFileDone(c, n, err, start)
}

// cuFileRest reads what follows the first got bytes of c, and returns how many
// bytes of c are there then. Less than all without an error is the file's end.
func (t *Transfer) cuFileRest(c plan.Chunk, got int64) (int64, error) {
	for got < c.Len {
		// Memory that is not registered has no base: an offset behind one fails.
		base, off := t.cu.baseOf(plan.Chunk{File: c.File, Dst: c.Dst + device.Ptr(got), Len: c.Len - got})
		n, err := t.cu.files[c.File].Read(base, off, c.Len-got, c.Off+got)
		if got += max(n, 0); err != nil || n <= 0 {
			return got, err
		}
	}
	return got, nil
}

// cuFileDone counts a chunk of which got bytes were delivered. Where the
// library turns out not to read this file, the route auto takes another.
func (t *Transfer) cuFileDone(c plan.Chunk, got int64, err error, start time.Time) {
	f := t.req.Files[c.File]
	switch {
	case err == nil && got >= c.Len:
		t.tally.cuFileRead(c.Len, start)
		if err := t.proveInPlace(c); err != nil {
			t.e.sched.failed(t, err)
			return
		}
		t.ready.landed(c)
		t.e.sched.done(t, c.Len)
	case err == nil:
		t.e.sched.failed(t, f.ErrShort(c.Off, int(c.Len), int(got)))
	case t.req.Route == report.RouteAuto && errs.Is(err, errs.Unsupported):
		t.cu.refuse(f.Path(), plainly(err), errs.FixOf(err))
		if t.e.pastCache(t, c, 0, false) {
			t.e.sched.drop(t) // its pieces are queued in its place
		}
	default:
		t.e.sched.failed(t, errs.Wrap(fmt.Sprintf("read %d bytes at offset %d through cuFile of", c.Len, c.Off), f.Path(), err))
	}
}

// cuFileDepth is how many reads each stream has queued; opStride keeps their
// operations on cache lines of their own.
const (
	cuFileDepth = 2
	opStride    = 64
)

// streamReader queues reads on a stream of its own for each device: what is on
// one stream is done in order, so several streams make for several reads.
type streamReader struct {
	e      *Engine
	mem    []byte // of the operations, outside the Go heap
	turn   int
	slots  [cuFileDepth]streamSlot
	queues map[*port]*streamQueue
}

type streamQueue struct {
	device.Queue
	stream uint64
	marks  [cuFileDepth]device.Mark
}

// streamSlot is a read that is queued.
type streamSlot struct {
	t     *Transfer
	c     plan.Chunk
	op    *device.StreamOp
	file  device.StreamFile
	q     *streamQueue
	start time.Time
}

func (r *streamReader) run() {
	defer r.close()
	for {
		t, cs := r.e.sched.next(plan.ViaCuFile, 1, false)
		if t == nil {
			for range r.slots {
				r.settle(r.turn)
				r.turn = (r.turn + 1) % len(r.slots)
			}
			if t, cs = r.e.sched.next(plan.ViaCuFile, 1, true); t == nil {
				return
			}
		}
		r.settle(r.turn)
		r.queue(r.turn, t, cs[0])
		r.turn = (r.turn + 1) % len(r.slots)
	}
}

// queueOf is the stream of this worker on a device, made on first use.
func (r *streamReader) queueOf(p *port) (*streamQueue, error) {
	if q := r.queues[p]; q != nil {
		return q, nil
	}
	inner, err := p.dev.NewQueue()
	if err != nil {
		return nil, err
	}
	s, ok := inner.(device.Streamer)
	if !ok {
		return nil, errors.Join(errs.New(errs.Unsupported, "queue reads through cuFile on", p.dev.Info().ID, "its queues are no streams").WithFix("use the interface sync"), inner.Close())
	}
	q := &streamQueue{Queue: inner, stream: s.Stream()}
	for i := range q.marks {
		if q.marks[i], err = inner.NewMark(); err != nil {
			return nil, errors.Join(err, inner.Close())
		}
	}
	r.queues[p] = q
	return q, nil
}

// queue starts the read of c in slot i.
func (r *streamReader) queue(i int, t *Transfer, c plan.Chunk) {
	start := time.Now()
	if r.e.sched.hasFailed(t) {
		r.e.sched.drop(t)
		return
	}
	file, ok := t.cu.files[c.File].DirectFile.(device.StreamFile)
	if !ok {
		t.cuFileDone(c, 0, errs.New(errs.Unsupported, "use cuFile", "", "its files have no reads in the order of streams").WithFix("use the interface sync"), start)
		return
	}
	base, off := t.cu.baseOf(c)
	q, err := r.queueOf(t.port)
	var op *device.StreamOp
	if err == nil {
		op, err = device.NewStreamOp(r.mem[i*opStride:], c.Len, c.Off, off)
	}
	if err == nil {
		err = file.ReadAsync(base, op, q.stream)
	}
	if err != nil {
		t.cuFileDone(c, 0, err, start)
		return
	}
	if err := q.marks[i].Record(); err != nil {
		// It is queued and cannot be waited for by itself.
		t.cuFileDone(c, 0, errors.Join(err, q.Drain()), start)
		return
	}
	r.slots[i] = streamSlot{t: t, c: c, op: op, file: file, q: q, start: start}
}

// settle waits for the read in slot i and counts it.
func (r *streamReader) settle(i int) {
	s := r.slots[i]
	if s.t == nil {
		return
	}
	r.slots[i] = streamSlot{}
	err := s.q.marks[i].Wait()
	if err != nil {
		err = errors.Join(err, s.q.Drain())
	}
	var n int64
	if err == nil {
		n, err = s.file.Moved(s.op)
	}
	if err == nil && n > 0 && n < s.c.Len {
		n, err = s.t.cuFileRest(s.c, n)
	}
	s.t.cuFileDone(s.c, n, err, s.start)
}

// close ends the streams; every read was settled.
func (r *streamReader) close() {
	for _, q := range r.queues {
		for _, m := range q.marks {
			_ = m.Close()
		}
		_ = q.Close() // it is empty
	}
}

// batchReader submits groups of reads and collects them.
type batchReader struct {
	e       *Engine
	batches map[device.Direct]device.DirectBatch
}

// stuck is how long a group may be without any result; the library is then
// asked to drop it.
const stuck = time.Minute

func (r *batchReader) run() {
	defer func() {
		for _, b := range r.batches {
			_ = b.Close() // it is empty
		}
	}()
	for {
		t, cs := r.e.sched.next(plan.ViaCuFile, cuFileGroup, true)
		if t == nil {
			return
		}
		r.group(t, cs)
	}
}

// batchOf is the batch of this worker for a library, made on first use.
func (r *batchReader) batchOf(d device.Direct) (device.DirectBatch, error) {
	if b := r.batches[d]; b != nil {
		return b, nil
	}
	maker, ok := d.(device.Batcher)
	if !ok {
		return nil, errs.New(errs.Unsupported, "use cuFile", "", "it takes no batches").WithFix("use the interface sync")
	}
	b, err := maker.NewDirectBatch(cuFileGroup)
	if err == nil {
		r.batches[d] = b
	}
	return b, err
}

// group reads chunks of one transfer together.
func (r *batchReader) group(t *Transfer, cs []plan.Chunk) {
	start := time.Now()
	t.cu.lib.mu.Lock()
	direct := t.cu.lib.direct
	t.cu.lib.mu.Unlock()
	b, err := r.batchOf(direct)
	reads := make([]device.DirectRead, len(cs))
	for i, c := range cs {
		base, off := t.cu.baseOf(c)
		reads[i] = device.DirectRead{File: t.cu.files[c.File].DirectFile, Base: base, BufOff: off, N: c.Len, FileOff: c.Off, Cookie: uint64(i)}
	}
	if err == nil {
		err = b.Submit(reads)
	}
	if err != nil {
		for _, c := range cs {
			t.cuFileDone(c, 0, err, start)
		}
		return
	}
	r.collect(t, b, direct, cs, start)
}

// collect counts each read as it ends.
func (r *batchReader) collect(t *Transfer, b device.DirectBatch, direct device.Direct, cs []plan.Chunk, start time.Time) {
	open := make(map[uint64]bool, len(cs))
	for i := range cs {
		open[uint64(i)] = true
	}
	for last := time.Now(); len(open) > 0; {
		done, err := b.Wait(time.Second)
		if err == nil && len(done) == 0 && time.Since(last) > stuck {
			err = errs.New(errs.Device, "wait for a cuFile batch on", t.req.Device.Info().ID, fmt.Sprintf("%d reads have not ended in %v", len(open), stuck)).
				WithFix("raise posix_pool_slab_count in cufile.json, or use the interface sync")
		}
		if err != nil {
			// The batch is ended, and with it what was under way. A read that is
			// made again brings the same bytes to the same place.
			delete(r.batches, direct)
			err = errors.Join(err, b.Close())
			t.cu.mu.Lock()
			t.cu.batchErr = cmp.Or(t.cu.batchErr, err)
			t.cu.mu.Unlock()
			for i := range open {
				n, err := t.cuFileRest(cs[i], 0)
				t.cuFileDone(cs[i], n, err, start)
			}
			return
		}
		for _, d := range done {
			if !open[d.Cookie] {
				continue
			}
			delete(open, d.Cookie)
			last = time.Now()
			n, err := d.N, d.Err
			if err == nil && n > 0 && n < cs[d.Cookie].Len {
				n, err = t.cuFileRest(cs[d.Cookie], n)
			}
			t.cuFileDone(cs[d.Cookie], n, err, start)
		}
	}
}
