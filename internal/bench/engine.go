// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// engineMover moves blocks with the transfer engine. One request carries as many blocks as the destination holds,
// like the load of a model.
type engineMover struct {
	Job
	space *space
	order order.Permutation
	files []*vfs.File
	index []int // of each group's first file among files
	dst   device.Buffer

	by       map[report.RouteTaken]int64 // bytes of all passes
	reads    int64
	last     *report.Report
	verified record.Verify
}

// Limits of one request. The destination holds the whole data set if the data set fits into this share of the
// device's memory. Sequential reads are requested in pieces of enginePiece bytes: large enough for the engine to
// split freely, and small enough to keep every member of a stripe busy.
const (
	destinationShare = 4
	maxSegments      = 1 << 18
	minDestination   = 64 * units.MiB
	enginePiece      = 64 * units.MiB
	verifyPiece      = 4 * units.MiB
)

func newEngineMover(j Job) (*engineMover, error) {
	if j.Device == nil || j.Engine == nil {
		return nil, errs.New(errs.Invalid, "benchmark", "engine", "needs a device")
	}
	piece := j.Spec.BlockSize
	if j.Spec.Pattern == Sequential {
		piece = max(piece, enginePiece)
	}
	e := &engineMover{Job: j, space: newSpace(j.Set, piece), files: j.Set.Files(), by: map[report.RouteTaken]int64{}}
	for n, g := 0, 0; g < len(j.Set.Groups); g++ {
		e.index = append(e.index, n)
		n += len(j.Set.Groups[g].Files)
	}
	if j.Spec.Pattern == Random {
		e.order = order.NewPermutation(e.space.total, j.Spec.Seed+1)
	}
	want := j.Set.Bytes()
	if total := j.Device.Info().TotalMemory; total > 0 {
		want = min(want, total/destinationShare)
	}
	want = max(want, min(piece, j.Set.Bytes()))
	for {
		b, err := j.Device.Alloc(want)
		if err == nil {
			e.dst = b
			if mp, ok := j.Device.(device.Mapper); ok {
				// Memory that was never used is slow the first time.
				hostmem.Touch(mp.Map(b.Ptr(), b.Size()), runtime.NumCPU())
			}
			return e, nil
		}
		if !errs.Is(err, errs.NoMemory) || want/2 < max(minDestination, piece) {
			return nil, err
		}
		want /= 2
	}
}

// pass requests one window after the other.
func (e *engineMover) pass(ctx context.Context, m *meter) error {
	e.Engine.Prepare(e.Device)
	m.start()
	for i := int64(0); i < e.space.total && !m.stopped.Load(); {
		segs, blocks := e.window(i)
		if err := e.request(ctx, m, segs); err != nil {
			return err
		}
		if e.Spec.Verify && !m.stopped.Load() {
			if err := e.verify(segs, blocks); err != nil {
				return err
			}
		}
		i += int64(len(segs))
	}
	return nil
}

// window is the blocks from the i-th visit on that fill the destination.
func (e *engineMover) window(i int64) ([]transfer.Segment, []block) {
	var segs []transfer.Segment
	var blocks []block
	at := int64(0)
	for ; i < e.space.total && len(segs) < maxSegments; i++ {
		k := i
		if e.Spec.Pattern == Random {
			k = e.order.At(i)
		}
		b := e.space.block(k)
		if at+b.len > e.dst.Size() {
			break
		}
		segs = append(segs, transfer.Segment{File: e.index[b.group] + b.file, Off: b.off, Len: b.len,
			Dst: e.dst.Ptr() + device.Ptr(at)})
		blocks = append(blocks, b)
		at += b.len
	}
	return segs, blocks
}

// request runs one transfer and counts its bytes as they arrive.
func (e *engineMover) request(ctx context.Context, m *meter, segs []transfer.Segment) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	t, err := e.Engine.Start(run, transfer.Request{Device: e.Device, Files: e.files, Segments: segs,
		Route: report.Route(e.Spec.Route), Cache: report.CacheBypass})
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	counted := int64(0)
	count := func() {
		n, _ := t.Progress()
		m.bytes.Add(n - counted)
		counted = n
	}
	for {
		select {
		case <-tick.C:
			count()
			if m.stopped.Load() {
				cancel()
			}
		case <-t.Done():
			count()
			e.note(t.Report())
			if err := t.Err(); err != nil && !m.stopped.Load() && ctx.Err() == nil {
				return err
			}
			return nil
		}
	}
}

func (e *engineMover) note(r report.Report) {
	for _, route := range r.Routes {
		e.by[route.Route] += route.Bytes
		e.reads += route.Chunks
	}
	e.last = &r
}

// verify copies the destination back and compares it.
func (e *engineMover) verify(segs []transfer.Segment, blocks []block) error {
	q, err := e.Device.NewQueue()
	if err != nil {
		return err
	}
	got, want := make([]byte, verifyPiece), make([]byte, verifyPiece)
	for i, b := range blocks {
		for at := int64(0); at < b.len; at += verifyPiece {
			part := block{group: b.group, file: b.file, off: b.off + at, len: min(verifyPiece, b.len-at)}
			if err := e.compare(q, part, segs[i].Dst+device.Ptr(at), got[:part.len], want[:part.len]); err != nil {
				return errors.Join(err, q.Close())
			}
		}
	}
	return q.Close()
}

func (e *engineMover) compare(q device.Queue, b block, at device.Ptr, got, want []byte) error {
	if err := errors.Join(q.CopyOut(got, at), q.Drain()); err != nil {
		return errs.Wrap("copy from", e.Device.Info().ID, err)
	}
	f := e.Set.Groups[b.group].Files[b.file]
	if e.Set.Known {
		e.Set.Content(b.group, b.file, b.off, want)
	} else if _, err := f.ReadAt(want, b.off); err != nil {
		return err
	}
	e.verified.Bytes += b.len
	if bytes.Equal(got, want) {
		return nil
	}
	e.verified.Mismatches++
	if e.verified.First == "" {
		e.verified.First = fmt.Sprintf("%s, %s", f.Path(), b)
	}
	return nil
}

// finish copies routes and refusals from the engine's own reports.
func (e *engineMover) finish(r *record.Run) error {
	for _, name := range report.FileRoutes() {
		if e.by[name] > 0 {
			r.Routes = append(r.Routes, record.Route{Route: string(name), Bytes: e.by[name]})
		}
	}
	r.Proof = "the engine's own count of each read"
	if e.last != nil {
		last := *e.last
		for _, ref := range last.Refusals {
			r.Refusals = append(r.Refusals, record.Refusal{What: ref.What + " on " + ref.On, Reason: ref.Reason, Fix: ref.Fix})
		}
		last.Files = nil // the settings name them
		r.Engine = last
		// Reads are the engine's to cut and to keep in flight.
		r.Settings.Workers, r.Settings.QueueDepth = last.Engine.Workers, last.Engine.QueueDepth
		if e.Spec.Pattern == Sequential {
			r.Settings.BlockSize = last.Engine.ChunkSize
		}
		r.Ops, r.IOPS = e.reads, float64(e.reads)/r.Seconds
	}
	if e.Spec.Verify {
		e.verified.Where = "device memory, copied back"
		r.Verify = &e.verified
		r.Notes = append(r.Notes, "contents were compared during the run: the rate includes that work")
	}
	return nil
}

func (e *engineMover) close() error {
	if e.dst == nil {
		return nil
	}
	return e.dst.Free()
}
