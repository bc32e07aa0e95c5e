// SPDX-License-Identifier: Apache-2.0

package train

import (
	"fmt"
	"math"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Limits are the limits of the machine that Diagnose takes into account. Zero means unknown.
type Limits struct {
	CPUs        int     // number of processors that the reading workers can use
	StorageGBps float64 // highest rate of the storage below the data set, in GB/s
}

// Shares that decide.
const (
	hardlyIdle   = 0.05    // of a step: less is not worth a change
	atTheLimit   = 0.9     // of a ceiling: more cannot be had
	smallSample  = 1 << 20 // bytes below which a random read costs its way, not its bytes
	deepPrefetch = 2       // batches ahead that hide a copy behind a step
	noStep       = 1e-3    // of the loader's time: a step so short is none
	noHeadroom   = 0.7     // of a step: a loader that takes more stalls now and then
)

// Diagnose returns the resource that a simulated training run waited for, the reason, and settings to change, most
// promising first. The returned resource (Bound) is empty if no step was measured.
//
// If the accelerator hardly ever waits for a batch, the run is GPU-bound. If the loader alone or the copy alone is
// slower than a step, the slower of the two is the bound. If the loader alone and the copy alone are faster than a
// step but the accelerator waits, the run counts as copy-bound. If the measured times differ by no more than the
// spread of their rounds, the bound is record.Unclear.
func Diagnose(t record.Train, l Limits) (record.Bound, string, []string) {
	if t.Steps == 0 {
		return "", "no step was measured", []string{"run more steps than the warm-up has"}
	}
	meets := t.WantedAU > 0 && t.AU >= t.WantedAU
	if waiting, sure := waits(t); t.Target > 0 && (meets || sure && !waiting) {
		why := fmt.Sprintf("steps take %s and wait %s: the accelerator is busy %.1f %% of the time", dur(t.Target),
			dur(t.Idle), t.AU*100)
		if meets {
			why += fmt.Sprintf(", %.0f %% are wanted", t.WantedAU*100)
		}
		return record.GPUBound, why, []string{"nothing: the loader keeps up; a faster accelerator or a smaller step would " +
			"be the next test"}
	}
	if t.Target > 0 {
		if why := unclear(t); why != "" {
			return record.Unclear, why, unclearNext(t)
		}
	}
	switch {
	case t.Isolated > t.Target && t.Isolated >= t.Copy:
		return record.LoaderBound, loaderWhy(t), loaderNext(t, l)
	case t.Copy > t.Target:
		return record.CopyBound, fmt.Sprintf("a batch takes %s to copy (%s) and a step %s: the copy alone is slower than "+
			"the step",
			dur(t.Copy), rate(t.BatchBytes, t.Copy), dur(t.Target)), copyNext(t, true)
	case serial(t):
		return record.CopyBound, fmt.Sprintf("reading a batch (%s) and copying it (%s) each keep up with a step of %s, "+
			"one after the other they do not: with prefetch %d they do not overlap enough",
			dur(t.Isolated), dur(t.Copy), dur(t.Target), t.Prefetch), copyNext(t, false)
	}
	return record.CopyBound, fmt.Sprintf("the loader alone takes %s for a batch and the copy alone %s, less than a "+
		"step of %s, and still each step waits %s: together they disturb each other",
		dur(t.Isolated), dur(t.Copy), dur(t.Target), dur(t.Idle)), copyNext(t, false)
}

// serial reports whether the time of reading plus the time of copying explains the wait.
func serial(t record.Train) bool {
	return t.Prefetch == 0 || t.Prefetch == 1 && t.Isolated+t.Copy > t.Target
}

// stepless reports whether the steps are so short that the run only loads.
func stepless(t record.Train) bool { return t.Target <= noStep*t.Isolated }

func loaderWhy(t record.Train) string {
	if stepless(t) {
		return fmt.Sprintf("steps take no time, and the loader alone takes %s for a batch (%s)", dur(t.Isolated),
			rate(t.BatchBytes, t.Isolated))
	}
	return fmt.Sprintf("the loader alone takes %s for a batch (%s) and a step %s: it would have to give %s",
		dur(t.Isolated), rate(t.BatchBytes, t.Isolated), dur(t.Target), rate(t.BatchBytes, t.Target))
}

func loaderNext(t record.Train, l Limits) (next []string) {
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
	next = append(next, moreReaders(t, l))
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
func moreReaders(t record.Train, l Limits) string {
	if t.Memory == Engine || t.Memory == Loader {
		return "raise the engine's queue depth, if the storage is not at its limit"
	}
	if l.CPUs > 0 && t.Workers >= l.CPUs {
		return fmt.Sprintf("%d workers are as many as there are processors (%d): make each read cheaper instead", t.Workers,
			l.CPUs)
	}
	if stepless(t) {
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

// copyNext lists the settings that speed up a copy. saturated means that the copy alone is too slow.
func copyNext(t record.Train, saturated bool) (next []string) {
	if t.Memory == Pageable {
		next = append(next, "pin the memory that batches are read into (memory pinned; pin_memory=True in a DataLoader)")
	}
	deeper := fmt.Sprintf("raise prefetch from %d to %d", t.Prefetch, max(deepPrefetch, 2*t.Prefetch))
	switch {
	case !saturated && serial(t):
		next = append([]string{deeper}, next...)
	case !saturated && t.IdleP99 > 2*t.Idle:
		next = append(next, deeper+": few steps wait long, which a longer queue evens out")
	}
	if !saturated && !serial(t) && t.Isolated > noHeadroom*t.Target {
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
	case !serial(t) && t.IdleP99 <= 2*t.Idle:
		next = append(next, deeper)
	}
	return next
}

func dur(seconds float64) string {
	return units.Duration(time.Duration(seconds * float64(time.Second)))
}
