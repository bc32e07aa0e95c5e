// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// Two commands on one idle machine differ by about a hundredth whatever their
// own passes say; what was measured once is given five.
const (
	leastNoise   = 0.01
	unknownNoise = 0.05
)

// passSpread returns the rates of the slowest and the fastest pass, and their difference relative to the mean.
func passSpread(passes []record.Pass) (lo, hi, spread float64) {
	if len(passes) == 0 {
		return 0, 0, 0
	}
	lo, hi = passes[0].GBps, passes[0].GBps
	sum := 0.0
	for _, p := range passes {
		lo, hi, sum = min(lo, p.GBps), max(hi, p.GBps), sum+p.GBps
	}
	if sum == 0 {
		return lo, hi, 0
	}
	return lo, hi, (hi - lo) / (sum / float64(len(passes)))
}

// noiseOf returns the relative amount by which a run's rate varies when nothing has changed, and the source of that
// number. The result is false if the run was measured only once. Several passes are the best source. Otherwise the
// middle half of the intervals is used, because the first and the last intervals are ramps.
func noiseOf(r *record.Run) (float64, string, bool) {
	if len(r.Passes) > 1 {
		_, _, s := passSpread(r.Passes)
		return s, "passes", true
	}
	if len(r.Series) >= 8 {
		v := make([]float64, len(r.Series))
		for i, p := range r.Series {
			v[i] = p.GBps
		}
		slices.Sort(v)
		if mid := v[len(v)/2]; mid > 0 {
			return (v[len(v)*3/4] - v[len(v)/4]) / mid, "intervals", true
		}
	}
	return 0, "", false
}
