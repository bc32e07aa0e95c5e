// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// recorder is a profiler that checks that every operation that began has ended once. All engines of the tests have one.
type recorder struct {
	mu    sync.Mutex
	next  uint64
	open  map[uint64]string
	names map[string]int
	wrong []uint64 // ended without a beginning
}

func newRecorder() *recorder { return &recorder{open: map[uint64]string{}, names: map[string]int{}} }

// Begin implements tally.Tracer.
func (r *recorder) Begin(stage string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	r.open[r.next] = stage
	r.names[stage]++
	return r.next
}

// End implements tally.Tracer.
func (r *recorder) End(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.open[number]; !ok {
		r.wrong = append(r.wrong, number)
	}
	delete(r.open, number)
}

// check fails a test in which an operation did not end, or ended twice. The engine is closed.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) > 0 {
		t.Errorf("operations that a profiler would show for ever: %v", slices.Sorted(maps.Values(r.open)))
	}
	if len(r.wrong) > 0 {
		t.Errorf("%d operations ended twice", len(r.wrong))
	}
}

// A profiler sees the stages by the names that reports have.
func TestAProfilerSeesTheStagesOfReports(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	gpu := g.Open("cuda:0")
	path, _ := writeFile(t, 9*units.MiB, 1)
	f := openFile(t, path)
	requireDirect(t, f)
	seen := newRecorder()
	e := newEngine(t, Options{Trace: seen})
	all := []report.Report{}
	dropped(t, f)
	for _, route := range []report.Route{report.RouteDirect, report.RouteBuffered} {
		_, r := loadGPU(t, g, e, gpu, f, route)
		all = append(all, r)
	}
	_, src := scattered(t, 3, 5*units.MiB, gpu)
	s := startWrite(t, e, t.Context(), WriteRequest{Path: path + ".saved", Sources: src, Checksums: true})
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	all = append(all, s.Report())
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, r := range all {
		for _, stage := range r.Stages {
			if stage.Bytes > 0 && seen.names[stage.Stage] == 0 {
				t.Errorf("the %s has the stage %s, and the profiler saw %v", r.Direction, stage.Stage, seen.names)
			}
		}
	}
	for _, name := range []string{"load", "save", "plan", "read_direct", "read_cache", "copy", "wait_copy", "checksum",
		"write"} {
		if seen.names[name] == 0 {
			t.Errorf("the profiler did not see %s: %v", name, seen.names)
		}
	}
}

// The report says why a profiler that runs the program sees nothing.
func TestAReportSaysWhyNoProfilerSeesIt(t *testing.T) {
	path, _ := writeFile(t, 4096, 1)
	e := newEngine(t, Options{TraceError: errs.New(errs.NotFound, "connect to the profiler", "x.so",
		"is missing").WithFix("y")})
	for _, dev := range devices() {
		_, r := load(t, e, dev, openFile(t, path), report.RouteAuto, report.CacheKeep)
		if !slices.ContainsFunc(r.Refusals, func(x report.Refusal) bool { return x.What == "profiler" && x.Fix == "y" }) {
			t.Errorf("%+v", r.Refusals)
		}
	}
}
