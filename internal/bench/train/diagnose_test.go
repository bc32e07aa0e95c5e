// SPDX-License-Identifier: Apache-2.0

package train

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
)

// healthy is a run that keeps its accelerator busy; cases change it.
func healthy() record.Train {
	return record.Train{Steps: 100, Batch: 8, SampleBytes: 4 << 20, BatchBytes: 32 << 20, Memory: Pinned, Route: "direct",
		Pattern: Sequential,
		Workers: 4, Prefetch: 2, AU: 0.99, Isolated: 0.010, Copy: 0.001, Target: 0.020, Idle: 0.0001, IdleP99: 0.0002}
}

func TestDiagnose(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*record.Train)
		limits Limits
		bound  bottleneck.Bound
		why    string
		next   []string // texts in this order, the first in the first advice
		not    string   // in no advice
	}{
		"all good": {func(t *record.Train) {}, Limits{}, bottleneck.Compute, "busy 99.0 %",
			[]string{"nothing"}, "workers"},
		"wanted utilisation is met": {func(t *record.Train) { t.AU, t.WantedAU, t.Idle = 0.92, 0.9, 0.0017 },
			Limits{}, bottleneck.Compute, "90 % are wanted", []string{"nothing"}, ""},
		"wanted utilisation is missed": {func(t *record.Train) { t.AU, t.WantedAU, t.Idle = 0.8, 0.9, 0.005 },
			Limits{}, bottleneck.Copy, "disturb", nil, ""},
		"idle is what counts, not the phase before": {func(t *record.Train) { t.Isolated = 0.030 }, Limits{},
			bottleneck.Compute, "", nil, ""},
		"too few workers": {func(t *record.Train) { t.Isolated, t.Idle = 0.050, 0.030 },
			Limits{CPUs: 16}, bottleneck.Storage, "50.0 ms", []string{"raise workers from 4 to 10", "engine",
				"faster storage"}, "pack"},
		"more workers than processors": {func(t *record.Train) { t.Isolated, t.Idle = 0.200, 0.180 },
			Limits{CPUs: 16}, bottleneck.Storage, "", []string{"from 4 to 16, all processors; 40 would be needed"}, ""},
		"all processors read": {func(t *record.Train) {
			t.Isolated, t.Idle, t.Workers = 0.050, 0.030,
				16
		}, Limits{CPUs: 16}, bottleneck.Storage, "", []string{"as many as there are processors (16)"}, "raise workers"},
		"processors unknown": {func(t *record.Train) { t.Isolated, t.Idle = 0.200, 0.180 }, Limits{},
			bottleneck.Storage, "", []string{"from 4 to 40"}, ""},
		"the disk is the limit": {func(t *record.Train) { t.Isolated, t.Idle = 0.0336, 0.014 },
			Limits{CPUs: 16, StorageGBps: 1.0}, bottleneck.Storage, "it would have to give 1.68 GB/s",
			[]string{"1.00 GB/s and the storage gives 1.00 GB/s: more workers cannot help"}, "raise workers"},
		"the disk has more": {func(t *record.Train) { t.Isolated, t.Idle = 0.0336, 0.014 },
			Limits{CPUs: 16, StorageGBps: 3.0}, bottleneck.Storage, "", []string{"raise workers from 4 to 7"}, "cannot help"},
		"small random reads at the disk's limit": {func(t *record.Train) {
			t.Isolated, t.Idle, t.SampleBytes, t.Pattern = 0.0336, 0.014, 64<<10, Random
		}, Limits{StorageGBps: 1.0}, bottleneck.Storage, "", []string{"cannot help", "pack samples of 64.00 KiB"}, ""},
		"small random reads": {func(t *record.Train) {
			t.Isolated, t.Idle, t.SampleBytes, t.Pattern, t.Route = 0.05, 0.03, 64<<10, Random, "buffered"
		}, Limits{CPUs: 64}, bottleneck.Storage, "", []string{"raise workers", "pack samples", "route direct", "engine"}, ""},
		"large random reads": {func(t *record.Train) { t.Isolated, t.Idle, t.Pattern = 0.05, 0.03, Random },
			Limits{}, bottleneck.Storage, "", nil, "pack"},
		"the engine reads": {func(t *record.Train) { t.Isolated, t.Idle, t.Memory = 0.05, 0.03, Engine },
			Limits{CPUs: 16}, bottleneck.Storage, "", []string{"queue depth"}, "workers"},
		"a slow loader without prefetch": {func(t *record.Train) { t.Isolated, t.Idle, t.Prefetch = 0.05, 0.051, 0 },
			Limits{}, bottleneck.Storage, "", []string{"workers", "raise prefetch from 0 to 2"}, ""},
		"no step at all": {func(t *record.Train) { t.Target, t.AU, t.Idle = 0, 0, 0.010 }, Limits{},
			bottleneck.Storage, "steps take no time", []string{"until the rate no longer grows"}, ""},
		"no step and a slow copy": {func(t *record.Train) { t.Target, t.AU, t.Idle, t.Copy = 0, 0, 0.030, 0.030 },
			Limits{}, bottleneck.Copy, "slower than the step", nil, "workers"},
		"a copy slower than step and loader": {func(t *record.Train) { t.Isolated, t.Copy, t.Idle = 0.025, 0.040, 0.020 },
			Limits{}, bottleneck.Copy, "40.0 ms to copy", []string{"engine", "send fewer bytes"}, "prefetch"},
		"a loader slower than a slow copy": {func(t *record.Train) { t.Isolated, t.Copy, t.Idle = 0.045, 0.040, 0.025 },
			Limits{}, bottleneck.Storage, "", nil, ""},
		"pageable memory": {func(t *record.Train) { t.Memory, t.Copy, t.Idle = Pageable, 0.025, 0.006 },
			Limits{}, bottleneck.Copy, "", []string{"pin the memory", "engine"}, ""},
		"no prefetch": {func(t *record.Train) { t.Prefetch, t.Idle = 0, 0.011 }, Limits{},
			bottleneck.Copy, "with prefetch 0 they do not overlap", []string{"raise prefetch from 0 to 2"}, ""},
		"no prefetch, pageable": {func(t *record.Train) { t.Prefetch, t.Idle, t.Memory = 0, 0.011, Pageable },
			Limits{}, bottleneck.Copy, "", []string{"raise prefetch from 0 to 2", "pin the memory"}, ""},
		"prefetch of one": {func(t *record.Train) {
			t.Prefetch, t.Isolated, t.Copy, t.Idle = 1, 0.015,
				0.010, 0.005
		}, Limits{}, bottleneck.Copy, "one after the other they do not", []string{"raise prefetch from 1 to 2"}, ""},
		"prefetch of one is enough": {func(t *record.Train) { t.Prefetch, t.Idle, t.IdleP99 = 1, 0.005, 0.006 },
			Limits{}, bottleneck.Copy, "disturb", []string{"engine", "raise prefetch"}, ""},
		"a few long waits": {func(t *record.Train) { t.Idle, t.IdleP99 = 0.002, 0.100 }, Limits{},
			bottleneck.Copy, "disturb", []string{"raise prefetch from 2 to 4: few steps wait long", "engine"}, ""},
		"tiny batches": {func(t *record.Train) {
			t.Idle, t.IdleP99, t.BatchBytes, t.Memory = 0.002,
				0.003, 64<<10, Engine
		}, Limits{}, bottleneck.Copy, "", []string{"larger batches: one of 64.00 KiB"}, "engine"},
		"a loader without headroom": {func(t *record.Train) { t.Isolated, t.Idle, t.IdleP99 = 0.018, 0.002, 0.003 },
			Limits{}, bottleneck.Copy, "disturb", []string{"headroom, with more workers or larger reads: alone it already " +
				"takes 90 %", "engine"}, ""},
		"a step of next to no time": {func(t *record.Train) { t.Target, t.AU, t.Idle = 1e-6, 0.0001, 0.010 },
			Limits{CPUs: 8}, bottleneck.Storage, "steps take no time", []string{"raise workers from 4 until"},
			"would be needed"},
		"one step": {func(t *record.Train) { t.Steps = 1 }, Limits{}, bottleneck.Compute, "", nil, ""},
		"nothing measured": {func(t *record.Train) { t.Steps = 0 }, Limits{}, bottleneck.Unclear, "no step was measured",
			[]string{"more steps"}, ""},
	} {
		r := healthy()
		c.change(&r)
		bound, why, next := Diagnose(r, c.limits)
		if bound != c.bound || !strings.Contains(why, c.why) {
			t.Errorf("%s: %s because %s", name, bound, why)
		}
		if len(next) == 0 {
			t.Errorf("%s: no advice", name)
			continue
		}
		at := 0
		for i, want := range c.next {
			for at < len(next) && !strings.Contains(next[at], want) {
				at++
			}
			if at == len(next) || i == 0 && at != 0 {
				t.Errorf("%s: %q is not where it should be in %q", name, want, next)
				break
			}
		}
		if c.not != "" && strings.Contains(strings.Join(next, "\n"), c.not) {
			t.Errorf("%s: %q is advised: %q", name, c.not, next)
		}
	}
}

// Whatever the figures, a diagnosis has words and no number that is none.
func TestDiagnoseTakesAnyFigures(t *testing.T) {
	values := []float64{0, 1e-9, 1, 1e9} // none, a nanosecond, a second, thirty years
	for _, iso := range values {
		for _, cp := range values {
			for _, target := range values {
				for _, idle := range values {
					for _, memory := range []string{Pageable, Pinned, Engine} {
						for prefetch := range 3 {
							r := healthy()
							r.Isolated, r.Copy, r.Target, r.Idle, r.Memory, r.Prefetch = iso, cp, target, idle, memory, prefetch
							bound, why, next := Diagnose(r, Limits{CPUs: 8, StorageGBps: 1})
							text := why + strings.Join(next, " ")
							if bound == "" || why == "" || len(next) == 0 || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
								t.Fatalf("%+v: %q %q %q", r, bound, why, next)
							}
						}
					}
				}
			}
		}
	}
}
