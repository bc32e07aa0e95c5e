// SPDX-License-Identifier: Apache-2.0

package train

import (
	"fmt"
	"math"
	"slices"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// leastNoise is the relative error that every figure has at least. Rounds of a short run can agree by chance.
const leastNoise = 0.03

// spread is the lowest, the middle and the highest value of a figure over its rounds.
type spread struct{ low, mid, high float64 }

// spreadOf returns the spread over the rounds. Without rounds, as in results of older versions, all three values are
// the figure itself.
func spreadOf(rounds []float64, figure float64) spread {
	if len(rounds) == 0 {
		return spread{figure, figure, figure}
	}
	return spread{slices.Min(rounds), median(rounds), slices.Max(rounds)}
}

// above reports whether every round is above x by more than the noise.
func (s spread) above(x float64) bool { return s.low > x*(1+leastNoise) }

// below reports whether every round is below x by more than the noise.
func (s spread) below(x float64) bool { return s.high < x*(1-leastNoise) }

func (s spread) String() string {
	if s.low == s.high {
		return dur(s.mid)
	}
	return fmt.Sprintf("%s to %s", dur(s.low), dur(s.high))
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// waits reports whether the accelerator waits for more than a small share of a step. sure is false if the parts of
// the run give different answers.
func waits(t record.Train) (yes, sure bool) {
	limit := hardlyIdle * t.Target
	// The mean of n parts is known to about half their range over the root of n.
	doubt := 0.0
	if n := len(t.IdleRounds); n > 1 {
		doubt = (slices.Max(t.IdleRounds) - slices.Min(t.IdleRounds)) / 2 / math.Sqrt(float64(n))
	}
	return t.Idle >= limit, t.Idle-doubt >= limit || t.Idle+doubt < limit
}

// unclear explains why the figures allow no verdict. It returns "" if they allow one. The caller has established that
// the accelerator waits, or that this is not known.
func unclear(t record.Train) string {
	load, carry := spreadOf(t.IsolatedRounds, t.Isolated), spreadOf(t.CopyRounds, t.Copy)
	period := t.Target + t.Idle
	if yes, sure := waits(t); !sure {
		return fmt.Sprintf("a step of %s waits %s on average, between %s and %s in the parts of the run: that is not "+
			"clearly more or less than %.0f %%",
			dur(t.Target), dur(t.Idle), dur(slices.Min(t.IdleRounds)), dur(slices.Max(t.IdleRounds)), hardlyIdle*100)
	} else if !yes {
		return ""
	}
	// In the loop the loader gives a batch for every step. Alone it has no more to do.
	if load.above(period) {
		return fmt.Sprintf("the loader alone takes %s for a batch, and in the loop it gave one every %s: the storage was "+
			"slower while the loader ran alone", load, dur(period))
	}
	if !load.above(t.Target) && !load.below(t.Target) {
		return fmt.Sprintf("the loader alone takes %s for a batch in %s, and a step takes %s: the difference is within "+
			"the spread", load, rounds(t), dur(t.Target))
	}
	if load.above(t.Target) && load.low > carry.high {
		return "" // the copy is not the slower one, whatever it takes
	}
	if !carry.above(t.Target) && !carry.below(t.Target) {
		return fmt.Sprintf("the copy alone takes %s for a batch and a step %s: the difference is within the spread", carry,
			dur(t.Target))
	}
	if load.above(t.Target) && carry.above(t.Target) && load.low <= carry.high && carry.low <= load.high {
		return fmt.Sprintf("the loader alone takes %s for a batch and the copy alone %s, both more than a step of %s: the "+
			"difference is within the spread", load, carry, dur(t.Target))
	}
	return ""
}

func rounds(t record.Train) string {
	if n := len(t.IsolatedRounds); n > 1 {
		return fmt.Sprintf("%d rounds", n)
	}
	return "1 round"
}

// unclearNext lists the changes that lead to a clear verdict.
func unclearNext(t record.Train) []string {
	next := []string{
		fmt.Sprintf("measure more steps (now %d), with nothing else at work on this machine and its storage", t.Steps),
		"then compare the spreads again: a difference inside them is noise",
	}
	if t.Prefetch < deepPrefetch {
		next = append(next, fmt.Sprintf("raise prefetch from %d to %d, which evens out single slow batches", t.Prefetch,
			deepPrefetch))
	}
	return next
}
