// SPDX-License-Identifier: Apache-2.0

package bottleneck

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Shares that decide about a loop.
const (
	fastLoader = 0.5  // of a step: a loader that alone needs less has workers enough, and a short wait is not its fault
	mostlyStep = 0.75 // of the time: steps take at least so much in a compute-bound loop with such a loader
	betterLoop = 0.9  // of the time of the loop as configured: a setting that needs less is advised
	slowedStep = 1.3  // of the time of a step alone: more means that loader and step compete
)

// maxRounds bounds the rounds and variants of a loop that a caller may pass.
const maxRounds = 10_000

// Loop has the times of a training loop whose parts run one after the other: wait for a batch, copy it, run the step.
// Unless a comment says otherwise, times are seconds per batch, and nil means that a time was not measured.
type Loop struct {
	Rounds []LoopRound `json:"rounds"`
	// LoaderAlone is the time of a loader with workers, alone, and nil for a loader without workers.
	LoaderAlone *float64 `json:"loader_alone"`
	// InProcess is the time of a batch in one process. Decode and Read are its two parts.
	InProcess *float64 `json:"in_process"`
	Decode    *float64 `json:"decode"`
	Read      *float64 `json:"read"`
	StepAlone *float64 `json:"step_alone"`
	// CopyAlone is nil if there is no copy. CopyPinned and CopyPageable are the copies from both kinds of memory.
	CopyAlone    *float64 `json:"copy_alone"`
	CopyPinned   *float64 `json:"copy_pinned"`
	CopyPageable *float64 `json:"copy_pageable"`
	// Variants are the measured settings of the loader. The first is the loader as configured.
	Variants []LoopVariant `json:"variants"`
	// ToleratedIdle is the share of the time that the device may wait in a compute-bound loop.
	ToleratedIdle float64 `json:"tolerated_idle"`
}

// LoopRound has the sums of some consecutive batches, in seconds of all of them.
type LoopRound struct {
	Batches int     `json:"batches"`
	Wait    float64 `json:"wait"` // for the loader
	Copy    float64 `json:"copy"`
	Step    float64 `json:"step"`
}

// LoopVariant has the times of the loop with one setting of the loader. Alone is the loader without copy and step.
type LoopVariant struct {
	Name     string   `json:"name"`
	Alone    *float64 `json:"alone"`
	Together float64  `json:"together"`
	Wait     float64  `json:"wait"`
	Copy     float64  `json:"copy"`
	Step     float64  `json:"step"`
}

// LoopVerdict is the verdict of a Loop. Agree is the share of the rounds that gave it.
type LoopVerdict struct {
	Verdict
	Agree float64 `json:"agree"`
}

// Judge returns the verdict of most rounds, why, and what to try next. Judge fails with kind Invalid if there is no
// round or no variant, or if a time is no number or negative.
//
// If the device waits less than the tolerated share of the time, the loop is compute-bound. So it is if steps take most
// of the time, and workers alone are twice as fast as the steps. Otherwise the longer of the two waits decides: for the
// copy, or for the loader. A loader that mostly decodes is cpu-bound, and one that mostly waits is storage-bound.
func (l Loop) Judge() (LoopVerdict, error) {
	if err := l.check(); err != nil {
		return LoopVerdict{}, err
	}
	votes := map[Bound]int{}
	for _, r := range l.Rounds {
		votes[l.judge(r)]++
	}
	v := LoopVerdict{}
	for _, b := range Bounds() { // in a fixed order, so that a tie has one answer
		if n := votes[b]; float64(n) > v.Agree*float64(len(l.Rounds)) {
			v.Bound, v.Agree = b, float64(n)/float64(len(l.Rounds))
		}
	}
	if v.Agree < 0.5 {
		v.Bound = Unclear
	}
	v.Why, v.Next = l.why(v.Bound), l.next(v.Bound)
	v.Step = stepFor(v.Bound, v.Next)
	return v, nil
}

func (l Loop) check() error {
	bad := func(what string) error {
		return errs.New(errs.Invalid, "judge", "training loop", what)
	}
	if n := len(l.Rounds); n == 0 || n > maxRounds {
		return bad(fmt.Sprintf("it has %d rounds, expected 1 to %d", n, maxRounds))
	}
	if n := len(l.Variants); n == 0 || n > maxRounds {
		return bad(fmt.Sprintf("it has %d variants, expected 1 to %d", n, maxRounds))
	}
	if !(l.ToleratedIdle > 0 && l.ToleratedIdle < 1) {
		return bad(fmt.Sprintf("tolerated_idle is %v, expected a share between 0 and 1", l.ToleratedIdle))
	}
	var times []float64
	for _, r := range l.Rounds {
		if r.Batches < 1 {
			return bad(fmt.Sprintf("a round has %d batches, expected at least 1", r.Batches))
		}
		times = append(times, r.Wait, r.Copy, r.Step)
	}
	for _, v := range l.Variants {
		times = append(times, known(v.Alone), v.Together, v.Wait, v.Copy, v.Step)
	}
	for _, p := range []*float64{l.LoaderAlone, l.InProcess, l.Decode, l.Read, l.StepAlone, l.CopyAlone, l.CopyPinned,
		l.CopyPageable} {
		times = append(times, known(p))
	}
	for _, t := range times {
		if !(t >= 0) || math.IsInf(t, 0) {
			return bad(fmt.Sprintf("a time is %v seconds, expected a number from 0 on", t))
		}
	}
	return nil
}

// known returns a time, or 0 if it was not measured.
func known(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

func (l Loop) judge(r LoopRound) Bound {
	waits := r.Wait + r.Copy
	total := waits + r.Step
	switch {
	case waits <= l.ToleratedIdle*total:
		return Compute
	case r.Copy > r.Wait:
		return Copy
	case l.LoaderAlone != nil && *l.LoaderAlone*float64(r.Batches) <= fastLoader*r.Step && r.Step >= mostlyStep*total:
		return Compute
	case l.Decode != nil && l.Read != nil && *l.Decode >= *l.Read:
		return CPU
	}
	return Storage
}

func (l Loop) why(b Bound) string {
	first := l.Variants[0]
	busy := ratio(first.Step, first.Together)
	loop := fmt.Sprintf("of %s per batch, the step takes %s (%s)", dur(first.Together), dur(first.Step), percent(busy))
	if l.CopyAlone == nil {
		loop += " and the wait for the loader " + dur(first.Wait)
	} else {
		loop += fmt.Sprintf(", the wait for the loader %s and the copy %s", dur(first.Wait), dur(first.Copy))
	}
	parts := "the loader alone was not measured"
	if l.InProcess != nil {
		parts = fmt.Sprintf("a batch takes %s in one process, %s of it decode and %s read and wait", dur(*l.InProcess),
			dur(known(l.Decode)), dur(known(l.Read)))
	}
	switch b {
	case Compute:
		return loop + ", so the data keeps up with the step"
	case Copy:
		if first.Alone == nil {
			return loop + ", while the loader alone was not measured"
		}
		return loop + ", while the loader alone needs " + dur(*first.Alone)
	case CPU, Storage:
		return loop + "; " + parts
	}
	return loop + ", and the rounds of the measurement differ in what takes longest"
}

// next returns what to try next, most promising first. Only measured differences are promised.
func (l Loop) next(b Bound) (all []string) {
	first := l.Variants[0]
	better := slices.DeleteFunc(slices.Clone(l.Variants[1:]), func(v LoopVariant) bool {
		return !(v.Together > 0 && v.Together < betterLoop*first.Together)
	})
	slices.SortStableFunc(better, func(a, b LoopVariant) int { return cmp.Compare(a.Together, b.Together) })
	for _, v := range better {
		all = append(all, fmt.Sprintf("%s: the loop takes %s per batch, %s times as fast", v.Name, dur(v.Together),
			digits(first.Together/v.Together)))
	}
	const autotune = "nebulaio.data.autotune finds the number of workers beyond which more do not help"
	switch b {
	case CPU:
		all = append(all, autotune, "decode on the device or ahead of time, or use a faster decoder: processors are the "+
			"limit, not storage")
	case Storage:
		all = append(all, autotune, "read larger pieces, pack small files, or use faster storage: processors wait, and do "+
			"not compute")
	case Copy:
		if p, q := known(l.CopyPinned), known(l.CopyPageable); p > 0 && p < betterLoop*q {
			all = append(all, fmt.Sprintf("pin_memory=True: the copy takes %s from pinned memory, %s from pageable", dur(p),
				dur(q)))
		}
		all = append(all, "copy the next batch on a stream of its own during the step, and send fewer bytes")
	case Compute:
		all = append(all, "leave the loader as it is: only a faster step makes this loop faster")
	case Unclear:
		all = append(all, "measure longer (seconds=), with nothing else at work on this machine")
	}
	if alone := known(l.StepAlone); alone > 0 && first.Step > slowedStep*alone {
		all = append(all, fmt.Sprintf("the step takes %s in the loop and %s alone: loader and step compete, so try fewer "+
			"workers or threads", dur(first.Step), dur(alone)))
	}
	return all
}

// digits returns a factor with three digits, without zeros at the end.
func digits(x float64) string {
	text := fmt.Sprintf("%.2f", x)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
