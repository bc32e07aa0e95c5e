// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// group is goroutines that end together: the first error ends them all.
type group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

func newGroup(parent context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancelCause(parent)
	return g
}

func (g *group) run(f func() error) {
	g.wg.Go(func() {
		if err := f(); err != nil {
			g.cancel(err)
		}
	})
}

// wait returns when all have ended, with what ended them, nil when they were done.
func (g *group) wait() error {
	g.wg.Wait()
	err := context.Cause(g.ctx)
	g.cancel(nil)
	return err
}

// take receives from c, give sends to it; both are false when the group ends.
func take[T any](g *group, c <-chan T) (v T, ok bool) {
	select {
	case v, ok = <-c:
		return v, ok
	case <-g.ctx.Done():
		return v, false
	}
}

func give[T any](g *group, c chan<- T, v T) bool {
	select {
	case c <- v:
		return true
	case <-g.ctx.Done():
		return false
	}
}

// stretch is a part of the endless row of samples: so many batches from a
// position on.
type stretch struct {
	from    int64
	batches int
}

func (r *rig) order() epochs {
	return epochs{total: r.layout.total, random: r.Pattern == Random, seed: r.Seed}
}

// turn drops the page cache where batch k of s is the first to reach into an
// epoch, if that is asked for.
func (r *rig) turn(s stretch, k int) error {
	if !r.Drop || k == 0 {
		return nil
	}
	o, last := r.order(), s.from+int64(k+1)*int64(r.Batch)-1
	if o.epoch(last) == o.epoch(last-int64(r.Batch)) {
		return nil
	}
	_, err := r.drop()
	return err
}

// load starts workers that fill places from free with the batches of s and
// hands the places out in order, before they are full: loaded says when.
func (r *rig) load(g *group, s stretch, free <-chan *place, out chan<- *place) {
	type job struct {
		pl     *place
		at     int
		sample int64
	}
	jobs := make(chan job, r.Workers)
	g.run(func() error {
		defer close(jobs)
		o := r.order()
		for k := range s.batches {
			pl, err := nextPlace(r, g, s, k, free)
			if pl == nil {
				return err
			}
			if !give(g, out, pl) {
				return nil
			}
			for i := range r.Batch {
				if !give(g, jobs, job{pl, i, o.sample(s.from + int64(k)*int64(r.Batch) + int64(i))}) {
					return nil
				}
			}
		}
		return nil
	})
	for range r.Workers {
		g.run(func() error {
			for {
				j, ok := take(g, jobs)
				if !ok {
					return nil
				}
				dst := j.pl.host.Bytes()[int64(j.at)*r.stride:][:r.stride]
				if err := r.read(j.sample, dst); err != nil {
					return err
				}
				if j.pl.left.Add(-1) == 0 {
					close(j.pl.loaded)
				}
			}
		})
	}
}

// nextPlace takes a free place for batch k of s. It returns nil if the run has ended or failed.
func nextPlace(r *rig, g *group, s stretch, k int, free <-chan *place) (*place, error) {
	pl, ok := take(g, free)
	if !ok {
		return nil, nil
	}
	if err := r.turn(s, k); err != nil {
		return nil, err
	}
	pl.settle(k, r.Batch)
	return pl, nil
}

// read brings one sample into host memory.
func (r *rig) read(sample int64, dst []byte) error {
	if r.hooks.read != nil {
		return r.hooks.read(sample, dst)
	}
	file, off := r.layout.at(sample)
	return r.readSample(r.Files[file], off, dst, &r.took)
}

// loadByEngine is load with the transfer engine, which also copies: places are
// handed out when their batch is in dev's memory. Two transfers run at once, so
// that one begins while the other ends. told, if set, is given each report.
func (r *rig) loadByEngine(g *group, dev device.Device, s stretch, free <-chan *place, out chan<- *place,
	told func(report.Report)) {
	type move struct {
		pl *place
		t  *transfer.Load
	}
	moving := make(chan move)
	g.run(func() error {
		defer close(moving)
		for k := range s.batches {
			pl, err := nextPlace(r, g, s, k, free)
			if pl == nil {
				return err
			}
			t, err := r.Engine.Start(g.ctx, r.request(dev, pl.dev.Ptr(), s.from+int64(k)*int64(r.Batch)))
			if err != nil {
				return err
			}
			moving <- move{pl, t} // received to the end: a transfer owns its place until then
		}
		return nil
	})
	g.run(func() error {
		var first error
		for m := range moving {
			if err := m.t.Err(); err != nil {
				if first == nil && g.ctx.Err() == nil {
					first = err
					g.cancel(err)
				}
				continue
			}
			if told != nil {
				told(m.t.Report())
			}
			m.pl.readyAt = r.hooks.now()
			close(m.pl.loaded)
			close(m.pl.ready)
			give(g, out, m.pl)
		}
		return first
	})
}

// request is one batch as a transfer: a segment for each sample.
func (r *rig) request(dev device.Device, to device.Ptr, from int64) transfer.Request {
	req := transfer.Request{Device: dev, Route: r.route, Segments: make([]transfer.Segment, r.Batch)}
	o, index := r.order(), map[*vfs.File]int{}
	for i := range r.Batch {
		file, off := r.layout.at(o.sample(from + int64(i)))
		f := r.Files[file]
		n, ok := index[f]
		if !ok {
			n = len(req.Files)
			index[f] = n
			req.Files = append(req.Files, f)
		}
		req.Segments[i] = transfer.Segment{File: n, Off: off, Len: r.SampleBytes, Dst: to + device.Ptr(int64(i)*r.stride)}
	}
	return req
}

// stopped turns the end of a context into an error of kind Cancelled.
func stopped(err error) error {
	if errs.Is(err, errs.Cancelled) {
		return &errs.Error{Kind: errs.Cancelled, Op: "train", Msg: "stopped before its last step", Err: err}
	}
	return err
}

func gbps(bytes int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) / seconds / 1e9
}
