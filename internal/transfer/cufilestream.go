// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
)

// cuFileDepth is the number of queued reads of each stream. opStride puts each operation on its own cache lines.
const (
	cuFileDepth = 2
	opStride    = 64
)

// streamReader queues reads on its own stream for each device. Reads on one stream run in order, so several streams
// give several reads at once.
type streamReader struct {
	e      *loads
	mem    []byte // memory of the operations, outside the Go heap
	turn   int
	slots  [cuFileDepth]streamSlot
	queues map[*port]*streamQueue
}

type streamQueue struct {
	device.Queue
	stream uint64
	marks  [cuFileDepth]device.Mark
}

// streamSlot is one queued read.
type streamSlot struct {
	t     *Load
	c     plan.Chunk
	op    *device.StreamOp
	file  device.StreamFile
	q     *streamQueue
	start tally.Start
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

// queueOf returns the stream of this worker on a device, and makes it at the first call.
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
		return nil, errors.Join(errs.New(errs.Unsupported, "queue reads through cuFile on", p.dev.Info().ID,
			"its queues are no streams").WithFix("use the interface sync"), inner.Close())
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
func (r *streamReader) queue(i int, t *Load, c plan.Chunk) {
	if r.e.sched.hasFailed(&t.task) {
		r.e.sched.drop(&t.task)
		return
	}
	start := t.tally.Begin(tally.StageReadCuFile)
	file, ok := t.cu.files[c.File].DirectFile.(device.StreamFile)
	if !ok {
		cuFileDone(t, c, 0, errs.New(errs.Unsupported, "use cuFile", "",
			"its files have no reads in the order of streams").WithFix("use the interface sync"), start)
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
		cuFileDone(t, c, 0, err, start)
		return
	}
	if err := q.marks[i].Record(); err != nil {
		// The queued read has no mark to wait for.
		cuFileDone(t, c, 0, errors.Join(err, q.Drain()), start)
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
		n, err = s.t.cu.read(s.c, n)
	}
	cuFileDone(s.t, s.c, n, err, s.start)
}

// close ends the streams. Every read must have been settled.
func (r *streamReader) close() {
	for _, q := range r.queues {
		for _, m := range q.marks {
			_ = m.Close()
		}
		_ = q.Close() // the queue is empty
	}
}
