// SPDX-License-Identifier: Apache-2.0

package bottleneck

import (
	"fmt"
	"math"
	"slices"
)

// hardlyIdle is the share of a step below which a wait is not worth a change.
const hardlyIdle = 0.05

// leastNoise is the relative error that every time has at least. Rounds of a short run can agree by chance.
const leastNoise = 0.03

// Overlap has the times of a training run whose loader, copies and steps overlap. Times are seconds per batch. Rounds
// are repeated measurements of the same time; they may be empty.
type Overlap struct {
	Steps int // steps that were measured
	// Step is the time of a step, and Idle how long the accelerator waits before it. IdleRounds are means of parts of
	// the run.
	Step, Idle float64
	IdleRounds []float64
	// Loader is the time of the loader alone, and Copy that of the copy alone.
	Loader, Copy             float64
	LoaderRounds, CopyRounds []float64
	// Busy is the share of the time in which the accelerator computes. If Wanted is not zero, that share is enough.
	Busy, Wanted float64
	BatchBytes   int64
	Prefetch     int // batches that are loaded ahead
}

// Saturated reports whether the copy alone takes longer than a step.
func (o Overlap) Saturated() bool { return o.Copy > o.Step }

// Serial reports whether the time of reading plus the time of copying explains the wait.
func (o Overlap) Serial() bool {
	return o.Prefetch == 0 || o.Prefetch == 1 && o.Loader+o.Copy > o.Step
}

// Stepless reports whether the steps are so short that the run only loads.
func (o Overlap) Stepless() bool { return o.Step <= 1e-3*o.Loader }

// Judge returns what the run waited for and why, without advice. If no step was measured, its Bound is Unclear.
//
// If the accelerator hardly ever waits for a batch, the run is compute-bound. If the loader alone or the copy alone is
// slower than a step, the slower of the two is the bound. If both are faster than a step but the accelerator waits, the
// run counts as copy-bound, because read and copy do not overlap enough. If the times differ by no more than the spread
// of their rounds, the verdict is Unclear.
func (o Overlap) Judge() Verdict {
	if o.Steps == 0 {
		return Verdict{Bound: Unclear, Why: "no step was measured"}
	}
	meets := o.Wanted > 0 && o.Busy >= o.Wanted
	if waiting, sure := o.waits(); o.Step > 0 && (meets || sure && !waiting) {
		why := fmt.Sprintf("steps take %s and wait %s: the accelerator is busy %.1f %% of the time", dur(o.Step),
			dur(o.Idle), o.Busy*100)
		if meets {
			why += fmt.Sprintf(", %.0f %% are wanted", o.Wanted*100)
		}
		return Verdict{Bound: Compute, Why: why}
	}
	if o.Step > 0 {
		if why := o.unclear(); why != "" {
			return Verdict{Bound: Unclear, Why: why}
		}
	}
	if o.Loader > o.Step && o.Loader >= o.Copy {
		return Verdict{Bound: Storage, Why: o.loaderWhy()}
	}
	return Verdict{Bound: Copy, Why: o.copyWhy()}
}

func (o Overlap) loaderWhy() string {
	if o.Stepless() {
		return fmt.Sprintf("steps take no time, and the loader alone takes %s for a batch (%s)", dur(o.Loader),
			o.rate(o.Loader))
	}
	return fmt.Sprintf("the loader alone takes %s for a batch (%s) and a step %s: it would have to give %s",
		dur(o.Loader), o.rate(o.Loader), dur(o.Step), o.rate(o.Step))
}

func (o Overlap) copyWhy() string {
	switch {
	case o.Saturated():
		return fmt.Sprintf("a batch takes %s to copy (%s) and a step %s: the copy alone is slower than the step",
			dur(o.Copy), o.rate(o.Copy), dur(o.Step))
	case o.Serial():
		return fmt.Sprintf("reading a batch (%s) and copying it (%s) each keep up with a step of %s, one after the other "+
			"they do not: with prefetch %d they do not overlap enough", dur(o.Loader), dur(o.Copy), dur(o.Step), o.Prefetch)
	}
	return fmt.Sprintf("the loader alone takes %s for a batch and the copy alone %s, less than a step of %s, and still "+
		"each step waits %s: together they disturb each other", dur(o.Loader), dur(o.Copy), dur(o.Step), dur(o.Idle))
}

// rate formats the rate of a batch in the given time.
func (o Overlap) rate(seconds float64) string {
	if seconds <= 0 {
		return rate(0)
	}
	return rate(float64(o.BatchBytes) / seconds / 1e9)
}

// waits reports whether the accelerator waits for more than a small share of a step. sure is false if the parts of
// the run give different answers.
func (o Overlap) waits() (yes, sure bool) {
	limit := hardlyIdle * o.Step
	// The mean of n parts is known to about half their range over the root of n.
	doubt := 0.0
	if n := len(o.IdleRounds); n > 1 {
		doubt = (slices.Max(o.IdleRounds) - slices.Min(o.IdleRounds)) / 2 / math.Sqrt(float64(n))
	}
	return o.Idle >= limit, o.Idle-doubt >= limit || o.Idle+doubt < limit
}

// unclear explains why the times allow no verdict. It returns "" if they allow one. The caller has established that
// the accelerator waits, or that this is not known.
func (o Overlap) unclear() string {
	load, carry := spreadOf(o.LoaderRounds, o.Loader), spreadOf(o.CopyRounds, o.Copy)
	period := o.Step + o.Idle
	if yes, sure := o.waits(); !sure {
		return fmt.Sprintf("a step of %s waits %s on average, between %s and %s in the parts of the run: that is not "+
			"clearly more or less than %.0f %%",
			dur(o.Step), dur(o.Idle), dur(slices.Min(o.IdleRounds)), dur(slices.Max(o.IdleRounds)), hardlyIdle*100)
	} else if !yes {
		return ""
	}
	// In the loop the loader gives a batch for every step. Alone it has no more to do.
	if load.above(period) {
		return fmt.Sprintf("the loader alone takes %s for a batch, and in the loop it gave one every %s: the storage was "+
			"slower while the loader ran alone", load, dur(period))
	}
	if !load.above(o.Step) && !load.below(o.Step) {
		return fmt.Sprintf("the loader alone takes %s for a batch in %s, and a step takes %s: the difference is within "+
			"the spread", load, rounds(len(o.LoaderRounds)), dur(o.Step))
	}
	if load.above(o.Step) && load.low > carry.high {
		return "" // the copy is not the slower one, whatever it takes
	}
	if !carry.above(o.Step) && !carry.below(o.Step) {
		return fmt.Sprintf("the copy alone takes %s for a batch and a step %s: the difference is within the spread", carry,
			dur(o.Step))
	}
	if load.above(o.Step) && carry.above(o.Step) && load.low <= carry.high && carry.low <= load.high {
		return fmt.Sprintf("the loader alone takes %s for a batch and the copy alone %s, both more than a step of %s: the "+
			"difference is within the spread", load, carry, dur(o.Step))
	}
	return ""
}

func rounds(n int) string {
	if n > 1 {
		return fmt.Sprintf("%d rounds", n)
	}
	return "1 round"
}

// spread is the lowest and the highest value of a time over its rounds.
type spread struct{ low, high float64 }

// spreadOf returns the spread over the rounds. Without rounds, as in results of older versions, both values are the
// time itself.
func spreadOf(rounds []float64, time float64) spread {
	if len(rounds) == 0 {
		return spread{time, time}
	}
	return spread{slices.Min(rounds), slices.Max(rounds)}
}

// above reports whether every round is above x by more than the noise.
func (s spread) above(x float64) bool { return s.low > x*(1+leastNoise) }

// below reports whether every round is below x by more than the noise.
func (s spread) below(x float64) bool { return s.high < x*(1-leastNoise) }

func (s spread) String() string {
	if s.low == s.high {
		return dur(s.low)
	}
	return fmt.Sprintf("%s to %s", dur(s.low), dur(s.high))
}
