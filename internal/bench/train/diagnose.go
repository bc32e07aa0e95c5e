// SPDX-License-Identifier: Apache-2.0

package train

import (
	"fmt"
	"math"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Limits are the limits of the machine that Diagnose takes into account. Zero means unknown.
type Limits struct {
	CPUs        int     // number of processors that the reading workers can use
	StorageGBps float64 // highest rate of the storage below the data set, in GB/s
}

// Shares that decide about the advice.
const (
	atTheLimit   = 0.9     // of a ceiling: more cannot be had
	smallSample  = 1 << 20 // bytes below which a random read costs its way, not its bytes
	deepPrefetch = 2       // batches ahead that hide a copy behind a step
	noHeadroom   = 0.7     // of a step: a loader that takes more stalls now and then
)

// Diagnose returns what a simulated training run waited for, the reason, and settings to change, most promising first.
// Package bottleneck judges the run; Diagnose adds the settings of this benchmark.
func Diagnose(t record.Train, l Limits) (bottleneck.Bound, string, []string) {
	o := overlapOf(t)
	v := o.Judge()
	switch {
	case t.Steps == 0:
		return v.Bound, v.Why, []string{"run more steps than the warm-up has"}
	case v.Bound == bottleneck.Compute:
		return v.Bound, v.Why, []string{"nothing: the loader keeps up; a faster accelerator or a smaller step would be " +
			"the next test"}
	case v.Bound == bottleneck.Unclear:
		return v.Bound, v.Why, unclearNext(t)
	case v.Bound == bottleneck.Storage:
		return v.Bound, v.Why, loaderNext(t, o, l)
	}
	return v.Bound, v.Why, copyNext(t, o)
}

// overlapOf returns the times of a result in the form that package bottleneck judges.
func overlapOf(t record.Train) bottleneck.Overlap {
	return bottleneck.Overlap{Steps: t.Steps, Step: t.Target, Idle: t.Idle, IdleRounds: t.IdleRounds, Loader: t.Isolated,
		Copy: t.Copy, LoaderRounds: t.IsolatedRounds, CopyRounds: t.CopyRounds, Busy: t.AU, Wanted: t.WantedAU,
		BatchBytes: t.BatchBytes, Prefetch: t.Prefetch}
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

func loaderNext(t record.Train, o bottleneck.Overlap, l Limits) (next []string) {
	now := gbps(t.BatchBytes, t.Isolated)
	scattered := t.Pattern == Random && t.SampleBytes < smallSample
	if l.StorageGBps > 0 && now >= atTheLimit*l.StorageGBps {
		next = append(next, fmt.Sprintf("the loader reads at %s and the storage gives %s: more workers cannot help; use "+
			"faster storage, more of it, or smaller (compressed) samples",
			units.Rate(now), units.Rate(l.StorageGBps)))
		if scattered {
			next = append(next, pack(t))
		}
		return next
	}
	next = append(next, moreReaders(t, o, l))
	if scattered {
		next = append(next, pack(t))
	}
	if t.Route == "buffered" {
		next = append(next, "read past the page cache (route direct), unless the data set fits into memory")
	}
	if t.Memory == Pageable || t.Memory == Pinned {
		next = append(next, "let the engine read (memory engine): it keeps more reads in flight")
	}
	if t.Prefetch == 0 {
		next = append(next, fmt.Sprintf("raise prefetch from 0 to %d, so that the loader also works while a step runs",
			deepPrefetch))
	}
	return append(next, "use faster storage, or keep the data set in memory")
}

// moreReaders suggests the number of workers that would be fast enough, limited by the number of processors.
func moreReaders(t record.Train, o bottleneck.Overlap, l Limits) string {
	if t.Memory == Engine || t.Memory == Loader {
		return "raise the engine's queue depth, if the storage is not at its limit"
	}
	if l.CPUs > 0 && t.Workers >= l.CPUs {
		return fmt.Sprintf("%d workers are as many as there are processors (%d): make each read cheaper instead", t.Workers,
			l.CPUs)
	}
	if o.Stepless() {
		return fmt.Sprintf("raise workers from %d until the rate no longer grows", t.Workers)
	}
	want := int(math.Ceil(float64(t.Workers) * t.Isolated / t.Target))
	if l.CPUs > 0 && want > l.CPUs {
		return fmt.Sprintf("raise workers from %d to %d, all processors; %d would be needed if each gave the same", t.Workers,
			l.CPUs, want)
	}
	return fmt.Sprintf("raise workers from %d to %d", t.Workers, max(want, t.Workers+1))
}

func pack(t record.Train) string {
	return fmt.Sprintf("pack samples of %s into larger files and read them in sequence, shuffling in memory: random "+
		"reads of that size are limited by requests, not by bytes", units.Bytes(t.SampleBytes))
}

// copyNext lists the settings that speed up a copy.
func copyNext(t record.Train, o bottleneck.Overlap) (next []string) {
	saturated := o.Saturated()
	if t.Memory == Pageable {
		next = append(next, "pin the memory that batches are read into (memory pinned; pin_memory=True in a DataLoader)")
	}
	deeper := fmt.Sprintf("raise prefetch from %d to %d", t.Prefetch, max(deepPrefetch, 2*t.Prefetch))
	switch {
	case !saturated && o.Serial():
		next = append([]string{deeper}, next...)
	case !saturated && t.IdleP99 > 2*t.Idle:
		next = append(next, deeper+": few steps wait long, which a longer queue evens out")
	}
	if !saturated && !o.Serial() && t.Isolated > noHeadroom*t.Target {
		next = append(next, fmt.Sprintf("give the loader headroom, with more workers or larger reads: alone it already "+
			"takes %.0f %% of a step", t.Isolated/t.Target*100))
	}
	if t.Memory != Engine && t.Memory != Loader {
		next = append(next, "let the engine read and copy (memory engine)")
	}
	switch {
	case saturated:
		next = append(next, "send fewer bytes: smaller types, compressed samples that the device unpacks; check that the "+
			"link has its full width")
	case t.BatchBytes < smallSample*4:
		next = append(next, fmt.Sprintf("use larger batches: one of %s is too small to fill the link",
			units.Bytes(t.BatchBytes)))
	case !o.Serial() && t.IdleP99 <= 2*t.Idle:
		next = append(next, deeper)
	}
	return next
}
