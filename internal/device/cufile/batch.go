// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// OpRead and OpWrite are the values of BatchOp.Opcode.
const (
	OpRead  = 0
	OpWrite = 1
)

// BatchWaiting to BatchFailed are the values of BatchEvent.Status, the states of a request.
const (
	BatchWaiting   = 1
	BatchPending   = 2
	BatchInvalid   = 4
	BatchCancelled = 8
	BatchComplete  = 16
	BatchTimeout   = 32
	BatchFailed    = 64
)

// maxBatch is the largest size of a batch. The library's own limit, io_batchsize, is lower.
const maxBatch = 1 << 12

// modeBatch is CUFILE_BATCH, the only mode that cuFile has.
const modeBatch = 1

// BatchOp is one request of a batch.
type BatchOp struct {
	File               *File
	Opcode             int32 // OpRead or OpWrite
	Base               device.Ptr
	BufOff, N, FileOff int64
	Cookie             uint64 // returned in BatchEvent.Cookie
}

// Batch submits cuFile requests and collects their events in groups. Only one goroutine at a time may call methods of
// a Batch.
type Batch struct {
	s      *Session
	size   int
	handle uintptr

	once  sync.Once
	gone  bool
	open  int             // number of requests without an event so far
	keep  [][]BatchParams // the library may read the parameters until all events have come
	pins  runtime.Pinner
	event []BatchEvent
}

// NewBatch creates a batch for up to n requests at a time. NewBatch fails with kind Unsupported if libcufile is too
// old. If the caller does not close the batch, Session.Close does.
func (s *Session) NewBatch(n int) (*Batch, error) {
	op := fmt.Sprintf("make a cuFile batch of %d on", n)
	if n < 1 || n > maxBatch {
		return nil, errs.New(errs.Invalid, op, s.info.ID, fmt.Sprintf("expected 1 to %d", maxBatch))
	}
	fn := &s.lib.fn
	if err := s.lib.need("use", &fn.batchSetUp, &fn.batchSubmit, &fn.batchGetStatus, &fn.batchCancel,
		&fn.batchDestroy); err != nil {
		return nil, errs.Wrap(op, s.info.ID, err)
	}
	b := &Batch{s: s, size: n, event: make([]BatchEvent, n)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.gone(op)
	}
	err := s.ctx.WithContext(func() error { return check("cuFileBatchIOSetUp", fn.batchSetUp.Call(ptr(&b.handle), n)) })
	if err != nil {
		return nil, errs.Wrap(op, s.info.ID, err)
	}
	s.batches[b] = struct{}{}
	s.lib.mu.Lock()
	s.lib.batched = true
	s.lib.mu.Unlock()
	return b, nil
}

// Submit starts all given requests. The number of requests in progress must not exceed the parameter n of NewBatch.
// The files and the memory of submitted requests must stay valid until Wait has returned the events of the requests.
func (b *Batch) Submit(ops []BatchOp) error {
	const what = "submit a cuFile batch on"
	if b.gone {
		return b.s.gone(what)
	}
	if len(ops) == 0 {
		return nil
	}
	if b.open+len(ops) > b.size {
		return errs.New(errs.Invalid, what, b.s.info.ID,
			fmt.Sprintf("%d requests while %d are under way; the batch has room for %d", len(ops), b.open, b.size)).
			WithFix("collect events first")
	}
	params := make([]BatchParams, len(ops))
	for i, o := range ops {
		if o.File == nil || o.Base == 0 || o.N <= 0 || o.BufOff < 0 || o.FileOff < 0 || o.Opcode != OpRead &&
			o.Opcode != OpWrite {
			return errs.New(errs.Invalid, what, b.s.info.ID,
				fmt.Sprintf("request %d is %+v; expected a file, an address, a length and offsets of 0 or more", i, o))
		}
		o.File.use.RLock()
		defer o.File.use.RUnlock()
		if o.File.closed {
			return errs.New(errs.Closed, what, b.s.info.ID, fmt.Sprintf("the file of request %d was closed for cuFile", i))
		}
		params[i] = BatchParams{mode: modeBatch, Base: uint64(o.Base), FileOffset: o.FileOff, BufOffset: o.BufOff,
			Size: uint64(o.N), Handle: uintptr(o.File.handle), Opcode: o.Opcode, Cookie: o.Cookie}
	}
	b.pins.Pin(&params[0])
	b.keep = append(b.keep, params)
	b.open += len(params)
	submit := &b.s.lib.fn.batchSubmit
	err := b.s.within(what, submit, func() error {
		err := check("cuFileBatchIOSubmit", submit.Call(b.handle, len(params), ptr(&params[0]), 0))
		if err != nil {
			for range params {
				b.s.own.batched(0, err)
			}
		}
		return err
	})
	if err != nil {
		b.came(len(params)) // no events will come
	}
	return err
}

// Wait waits until the number of arrived events is at least the parameter named least, or until the timeout has
// passed. Wait returns all events that have arrived. The returned slice is valid until the next call of Wait.
func (b *Batch) Wait(least int, timeout time.Duration) ([]BatchEvent, error) {
	const what = "wait for a cuFile batch on"
	if b.gone {
		return nil, b.s.gone(what)
	}
	n, until := uint32(b.size), [2]int64{int64(timeout / time.Second), int64(timeout % time.Second)}
	// The session's lock is not held, so that other calls can run during the wait.
	err := b.s.ctx.WithContext(func() error {
		return check("cuFileBatchIOGetStatus", b.s.lib.fn.batchGetStatus.Call(b.handle, min(max(least, 0), b.size), ptr(&n),
			ptr(&b.event[0]), ptr(&until)))
	})
	if err != nil {
		return nil, errs.Wrap(what, b.s.info.ID, err)
	}
	events := b.event[:min(n, uint32(b.size))]
	if b.s.own != nil {
		for _, e := range events {
			n, err := e.Bytes()
			b.s.own.batched(n, err)
		}
	}
	b.came(len(events))
	return events, nil
}

// came records the end of n requests. After the last one it releases their parameters.
func (b *Batch) came(n int) {
	if b.open = max(b.open-n, 0); b.open == 0 {
		b.pins.Unpin()
		b.keep = nil
	}
}

// Bytes returns the number of bytes that the request moved, or the error of the request.
func (e BatchEvent) Bytes() (int64, error) {
	switch {
	case e.Result < 0:
		return 0, failure("cuFile batch request", int(max(e.Result, -1<<31)), 0)
	case e.Status != BatchComplete:
		return 0, errs.New(errs.IO, "cuFile batch request", fmt.Sprint(e.Cookie),
			fmt.Sprintf("its state is %d, expected %d", e.Status, BatchComplete))
	}
	return e.Result, nil
}

// Cancel asks libcufile to drop requests that have not ended. Requests that Cancel drops have no events. If requests
// were in progress, the batch cannot be used after Cancel, because libcufile does not report which requests it
// dropped.
func (b *Batch) Cancel() error {
	if b.gone {
		return nil
	}
	return b.s.call("cancel a cuFile batch on", "cuFileBatchIOCancel", &b.s.lib.fn.batchCancel, b.handle)
}

// Close destroys the batch. Events that Wait has not returned before Close are lost. A second call of Close does
// nothing.
func (b *Batch) Close() error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return b.destroy()
}

// destroy destroys the batch once. The caller holds the session's lock.
func (b *Batch) destroy() (err error) {
	b.once.Do(func() {
		b.gone = true
		delete(b.s.batches, b)
		err = b.s.ctx.WithContext(func() error { b.s.lib.fn.batchDestroy.Call(b.handle); return nil })
		b.came(b.open)
	})
	return errs.Wrap("end a cuFile batch on", b.s.info.ID, err)
}

// directBatch adapts a Batch to device.DirectBatch.
type directBatch struct{ *Batch }

// NewDirectBatch implements device.Batcher.
func (s *Session) NewDirectBatch(n int) (device.DirectBatch, error) {
	b, err := s.NewBatch(n)
	if err != nil {
		return nil, err
	}
	return directBatch{b}, nil
}

// Submit implements device.DirectBatch.
func (d directBatch) Submit(reads []device.DirectRead) error {
	ops := make([]BatchOp, len(reads))
	for i, r := range reads {
		f, _ := r.File.(*File)
		ops[i] = BatchOp{File: f, Opcode: OpRead, Base: r.Base, BufOff: r.BufOff, N: r.N, FileOff: r.FileOff,
			Cookie: r.Cookie}
	}
	return d.Batch.Submit(ops)
}

// Wait implements device.DirectBatch.
func (d directBatch) Wait(timeout time.Duration) ([]device.DirectDone, error) {
	events, err := d.Batch.Wait(1, timeout)
	out := make([]device.DirectDone, 0, len(events))
	for _, e := range events {
		n, err := e.Bytes()
		out = append(out, device.DirectDone{Cookie: e.Cookie, N: n, Err: err})
	}
	return out, err
}

// Close implements device.DirectBatch.
func (d directBatch) Close() error {
	if d.open > 0 {
		_ = d.Cancel() // the batch ends in any case
	}
	return d.Batch.Close()
}
