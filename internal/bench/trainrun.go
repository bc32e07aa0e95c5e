// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bench/train"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Warm reads the session's files into the page cache, for runs that need a warm cache.
func (s *Session) Warm(ctx context.Context) error { return warm(ctx, s.Set) }

// Train performs a run that simulates training on the session's files and device, and records its result. If the run
// is interrupted, Train keeps its result and returns an error of kind Cancelled.
func (s *Session) Train(ctx context.Context, c train.Config) (record.Train, error) {
	c.Device, c.Engine, c.Files = s.Device, s.Engine, s.Set.Files()
	c.Limits.CPUs = runtime.NumCPU()
	var storage float64
	seen := map[string]bool{}
	for _, st := range s.File.Machine.Storage {
		if seen[StorageKey(st)] { // two directories of one disk share its limit
			continue
		}
		seen[StorageKey(st)] = true
		if l, ok := s.File.Ceilings.Find(record.StorageRead, StorageKey(st)); ok {
			storage += l.GBps
		}
	}
	c.Limits.StorageGBps = storage
	before, how := s.Set.Resident()
	t, err := train.Run(ctx, c)
	after, _ := s.Set.Resident()
	t.Proof = "the loader's own count of each read, warm-up included"
	t.Cache = &record.Cache{Dataset: s.Set.Bytes(), Memory: s.File.Machine.Memory, Before: before, After: after,
		Probe: how}
	t.Cache.Verdict, t.Cache.Why = verdict(string(Read), false, t.Routes)
	s.File.Seconds = time.Since(s.File.Started).Seconds()
	if err != nil && !(t.Interrupted && errs.Is(err, errs.Cancelled)) {
		return t, err
	}
	s.File.Train = &t
	s.File.Interrupted = s.File.Interrupted || t.Interrupted
	return t, err
}

// depths are the prefetch depths of the sweep.
var depths = [...]int{0, 1, 2, 4, 8}

// Prefetch measures how many batches must be loaded ahead to keep the device busy. If base has no step time, Prefetch
// chooses the step time with which loading can just keep up. The number of batches loaded ahead matters most if
// loading is only just fast enough.
func (s *Session) Prefetch(ctx context.Context, base train.Config) error {
	kept := s.File.Train
	defer func() { s.File.Train = kept }()
	if base.StepTime == 0 {
		probe := base
		probe.StepTime, probe.Steps, probe.Prefetch = time.Millisecond, 2, 1
		t, err := s.Train(ctx, probe)
		if err != nil {
			return err
		}
		base.StepTime = time.Duration(1.2 * (t.Isolated + t.Copy) * float64(time.Second)).Round(10 * time.Microsecond)
		base.StepTime = max(base.StepTime, 200*time.Microsecond)
	}
	sweep := record.Sweep{ID: "prefetch", Question: "How many batches ahead keep the device busy?", Axis: "batches ahead",
		Unit: "count"}
	var stopped error
	var busy []record.Train
	for _, n := range depths {
		c := base
		c.Prefetch = n
		t, err := s.Train(ctx, c)
		if errs.Is(err, errs.NoMemory) {
			s.File.Notes = append(s.File.Notes, fmt.Sprintf("a prefetch of %d batches was left out: %v", n, err))
			break
		}
		if err != nil && !t.Interrupted {
			return err
		}
		s.File.Runs = append(s.File.Runs, trainingRun(t))
		sweep.Points = append(sweep.Points, record.SweepPoint{Series: "training", X: float64(n), Label: strconv.Itoa(n),
			Run: len(s.File.Runs) - 1, AU: t.AU})
		busy = append(busy, t)
		if stopped = err; err != nil {
			break
		}
	}
	sweep.Answer = prefetchAnswer(busy)
	s.File.Sweeps = append(s.File.Sweeps, sweep)
	return stopped
}

// trainingRun converts the result of a training-shaped run into a Run, for the list of runs.
func trainingRun(t record.Train) record.Run {
	n := int64(t.GBps * 1e9 * t.Seconds)
	r := record.Run{Name: fmt.Sprintf("training, %d batches ahead", t.Prefetch),
		Settings: record.Settings{Op: string(Read), Route: t.Route, Memory: t.Memory, Pattern: t.Pattern,
			BlockSize: t.SampleBytes,
			Workers:   t.Workers, QueueDepth: 1, IO: "train", Prefetch: t.Prefetch, Cache: string(AsIs), Limit: "bytes"},
		Bytes: n, Ops: int64(t.Steps * t.Batch), Seconds: t.Seconds, GBps: t.GBps, IOPS: t.SamplesPerSec,
		Last: record.Done{Seconds: t.Seconds, Bytes: n, GBps: t.GBps}, Routes: t.Routes, Proof: t.Proof, Cache: t.Cache,
		Interrupted: t.Interrupted,
		Notes: []string{fmt.Sprintf("accelerator utilisation %.0f %%, step %s, waited %s a step", 100*t.AU,
			span(t.Target), span(t.Idle))}}
	return r
}

func span(seconds float64) string {
	return units.Duration(time.Duration(seconds * float64(time.Second)))
}

func prefetchAnswer(all []record.Train) string {
	if len(all) < 2 {
		return "not enough measurements for an answer"
	}
	best := all[0]
	for _, t := range all {
		if t.AU > best.AU {
			best = t
		}
	}
	first := best
	for _, t := range all {
		if t.AU >= 0.97*best.AU {
			first = t
			break
		}
	}
	text := fmt.Sprintf("With steps of %s, the device is busy %.0f %% of the time without prefetch and %.0f %% with %d.",
		span(all[0].Target), 100*all[0].AU, 100*first.AU, first.Prefetch)
	switch {
	case first.Prefetch == 0:
		return fmt.Sprintf("With steps of %s the device is busy %.0f %% of the time without any prefetch; more gains "+
			"nothing.", span(all[0].Target), 100*all[0].AU)
	case first.Prefetch < all[len(all)-1].Prefetch:
		text += " More gains nothing but uses memory."
	}
	if best.AU < 0.9 && best.Bound != string(bottleneck.Unclear) {
		text += fmt.Sprintf(" The device still waits: it is %s.", best.Bound)
	}
	return text
}
