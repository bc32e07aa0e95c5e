// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// startSave checks the request and begins to write; see Engine.StartWrite.
func startSave(ctx context.Context, e *saves, req WriteRequest, enter func(*Save) error) (*Save, error) {
	if req.Route == "" {
		req.Route = report.RouteAuto
	}
	t := &Save{e: e, req: req, sink: req.Sink, began: time.Now(), done: make(chan struct{})}
	t.tally.Trace(e.opts.Trace)
	t.task.job, t.task.drained = t, make(chan struct{})
	if err := t.check(); err != nil {
		return nil, err
	}
	t.pub.path, t.pub.releasing, t.pub.onStep = t.req.Path, &e.releasing, e.onStep
	if t.req.Checksums {
		t.pub.sums = t.sums
	}
	if err := enter(t); err != nil {
		return nil, err
	}
	if err := t.from.order(req.Streams); err != nil {
		e.leave()
		return nil, err
	}
	t.shown = t.tally.Begin("save")
	go t.plan(ctx)
	go t.finish(ctx)
	return t, nil
}

// check returns an error if the request is not valid.
func (t *Save) check() (err error) {
	if t.sink != nil {
		if t.req.Path != "" {
			return errs.New(errs.Invalid, "save", t.req.Path, "a path and a sink are given; expected one of them")
		}
		t.req.Path = t.sink.Name()
	}
	if t.from, err = tile(t.req.Path, t.req.Sources); err != nil {
		return err
	}
	if t.from.size == 0 && t.sink == nil && !t.req.Empty {
		return errs.New(errs.Invalid, "save", t.req.Path, "there is nothing to save; expected at least one byte")
	}
	if t.req.Route != report.RouteAuto && t.req.Route != report.RouteDirect && t.req.Route != report.RouteBuffered &&
		(t.req.Route != report.RouteCuFile || t.sink == nil) {
		return errs.New(errs.Invalid, "save", t.req.Path,
			fmt.Sprintf("route %q is not one of a save; expected auto, buffered or direct", t.req.Route))
	}
	if t.req.Checksums || t.req.Sums {
		block := int64(checksum.DefaultBlock)
		for t.sink == nil && (t.from.size+block-1)/block > checksum.MaxBlocks && block < checksum.MaxBlock {
			block *= 2
		}
		t.sums = &checksum.Sums{Size: t.from.size, Block: block, Blocks: make([]uint64, (t.from.size+block-1)/block)}
	}
	return nil
}

// plan creates the new file and gives its blocks to the writers.
func (t *Save) plan(ctx context.Context) {
	defer t.e.sched.planned(&t.task)
	begin := t.openDraft
	if t.sink != nil {
		begin = func() error { return t.openSink(ctx) }
	}
	if err := begin(); err != nil {
		t.e.sched.stop(&t.task, err)
		return
	}
	t.storage = storageBelow(t.sink, &t.e.storages)
	block := t.e.opts.WriteBlock
	for off := int64(0); off < t.from.size; off += block {
		if !t.e.sched.add(&t.task, plan.Chunk{Off: off, Len: min(block, t.from.size-off),
			Verdict: plan.Verdict{Way: plan.ViaWrite}}) {
			return
		}
	}
}

// openDraft creates the new file of the save.
func (t *Save) openDraft() error {
	err := t.pub.begin(t.from.size)
	if err != nil {
		return err
	}
	t.sink = t.pub.draft
	if t.req.Route == report.RouteDirect {
		err = t.mustBeDirect()
	}
	if err == nil && t.pub.sums != nil {
		err = checksum.CheckName(t.pub.draft.Target()) // before gigabytes are written
	}
	return err
}

// openSink prepares the sink for the route. cuFile is used only if the caller asked for it: the CPU computes
// checksums, so the bytes pass through host memory anyway.
func (t *Save) openSink(ctx context.Context) (err error) {
	switch t.req.Route {
	case report.RouteDirect:
		return t.mustBeDirect()
	case report.RouteCuFile:
	default:
		if len(t.from.ports) > 0 && t.sums != nil && t.from.ports[0].dev.Info().Kind != device.Host &&
			t.e.opts.DirectPath != nil && t.req.Route == report.RouteAuto {
			t.refusals = append(t.refusals, report.Refusal{What: "cufile", On: t.req.Path,
				Reason: "checksums need every byte in the CPU's reach",
				Fix:    "ask for route cufile: it writes from the GPU, and a copy is summed beside it"})
		}
		return nil
	}
	if t.cu, err = openCuFileSink(ctx, &t.e.opts, t.sink, t.req.Path, t.from); err != nil {
		return err
	}
	if _, ok := t.req.Streams[t.cu.port.dev]; ok {
		return t.cu.port.passed() // libcufile does not wait for the caller's stream
	}
	return nil
}

// finish waits until the save or its context ends, publishes or removes the file, and sets the result.
func (t *Save) finish(ctx context.Context) {
	defer close(t.done)
	defer t.e.leave()
	select {
	case <-t.drained:
	case <-ctx.Done():
		t.e.sched.stop(&t.task, &errs.Error{Kind: errs.Cancelled, Op: "save", Err: context.Cause(ctx),
			Name: fmt.Sprintf("%s after %s", t.req.Path, units.Bytes(t.delivered.Load()))})
		<-t.drained
	}
	t.result = cancelledAfter(t.e.sched.failure(&t.task), "save", t.req.Path, t.delivered.Load())
	if got := t.delivered.Load(); t.result == nil && got != t.from.size {
		t.result = errs.New(errs.Other, "save", t.req.Path,
			fmt.Sprintf("wrote %d of %d bytes without an error; this is a defect", got, t.from.size))
	}
	if err := t.cu.close(t.req.Path); t.result == nil {
		t.result = err
	}
	if t.result == nil && t.req.Sink == nil {
		t.result = t.pub.publish(ctx)
	}
	if t.pub.draft != nil {
		t.pub.draft.Abandon()
	}
	t.wall = time.Since(t.began)
	t.shown.Drop()
}
