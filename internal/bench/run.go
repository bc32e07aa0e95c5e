// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/dataset"
	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Job is one run, together with the files, the device and the engine that it uses.
type Job struct {
	Spec Spec
	Set  *dataset.Set
	// Device is the source or destination of the run's bytes, unless Memory is Host. Engine is needed only if Memory
	// is Engine, and OpenDirect (which opens cuFile) only if Memory is CuFile. If a run does not need Engine or
	// OpenDirect, that field may be nil.
	Device     device.Device
	Engine     *transfer.Engine
	OpenDirect func(ctx context.Context) (device.Direct, error)
	// Ceilings are the machine's measured limits, with which the run's rate is compared; nil if they are not known.
	Ceilings *record.Ceilings
	Machine  record.Machine
	// Live, if not nil, is called several times a second with the progress of the run, always from one goroutine.
	Live func(Live)
}

// Live is the progress of a run.
type Live struct {
	Name    string
	Done    int64 // bytes that the run has moved so far
	Total   int64 // number of bytes that the run moves; 0 if the run ends after a given time
	Elapsed time.Duration
	Limit   time.Duration // longest duration of the run; 0 if a number of bytes ends the run
	GBps    float64       // rate of the last interval in GB/s
	Rates   []float64     // rates of the last intervals in GB/s, oldest first
}

// Run performs the run of one Job and returns the measured result. If ctx ends, Run returns the results measured so
// far, marked as interrupted. If Run returns an error, there is no result.
func Run(ctx context.Context, j Job) (record.Run, error) {
	j.Spec = j.Spec.withDefaults()
	if err := j.Spec.Check(); err != nil {
		return record.Run{}, err
	}
	m, err := newMeasure(ctx, j)
	if err != nil {
		return record.Run{}, err
	}
	err = m.all(ctx)
	if cerr := m.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return record.Run{}, err
	}
	return m.out, nil
}

// mover moves the bytes of one pass.
type mover interface {
	// pass goes over the data once, or until stop, counting into the meter.
	pass(ctx context.Context, m *meter) error
	// finish adds what only it knows to the result.
	finish(r *record.Run) error
	close() error
}

// measure is one run in progress.
type measure struct {
	Job
	meter *meter
	mover mover
	out   record.Run
	spent counters
}

func newMeasure(ctx context.Context, j Job) (*measure, error) {
	m := &measure{Job: j, out: record.Run{Name: j.Spec.Name()}}
	route, err := m.settle()
	if err != nil {
		return nil, err
	}
	if named := j.Spec; route == Direct && j.Spec.Memory != Engine {
		named.Route = route // past a cache that was filled all the same
		m.out.Name = named.Name()
	}
	m.meter = newMeter(j, route)
	if j.Spec.Memory == Engine {
		m.mover, err = newEngineMover(j)
	} else {
		m.mover, err = newLanes(ctx, j, route)
	}
	if err != nil {
		return nil, err
	}
	m.out.Settings = m.settings()
	return m, nil
}

// settle chooses between direct and buffered if the Spec leaves the route open. It records the reason if the choice
// is not the faster route.
func (m *measure) settle() (Route, error) {
	if m.Spec.Memory == Engine {
		return m.Spec.Route, nil
	}
	for _, f := range m.Set.Files() {
		ok, why := f.Direct()
		if ok {
			continue
		}
		reason, fix := "the file system refuses O_DIRECT", "give --route buffered"
		if why != nil {
			reason = why.Reason
		}
		if m.Spec.Route == Direct {
			return "", errs.New(errs.Unsupported, "read past the page cache", f.Path(), reason).WithFix(fix)
		}
		if m.Spec.Route == Auto {
			m.out.Refusals = append(m.out.Refusals, record.Refusal{What: "direct", Reason: reason})
		}
		return Buffered, nil
	}
	if m.Spec.Route == Auto {
		return Direct, nil
	}
	return m.Spec.Route, nil
}

func (m *measure) settings() record.Settings {
	s := m.Spec
	out := record.Settings{Op: string(s.Op), Route: string(s.Route), Memory: string(s.Memory), Pattern: string(s.Pattern),
		BlockSize: s.BlockSize, Workers: s.Workers, QueueDepth: s.QueueDepth, IO: string(s.IO),
		Cache: string(s.Cache), Seed: s.Seed, Sync: s.Op == Write && !s.NoSync, Limit: "bytes"}
	switch {
	case s.Memory == Engine || s.Memory == CuFile:
		out.IO = string(s.Memory)
	case s.SmallPages:
		out.Pages = "small"
	default:
		out.Pages = "huge"
	}
	switch {
	case s.Stable > 0:
		out.Limit = "stable"
	case s.Time > 0:
		out.Limit = "time"
	}
	for _, g := range m.Set.Groups {
		out.Paths = append(out.Paths, g.Path)
	}
	files := m.Set.Files()
	out.Files, out.FileSize = len(files), files[0].Size()
	return out
}

// all runs all passes.
func (m *measure) all(ctx context.Context) error {
	if err := m.prepare(ctx); err != nil {
		return err
	}
	before, how := m.Set.Resident()
	spent := readCounters(m.Set)
	unwatch := sync.OnceFunc(m.meter.watch(ctx))
	defer unwatch()
	for n := 1; ; n++ {
		if n > 1 && m.redrop() {
			if _, err := m.Set.Drop(); err != nil {
				return err
			}
		}
		if err := m.meter.pass(ctx, m.mover); err != nil {
			return err
		}
		if ctx.Err() != nil || m.meter.over() || (m.Spec.Passes > 0 && n >= m.Spec.Passes) {
			break
		}
	}
	unwatch()
	m.spent = readCounters(m.Set).since(spent)
	m.out.Interrupted = ctx.Err() != nil
	after, _ := m.Set.Resident()
	m.meter.result(&m.out)
	m.describe(before, after, how)
	if err := m.mover.finish(&m.out); err != nil {
		return err
	}
	m.share()
	if name := m.Set.Missing(); name != "" {
		m.out.Notes = append(m.out.Notes, name+" was renamed or removed during the run: the results are of the open file")
	}
	return nil
}

// redrop reports whether a pass would find pages in the page cache that the previous pass left.
func (m *measure) redrop() bool { return m.Spec.Op == Read && m.Spec.Cache == Cold && !m.pastCache() }

func (m *measure) pastCache() bool { return m.meter.route == Direct && m.Spec.Memory != Engine }

// prepare brings the page cache into the state that the Spec asks for.
func (m *measure) prepare(ctx context.Context) error {
	if m.Spec.Op == Write {
		return nil
	}
	switch m.Spec.Cache {
	case Cold:
		left, err := m.Set.Drop()
		if err != nil {
			return err
		}
		if left > 0 && !m.pastCache() {
			m.out.Notes = append(m.out.Notes, fmt.Sprintf("%s of the files stayed in the page cache when it was dropped",
				units.Bytes(left)))
		}
	case Warm:
		return warm(ctx, m.Set)
	}
	return nil
}

// warm reads the files through the page cache, as far as memory allows.
func warm(ctx context.Context, set *dataset.Set) error {
	buf := make([]byte, 4*units.MiB)
	for _, f := range set.Files() {
		for off := int64(0); off < f.Size(); off += int64(len(buf)) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if _, err := f.ReadAt(buf[:min(int64(len(buf)), f.Size()-off)], off); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *measure) close() error { return m.mover.close() }

// describe adds the kernel's counts and the state of the page cache to the result.
func (m *measure) describe(before, after int64, how string) {
	r := &m.out
	r.CPU = record.CPU{User: m.spent.user.Seconds(), System: m.spent.system.Seconds()}
	if r.Bytes > 0 {
		r.CPU.PerGiB = (r.CPU.User + r.CPU.System) / (float64(r.Bytes) / float64(units.GiB))
	}
	r.Storage = m.spent.disk()
	r.Cache = &record.Cache{Dataset: m.Set.Bytes(), Memory: m.Machine.Memory, Before: before, After: after, Probe: how}
	if m.Spec.Memory != Engine && m.Spec.Memory != CuFile {
		r.Routes, r.Proof = m.meter.routes(m.Set, m.spent)
	}
}
