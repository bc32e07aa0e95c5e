// SPDX-License-Identifier: Apache-2.0

package train

import (
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// median returns the middle value of all, or the mean of the two in the middle.
func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// traceSteps is the number of steps that a result keeps as its time line.
const traceSteps = 200

// figures adds up the steps of a run in their order.
type figures struct {
	warmup int

	seen  int
	end   time.Duration // of the last step, from the start of the run
	busy  time.Duration // of the measured steps
	waits []time.Duration
	trace []record.StepAt
}

// add records one step: when its batch was ready, how long the device was idle before it, and how long it ran. Times
// of the device are added up from the start, so that they share a time line with ready, which is the host's time.
func (f *figures) add(ready, idle, busy time.Duration) {
	begin := f.end + idle
	f.end = begin + busy
	if len(f.trace) < traceSteps {
		// The host hears of a batch a moment later than the queue behind it.
		f.trace = append(f.trace, record.StepAt{Ready: min(ready, begin).Seconds(), Begin: begin.Seconds(),
			End: f.end.Seconds()})
	}
	if f.seen++; f.seen <= f.warmup {
		return
	}
	f.busy += busy
	f.waits = append(f.waits, idle)
}

// fill writes the measurements into t. Without a measured step the figures stay zero. Utilisation is defined as in
// DLIO: time in steps over elapsed time, without the warm-up.
func (f *figures) fill(t *record.Train) {
	n := len(f.waits)
	t.Steps, t.Trace = n, f.trace
	if n == 0 {
		return
	}
	var idle time.Duration
	for _, w := range f.waits {
		idle += w
	}
	t.Seconds = (f.busy + idle).Seconds()
	t.Target = f.busy.Seconds() / float64(n)
	t.Idle = idle.Seconds() / float64(n)
	t.IdleRounds = f.idleRounds()
	sorted := slices.Sorted(slices.Values(f.waits))
	t.IdleP99 = sorted[(n*99+99)/100-1].Seconds()
	if t.Seconds > 0 {
		t.AU = f.busy.Seconds() / t.Seconds
		t.SamplesPerSec = float64(n) * float64(t.Batch) / t.Seconds
		t.GBps = gbps(int64(n)*t.BatchBytes, t.Seconds)
	}
}

// runParts is the number of parts of a run whose figures are compared with each other.
const runParts = 5

// idleRounds returns the mean wait in each part of the run. A run with few steps has no parts, because they would be
// single steps.
func (f *figures) idleRounds() (all []float64) {
	n := len(f.waits)
	if n < 2*runParts {
		return nil
	}
	for i := range runParts {
		part := f.waits[i*n/runParts : (i+1)*n/runParts]
		var sum time.Duration
		for _, w := range part {
			sum += w
		}
		all = append(all, sum.Seconds()/float64(len(part)))
	}
	return all
}
