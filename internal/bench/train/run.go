// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"errors"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// Run measures the loader alone, the copy alone and then the simulated training, and diagnoses what the training
// waited for. When Run returns, with or without an error, no copy or step is queued and all its memory is freed.
//
// If ctx ends, Run returns the result so far, with Interrupted set, and an error of kind Cancelled. If Run fails with
// an error of another kind, the result may be incomplete. Run does not close the files, the device and the engine of
// its Config.
func Run(ctx context.Context, c Config) (record.Train, error) { return run(ctx, c, hooks{}) }

func run(ctx context.Context, c Config, h hooks) (record.Train, error) {
	p, err := c.check()
	if err != nil {
		return record.Train{}, err
	}
	r := &rig{plan: p, hooks: h}
	t := r.describe()
	f := &figures{warmup: p.Warmup}
	if err = r.open(); err == nil {
		err = r.phases(ctx, &t, f)
	}
	// What failed first explains what fails while things are freed.
	if cerr := r.close(); err == nil {
		err = cerr
	}
	err = stopped(err)
	t.Interrupted = errs.Is(err, errs.Cancelled)
	f.fill(&t)
	t.Timing = r.timing()
	if t.Routes == nil {
		t.Routes = r.took.list()
	}
	t.Notes = r.notes
	bound, why, next := Diagnose(t, p.Limits)
	t.Bound, t.Why, t.Next = string(bound), why, next
	return t, err
}

func (r *rig) describe() record.Train {
	info := r.Device.Info()
	t := record.Train{Workload: r.Workload, StepSeconds: r.StepTime.Seconds(), BatchBytes: r.SampleBytes * int64(r.Batch),
		Batch:       r.Batch,
		SampleBytes: r.SampleBytes, Memory: r.Memory, Route: r.Route, Pattern: r.Pattern, Workers: r.Workers,
		Prefetch: r.Prefetch,
		Warmup:   r.Warmup, WantedAU: r.WantedAU, Step: "spin kernel on " + info.ID}
	if info.Kind == device.Host {
		t.Step = "wait on host"
	}
	return t
}

// timing returns the name of the clock that measures steps. On host devices, stamps are times of the host's clock.
func (r *rig) timing() string {
	if r.timed() && r.Device.Info().Kind != device.Host {
		return "device events"
	}
	return "host clock"
}

func (r *rig) phases(ctx context.Context, t *record.Train, f *figures) (err error) {
	before, after := roundsBefore, roundsAfter
	if r.Memory == Engine && r.Host == nil {
		before, after = before+after, 0 // the memory that it reads into is freed before the run
	}
	if err := r.loaderAlone(ctx, t, before); err != nil {
		return err
	}
	if err := r.copyAlone(ctx, t); err != nil {
		return err
	}
	if r.engine() { // it has staging of its own
		for _, pl := range r.places {
			if err := pl.closeHost(); err != nil {
				return err
			}
		}
	}
	if err := r.cool(); err != nil {
		return err
	}
	r.took = routes{} // the run's alone
	if err := r.train(ctx, t, f); err != nil {
		return err
	}
	t.Routes = r.took.list()
	return r.loaderAlone(ctx, t, after)
}

// cool drops the page cache if Drop is set.
func (r *rig) cool() error {
	if !r.Drop {
		return nil
	}
	left, err := r.drop()
	if err == nil && left > 0 {
		r.note("%s of the data set stayed in the page cache although it was dropped", units.Bytes(left))
	}
	return err
}

// train is the run itself, with loader, copier, consumer and reaper.
func (r *rig) train(ctx context.Context, t *record.Train, f *figures) error {
	s := stretch{batches: r.Warmup + r.Steps}
	free := make(chan *place, len(r.places))
	for _, pl := range r.places {
		free <- pl
	}
	toStep, stepped := make(chan *place, len(r.places)), make(chan *place)
	g := newGroup(ctx)
	start := r.hooks.now()
	if r.Memory == Loader {
		if err := loadByLoader(r, g, s, free, toStep); err != nil {
			return err
		}
	} else if r.Memory == Engine {
		r.loadByEngine(g, r.Device, s, free, toStep, func(rep report.Report) {
			for _, way := range rep.Routes {
				r.took.add(way.Route, way.Bytes)
			}
			if t.Workers = rep.Engine.Workers; r.route == report.RouteDirect {
				t.Workers = rep.Engine.QueueDepth
			}
		})
	} else {
		loading := make(chan *place, len(r.places))
		r.load(g, s, free, loading)
		r.copy(g, s, loading, toStep)
	}
	g.run(func() error {
		for range s.batches {
			pl, ok := take(g, toStep)
			if !ok {
				return nil
			}
			if err := r.step(g, pl); err != nil {
				return err
			}
			if !give(g, stepped, pl) {
				return nil
			}
		}
		return nil
	})
	g.run(func() error {
		for range s.batches {
			pl, ok := take(g, stepped)
			if !ok {
				return nil
			}
			if _, ok := take(g, pl.ready); !ok && g.ctx.Err() != nil {
				return nil
			}
			err := r.reap(pl, start, f)
			pl.giveBack()
			if err != nil {
				return err
			}
			if r.Progress != nil {
				r.Progress("train", pl.batch+1, s.batches)
			}
			free <- pl
		}
		return nil
	})
	return g.wait()
}

// copy queues each batch on the copy queue once the batch is complete, and records when it arrived.
func (r *rig) copy(g *group, s stretch, in <-chan *place, out chan<- *place) {
	arriving := make(chan *place, len(r.places))
	g.run(func() error {
		for range s.batches {
			pl, ok := take(g, in)
			if !ok {
				return nil
			}
			if _, ok := take(g, pl.loaded); !ok && g.ctx.Err() != nil {
				return nil
			}
			if err := errors.Join(r.copies.CopyIn(pl.dev.Ptr(), pl.host.Bytes()[:r.slotBytes()]),
				pl.copied.Record()); err != nil {
				return errs.Wrap("copy a batch to", r.Device.Info().ID, err)
			}
			if !give(g, arriving, pl) || !give(g, out, pl) {
				return nil
			}
		}
		return nil
	})
	g.run(func() error {
		for range s.batches {
			pl, ok := take(g, arriving)
			if !ok {
				return nil
			}
			if err := pl.copied.Wait(); err != nil {
				return errs.Wrap("copy a batch to", r.Device.Info().ID, err)
			}
			pl.readyAt = r.hooks.now()
			close(pl.ready)
		}
		return nil
	})
}

// step queues the step of a batch behind the batch's copy. At most two steps are queued at a time, the running one
// and the next, so that a stopped run ends soon.
func (r *rig) step(g *group, pl *place) error {
	if !r.engine() {
		if r.follow != nil {
			if err := r.follow.Follow(pl.copied); err != nil {
				return err
			}
		} else if _, ok := take(g, pl.ready); !ok && g.ctx.Err() != nil {
			return nil
		}
	}
	i := pl.batch % stampRing
	var all []error
	if r.timed() {
		all = append(all, r.begin[i].Record(), r.steps.Step(r.StepTime), r.end[i].Record())
	} else {
		all = append(all, r.steps.Step(r.StepTime))
	}
	return errors.Join(append(all, pl.ended.Record())...)
}

// reap waits for a batch's step and records its times.
func (r *rig) reap(pl *place, start time.Time, f *figures) error {
	var busy, idle time.Duration
	ready := pl.readyAt.Sub(start)
	k := pl.batch
	if r.timed() {
		var err error
		if busy, err = r.end[k%stampRing].Since(r.begin[k%stampRing]); err != nil {
			return errs.Wrap("run a step on", r.Device.Info().ID, err)
		}
		if idle = ready; k > 0 {
			if idle, err = r.begin[k%stampRing].Since(r.end[(k-1)%stampRing]); err != nil {
				return errs.Wrap("run a step on", r.Device.Info().ID, err)
			}
		}
	} else {
		if err := pl.ended.Wait(); err != nil {
			return errs.Wrap("run a step on", r.Device.Info().ID, err)
		}
		begin := max(ready, f.end)
		busy, idle = r.hooks.now().Sub(start)-begin, begin-f.end
	}
	f.add(ready, max(idle, 0), max(busy, 0))
	if r.hooks.step != nil {
		r.hooks.step(k, pl.at())
	}
	return nil
}
