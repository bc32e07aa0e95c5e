// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
)

func (s *sheet) train(t *record.Train) {
	s.line("")
	au := percent(t.AU)
	if t.WantedAU > 0 {
		au += " (" + percent(t.WantedAU) + " wanted)"
	}
	s.field("", "workload", fmt.Sprintf("%s: batches of %d x %s, %s read to %s memory, %s, %s, %d ahead",
		printable(t.Workload), t.Batch,
		size(t.SampleBytes), printable(t.Route), printable(t.Memory), printable(t.Pattern), plural(t.Workers,
			"worker"), t.Prefetch))
	s.field("", "steps", fmt.Sprintf("%d after %d to warm up, step: %s, timed by %s", t.Steps, t.Warmup, printable(t.Step),
		printable(t.Timing)))
	s.field("", "AU", au+fmt.Sprintf(", %s samples/s, %s, %s", sig(t.SamplesPerSec), rates(t.GBps), span(t.Seconds)))
	r := reading(t)
	s.field("", "route", "asked "+asked(r.Settings)+" -> taken "+taken(r))
	s.field("", "", strayed(r))
	s.field("", "cache", "measured "+measuredWords(measured(r))+"; "+cacheWords(t.Cache))
	if t.Cache != nil {
		s.field("", "", printable(t.Cache.Why))
	}
	g := newGrid("per step", ">time", ">of step", "")
	for _, p := range trainParts(t) {
		g.add(p.name, span(p.seconds), ratioWords(p.seconds, t.Target), p.what)
	}
	s.line("")
	s.grid("  ", g)
	s.line("")
	s.field("", "bound", printable(string(bottleneck.Current(t.Bound)))+": "+printable(t.Why))
	for i, n := range t.Next {
		s.field("", map[bool]string{true: "next"}[i == 0], fmt.Sprintf("%d. %s", i+1, printable(n)))
	}
}

type trainPart struct {
	name, what string
	seconds    float64
}

func trainParts(t *record.Train) []trainPart {
	return []trainPart{
		{"loader alone", "storage to host memory" + spreadWords(t.IsolatedRounds), t.Isolated},
		{"copy alone", "host to device memory" + spreadWords(t.CopyRounds), t.Copy},
		{"step", "the work itself", t.Target},
		{"idle", "the accelerator waited, p99 " + span(t.IdleP99) + spreadWords(t.IdleRounds), t.Idle},
	}
}

func ratioWords(a, b float64) string {
	if b <= 0 {
		return none
	}
	return fmt.Sprintf("%.2f", a/b)
}

// spreadWords describes how a figure varied over its rounds.
func spreadWords(rounds []float64) string {
	if len(rounds) < 2 {
		return ""
	}
	return fmt.Sprintf(", %s to %s in %d rounds", span(slices.Min(rounds)), span(slices.Max(rounds)), len(rounds))
}
