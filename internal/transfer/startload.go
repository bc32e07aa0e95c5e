// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/report"
)

// startLoad checks the request and begins to move bytes; see Engine.Start.
func startLoad(ctx context.Context, e *loads, req Request) (*Load, error) {
	if req.Route == "" {
		req.Route = report.RouteAuto
	}
	if req.Cache == "" {
		req.Cache = report.CacheAuto
	}
	if req.Route == report.RouteCuFile {
		req.Gap = 0 // cuFile cannot pack: every row is a read
	}
	t := &Load{e: e, req: req, began: time.Now(), done: make(chan struct{})}
	t.tally.Trace(e.opts.Trace)
	t.task.job, t.task.drained, t.task.abort = t, make(chan struct{}), t.net.abort
	var err error
	if t.total, err = t.req.check(); err != nil {
		return nil, err
	}
	t.verify = verifier{req: &t.req, tally: &t.tally, on: e.opts.VerifyOn}
	if t.verify.proof, err = newProof(&t.req, e.join, &t.verify); err != nil {
		return nil, err
	}
	if t.ready, err = newReadiness(&t.req); err != nil {
		return nil, err
	}
	if t.port, err = e.enter(req.Device); err != nil {
		return nil, err
	}
	if err := t.enter(); err != nil {
		e.leave()
		return nil, err
	}
	t.verify.ask(t.total)
	t.shown = t.tally.Begin("load")
	t.openNetwork(ctx)
	if t.port.mapper == nil && t.fetch.want == 0 && t.total >= rousedFrom {
		e.sched.rouse()
	}
	go planLoad(ctx, t)
	go finishLoad(ctx, t)
	return t, nil
}

// enter prepares the parts of a load other than its port. If it fails, it undoes all preparations.
func (t *Load) enter() error {
	p, req := t.port, &t.req
	t.verify.port, t.verify.ready, t.fan.port = p, t.ready, p
	t.cu = cuFileUse{e: t.e.lane, req: req, port: p, verify: &t.verify, tally: &t.tally, files: make([]*known,
		len(req.Files)), bases: make([][]extentOf, len(req.Files))}
	if err := promiseMemory(t); err != nil {
		return err
	}
	if err := t.fan.enter(t.e.lane, req); err != nil {
		t.memory()
		return errors.Join(err, t.fan.await())
	}
	if req.HasStream && req.Device.Info().Kind != device.Host {
		if err := p.queue.After(req.Stream); err != nil {
			err = errors.Join(err, t.fan.await())
			t.memory()
			return errs.Wrap("order after the caller's stream on", req.Device.Info().ID, err)
		}
	}
	if p.mapper != nil {
		for _, s := range req.Segments {
			hostmem.AdviseHuge(p.mapper.Map(s.Dst, s.Wanted()))
		}
	}
	return nil
}

// openNetwork gives a load with remote files a context that ends with the load.
func (t *Load) openNetwork(ctx context.Context) {
	for _, f := range t.req.Files {
		if r := f.Remote(); r != nil {
			t.fetch.want = max(t.fetch.want, 1, min(r.Parallel(), mostFetchers))
		}
	}
	if t.fetch.want > 0 {
		t.fetch.left = t.total
		t.net.ctx, t.net.cancel = context.WithCancel(ctx)
	}
}

// finishLoad waits until the load or its context ends, and sets the result.
func finishLoad(ctx context.Context, t *Load) {
	defer close(t.done)
	defer t.e.leave()
	defer t.memory()
	defer t.net.abort()
	select {
	case <-t.drained:
	case <-ctx.Done():
		t.e.sched.stop(&t.task, t.cancelled(ctx))
		<-t.drained
	}
	t.result = cancelledAfter(t.e.sched.failure(&t.task), "transfer", t.destination(), t.delivered.Load())
	t.wall = time.Since(t.began)
	t.shown.Drop()
	for _, x := range t.shared {
		x.close(&t.e.ending)
	}
	for _, u := range t.truths {
		u.restore()
	}
	if err := t.cu.leave(); t.result == nil {
		t.result = err
	}
	if t.result == nil {
		for i, f := range t.req.Files {
			if t.req.Live {
				break
			}
			if err := f.CheckUnchanged(t.verify.covers(i)); err != nil {
				t.result = err
				return
			}
		}
		if t.verify.proof != nil {
			if err := t.verify.proof.Settled(); err != nil {
				t.result = err
				return
			}
		}
		if got := t.delivered.Load(); got != t.total {
			t.result = errs.New(errs.Other, "transfer", "",
				fmt.Sprintf("delivered %d of %d bytes without an error; this is a defect", got, t.total))
			return
		}
	}
}

// promiseMemory returns an error if a load to host memory needs more memory than is available. Destinations have no
// pages until they are written, so a load that is too large would run until the kernel kills the process.
func promiseMemory(t *Load) error {
	t.memory = func() {}
	var shifts []device.Ptr // differences between a segment's address and its host memory
	if t.req.Device.Info().Kind == device.Host {
		shifts = append(shifts, 0)
	}
	for _, p := range t.req.Peers {
		if p.Device.Info().Kind == device.Host {
			shifts = append(shifts, p.To-p.From)
		}
	}
	copies := int64(len(shifts))
	places := func(yield func(hostmem.Span) bool) {
		for _, shift := range shifts {
			for _, s := range t.req.Segments {
				if !yield(hostmem.Span{At: uintptr(s.Dst + shift), Len: s.Wanted()}) {
					return
				}
			}
		}
	}
	done, err := hostmem.Promise("load to host memory", copies*t.total, places,
		func() int64 { return copies * (t.total - t.delivered.Load()) })
	if err != nil {
		return err
	}
	t.memory = done
	return nil
}
