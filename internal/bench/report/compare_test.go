// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// later is the same evening after a change: names and order are others, one
// run is slower, one was served by memory, one has another block size.
func later() *record.File {
	f := h200()
	f.Version, f.Machine.Kernel = "0.4.0", "6.14.0-29-generic"
	f.Sweeps, f.Runs = nil, slices.Clone(f.Runs[:5])
	slices.Reverse(f.Runs)
	for i := range f.Runs {
		f.Runs[i].Name += " (new)"
	}
	direct, warm, pageable := &f.Runs[4], &f.Runs[3], &f.Runs[2]
	direct.GBps, direct.Passes = 12.1, nil
	direct.Routes = []record.Route{{Route: "page_cache", Bytes: direct.Bytes}}
	c := *direct.Cache
	c.Verdict = "memory"
	direct.Cache = &c
	warm.GBps = 41.9
	pageable.Settings.BlockSize = mebi
	return f
}

func earlier() *record.File {
	f := h200()
	f.Sweeps, f.Runs = nil, f.Runs[:5]
	return f
}

func TestComparison(t *testing.T) {
	golden(t, "compare.txt", func(w io.Writer) error { return WriteComparison(w, Compare(earlier(), later())) })
	golden(t, "compare-train.txt", func(w io.Writer) error { return WriteComparison(w, Compare(training(), training())) })
	golden(t, "compare-wrong.txt", func(w io.Writer) error { return WriteComparison(w, Compare(stopped(), wrong())) })
}

func TestRunsAreMatchedByWhatTheyWereAsked(t *testing.T) {
	c := Compare(earlier(), later())
	if len(c.Pairs) != 4 || len(c.OnlyA) != 1 || len(c.OnlyB) != 1 {
		t.Fatalf("%d pairs, %d and %d alone", len(c.Pairs), len(c.OnlyA), len(c.OnlyB))
	}
	if !slices.Equal(c.OnlyA[0].Differs, []string{"block size 4 MiB against 1 MiB"}) {
		t.Errorf("differs: %q", c.OnlyA[0].Differs)
	}
	if p := c.Pairs[0]; p.Verdict != Faster || !strings.Contains(p.Why,
		"not like for like: a rate of storage against one of memory") {
		t.Errorf("storage against page cache is %q because %q", p.Verdict, p.Why)
	}
	if p := c.Pairs[1]; p.Verdict != Slower || math.Abs(c.Worst-(1-41.9/52.3)) > 1e-9 || c.WorstName != p.Name {
		t.Errorf("%+v, worst %v of %s", p, c.Worst, c.WorstName)
	}
	if p := c.Pairs[2]; p.Verdict != Same || p.Rate != 1 {
		t.Errorf("%+v", p)
	}
	want := math.Pow(12.1/3.88*41.9/52.3, 0.25)
	if math.Abs(c.Mean-want) > 1e-9 {
		t.Errorf("mean %v, expected %v", c.Mean, want)
	}
	for _, what := range []string{"version", "kernel", "measured", "route taken"} {
		if !slices.ContainsFunc(c.Differences, func(d Difference) bool { return d.What == what }) {
			t.Errorf("that %s differs is not told", what)
		}
	}
	if _, err := json.Marshal(c); err != nil {
		t.Error(err)
	}
}

func TestRepeatedSettingsAreMatchedInOrderSamePathsFirst(t *testing.T) {
	run := func(path string, gbps float64) record.Run {
		return record.Run{Name: path, GBps: gbps, Settings: record.Settings{Op: "read", Paths: []string{path}}}
	}
	a := &record.File{Runs: []record.Run{run("/x", 1), run("/y", 2), run("/y", 3)}}
	b := &record.File{Runs: []record.Run{run("/z", 1), run("/y", 2), run("/y", 3)}}
	c := Compare(a, b)
	if len(c.Pairs) != 3 {
		t.Fatalf("%+v", c)
	}
	for i, p := range c.Pairs {
		if p.Rate != 1 || p.Verdict != Same {
			t.Errorf("pair %d: %+v", i, p)
		}
	}
	if len(c.Differences) != 1 || c.Differences[0].What != "paths" {
		t.Errorf("%+v", c.Differences)
	}
}

func TestNoiseDecides(t *testing.T) {
	passes := func(v ...float64) []record.Pass {
		var out []record.Pass
		for _, x := range v {
			out = append(out, record.Pass{GBps: x})
		}
		return out
	}
	series := func(v float64) []record.Point {
		var out []record.Point
		for i := range 16 {
			out = append(out, record.Point{At: float64(i + 1), GBps: 10 + v*float64(i%4-2)})
		}
		return out
	}
	for _, c := range []struct {
		name string
		a, b record.Run
		want Verdict
		from string
	}{
		{"steady passes show 3 %", record.Run{GBps: 10, Passes: passes(10, 10.05)},
			record.Run{GBps: 10.3, Passes: passes(10.3, 10.3)}, Faster, "passes"},
		{"less than 1 % is nothing", record.Run{GBps: 10, Passes: passes(10, 10)},
			record.Run{GBps: 9.91, Passes: passes(9.91, 9.91)}, Same, "passes"},
		{"wide passes hide 20 %", record.Run{GBps: 10, Passes: passes(8, 12)}, record.Run{GBps: 12, Passes: passes(12, 12)},
			Same, "passes"},
		{"intervals speak where there are no passes", record.Run{GBps: 10, Series: series(0.1)},
			record.Run{GBps: 9.5, Series: series(0.1)}, Slower, "intervals"},
		{"wild intervals", record.Run{GBps: 10, Series: series(1)}, record.Run{GBps: 9.5, Series: series(0.1)}, Same,
			"intervals"},
		{"once: 4 % is nothing", record.Run{GBps: 10}, record.Run{GBps: 9.6}, Same, "one measurement: noise unknown"},
		{"once: 6 % is something", record.Run{GBps: 10}, record.Run{GBps: 9.4}, Slower, "one measurement: noise unknown"},
		{"one of them once", record.Run{GBps: 10, Passes: passes(10, 10)}, record.Run{GBps: 9.6}, Same,
			"one measurement: noise unknown"},
		{"wrong data", record.Run{GBps: 10}, record.Run{GBps: 20, Verify: &record.Verify{Mismatches: 1}}, Incomparable,
			"one measurement: noise unknown"},
		{"nothing moved", record.Run{}, record.Run{GBps: 20}, Incomparable, "one measurement: noise unknown"},
	} {
		p, _ := pair(&c.a, &c.b)
		if p.Verdict != c.want || p.From != c.from {
			t.Errorf("%s: %+v, expected %q from %q", c.name, p, c.want, c.from)
		}
	}
}

func TestCheckIsAnExitCode(t *testing.T) {
	if err := Compare(h200(), h200()).Check(0); err != nil {
		t.Errorf("nothing changed: %v", err)
	}
	c := Compare(earlier(), later())
	if err := c.Check(0.25); err != nil {
		t.Errorf("20 %% lost, 25 %% allowed: %v", err)
	}
	if err := c.Check(0.05); err == nil || !strings.Contains(err.Error(),
		"engine to cuda:0, warm: lost 20 % of its rate; a loss of at most 5 %") {
		t.Errorf("20 %% lost, 5 %% allowed: %v", err)
	}
	if err := Compare(h200(), hostOnly()).Check(1); !errs.Is(err, errs.Invalid) {
		t.Errorf("nothing was compared: %v", err)
	}
	if c := Compare(stopped(), wrong()); c.Worst != 1 || c.Check(0.5) == nil {
		t.Errorf("wrong data passes: %+v", c)
	}
}

func TestALossOfSamplesCounts(t *testing.T) {
	b := training()
	b.Train.SamplesPerSec /= 2
	b.Train.Cache.Verdict = "memory"
	if c := Compare(training(), b); len(c.Differences) != 1 || c.Differences[0].What != "measured" {
		t.Errorf("cached against cold: %+v", c.Differences)
	}
	if c := Compare(training(), b); c.Check(0.4) == nil || c.Check(0.6) != nil || c.WorstName != "unet3d" {
		t.Errorf("half of the samples: %+v", c)
	}
}
