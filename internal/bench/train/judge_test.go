// SPDX-License-Identifier: Apache-2.0

package train

import (
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
)

// waiting is a run with steps of 20 ms that wait 10 ms; cases change it.
func waiting() record.Train {
	t := healthy()
	t.Idle, t.IdleP99, t.AU = 0.010, 0.012, 0.67
	t.IdleRounds = []float64{0.0100, 0.0101, 0.0099, 0.0100, 0.0100}
	return t
}

func alone(t *record.Train, rounds ...float64) {
	t.IsolatedRounds, t.Isolated = rounds, median(rounds)
}

func TestADifferenceWithinTheSpreadIsNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*record.Train)
		bound  bottleneck.Bound
		why    string
	}{
		"every round is slower than a step": {func(t *record.Train) { alone(t, 0.029, 0.030, 0.031, 0.030, 0.029) },
			bottleneck.Storage, "it would have to give"},
		"every round is faster than a step": {func(t *record.Train) { alone(t, 0.015, 0.016, 0.014, 0.015, 0.016) },
			bottleneck.Copy, "disturb"},
		"some rounds are slower than a step": {func(t *record.Train) { alone(t, 0.018, 0.023, 0.019, 0.024, 0.018) },
			bottleneck.Unclear, "18.0 ms to 24.0 ms for a batch in 5 rounds"},
		"the rounds agree, the step is too near": {func(t *record.Train) { alone(t, 0.0203, 0.0203, 0.0203) },
			bottleneck.Unclear, "within the spread"},
		"alone slower than the loop beyond noise": {func(t *record.Train) { alone(t, 0.040, 0.041, 0.042, 0.040, 0.041) },
			bottleneck.Unclear, "in the loop it gave one every 30.0 ms"},
		"alone slower than the loop within spread": {func(t *record.Train) { alone(t, 0.029, 0.033, 0.034, 0.030, 0.035) },
			bottleneck.Storage, ""},
		"the copy is near the step": {func(t *record.Train) {
			t.Copy, t.CopyRounds = 0.0205, []float64{0.019, 0.0205, 0.022}
		}, bottleneck.Unclear, "the copy alone takes 19.0 ms to 22.0 ms"},
		"the copy is near the step, the loader slower than both": {func(t *record.Train) {
			alone(t, 0.029, 0.030, 0.031)
			t.Copy, t.CopyRounds = 0.0205, []float64{0.019, 0.0205, 0.022}
		}, bottleneck.Storage, ""},
		"loader and copy are equally slow": {func(t *record.Train) {
			alone(t, 0.028, 0.029, 0.030)
			t.Copy, t.CopyRounds = 0.029, []float64{0.028, 0.029, 0.030}
		}, bottleneck.Unclear, "both more than a step"},
		"parts of the run wait and parts do not": {func(t *record.Train) {
			t.Idle, t.IdleRounds = 0.0011, []float64{0, 0, 0.0035, 0.002, 0}
		}, bottleneck.Unclear, "between 0 µs and 3.5 ms"},
		"one part waits once": {func(t *record.Train) { t.Idle, t.IdleRounds = 0.0001, []float64{0, 0, 0.0005, 0, 0} },
			bottleneck.Compute, ""},
		"the wanted share is met": {func(t *record.Train) { t.AU, t.WantedAU = 0.91, 0.9; alone(t, 0.018, 0.023, 0.019) },
			bottleneck.Compute, "90 % are wanted"},
	} {
		r := waiting()
		c.change(&r)
		bound, why, next := Diagnose(r, Limits{CPUs: 16})
		if bound != c.bound || !strings.Contains(why, c.why) || len(next) == 0 {
			t.Errorf("%s: %q because %s; next %q", name, bound, why, next)
		}
		if bound == bottleneck.Unclear && !strings.Contains(next[0], "more steps") {
			t.Errorf("%s: the advice is %q", name, next)
		}
	}
}

// The verdict is the same whatever order the rounds came in.
func TestTheOrderOfRoundsDecidesNothing(t *testing.T) {
	rounds := []float64{0.018, 0.019, 0.021, 0.024, 0.030}
	first := waiting()
	alone(&first, rounds...)
	want, _, _ := Diagnose(first, Limits{})
	for i := range rounds {
		r := waiting()
		alone(&r, append(append([]float64{}, rounds[i:]...), rounds[:i]...)...)
		if got, why, _ := Diagnose(r, Limits{}); got != want {
			t.Errorf("turned by %d: %q because %s, expected %q", i, got, why, want)
		}
	}
}

func TestPartsOfARun(t *testing.T) {
	f := &figures{warmup: 1}
	for i := range 11 {
		f.add(0, time.Duration(i/2)*time.Millisecond, time.Millisecond)
	}
	var got record.Train
	f.fill(&got)
	if want := []float64{0.0005, 0.0015, 0.0025, 0.0035, 0.0045}; len(got.IdleRounds) != 5 ||
		got.IdleRounds[0] != want[0] || got.IdleRounds[4] != want[4] {
		t.Errorf("%v, expected %v", got.IdleRounds, want)
	}
	short := &figures{}
	short.add(0, time.Millisecond, time.Millisecond)
	short.fill(&got)
	if got.IdleRounds != nil {
		t.Errorf("one step has the parts %v", got.IdleRounds)
	}
}
