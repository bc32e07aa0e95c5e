// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/units"
)

// verdict is the summary for a hurried reader: sentences with the best rates, each with what it measured, and the
// warnings.
type verdict struct {
	Sentences []string
	Warnings  []string
}

func judge(f *record.File) verdict {
	var v verdict
	// Two rates say what matters: the slow source and the fast one. The others
	// speak only where there are no such.
	for _, c := range []struct{ op, class, words string }{
		{"read", ofStorage, "From storage"}, {"read", ofMemory, "With the data already in memory"}, {"write", ofStorage,
			"To storage"},
		{"write", ofMemory, "Into memory, not to storage"},
		{"", ofBoth, "Partly from memory"}, {"", ofUnknown, "Whether from storage or from memory is not known"}, {"", ofCopy,
			"Copies in memory"},
	} {
		best, n := fastest(f, c.op, c.class)
		if best == nil || len(v.Sentences) == 2 {
			continue
		}
		s := c.words + ": "
		if n > 1 {
			s += "up to "
		}
		s += units.Rate(best.GBps)
		v.Sentences = append(v.Sentences, s+againstLimit(best.Share)+".")
	}
	if f.Train != nil {
		v.Sentences = append(v.Sentences, trainSentence(f.Train))
	}
	if len(v.Sentences) == 0 && slices.ContainsFunc(f.Runs, func(r record.Run) bool { return failed(&r) }) {
		v.Sentences = append(v.Sentences, "There is no rate to rely on: the data that arrived was wrong.")
	}
	if len(v.Sentences) == 0 && f.Ceilings != nil && len(f.Ceilings.Limits) > 0 {
		v.Sentences = append(v.Sentences, fmt.Sprintf("Measured %s of this machine.",
			plural(len(f.Ceilings.Limits), "limit")))
	}
	if len(v.Sentences) == 0 {
		v.Sentences = append(v.Sentences, "Nothing was measured.")
	}
	v.Warnings = warnings(f)
	return v
}

// againstLimit compares a rate with the limit that binds. A rate a little above a limit is noise. A rate far above it
// means that the limit is wrong.
func againstLimit(s *record.Share) string {
	if s == nil {
		return ""
	}
	limit := fmt.Sprintf("%s, %s", printable(s.Name), units.Rate(s.Ceiling))
	switch {
	case tooLow(s):
		return ", above the stored limit (" + limit + "): that limit is too low, measure it again"
	case s.Ratio >= atLimit:
		return ", at the limit of this machine (" + limit + ")"
	}
	return fmt.Sprintf(", %s of what %s gives (%s)", percent(s.Ratio), printable(s.Name), units.Rate(s.Ceiling))
}

func warnings(f *record.File) []string {
	var out []string
	var wrong, stray, cached, part, unsettled, above int
	var strayFirst, aboveFirst string
	for i := range f.Runs {
		r := &f.Runs[i]
		if failed(r) {
			wrong++
		}
		if s := strayed(r); s != "" {
			if stray == 0 {
				strayFirst = printable(r.Name) + ": " + s
			}
			stray++
		}
		if coldButCached(r) != "" && r.Settings.Op == "read" {
			cached++
		}
		if s := r.Share; tooLow(s) {
			if above == 0 {
				aboveFirst = printable(s.Name)
			}
			above++
		}
		if r.Interrupted {
			part++
		}
		if r.Stable != nil && !r.Stable.Reached {
			unsettled++
		}
	}
	all := plural(len(f.Runs), "run")
	if wrong > 0 {
		out = append(out, fmt.Sprintf("Wrong data: verification failed in %d of %s. Do not use those rates.", wrong, all))
	}
	if f.Interrupted || part > 0 {
		out = append(out, "Interrupted: these are the results so far.")
	}
	if stray > 0 {
		out = append(out, fmt.Sprintf("The bytes took another route than requested in %d of %s (%s).", stray, all,
			strayFirst))
	}
	if cached > 0 {
		out = append(out, fmt.Sprintf("The page cache served %d of %s that should be cold: those are not storage rates.",
			cached, all))
	}
	if t := f.Train; t != nil {
		r := reading(t)
		if m := measured(r); m == ofMemory || m == ofBoth {
			out = append(out, "The training data came from "+source(m)+": storage would be slower.")
		}
		if x := strayed(r); x != "" {
			out = append(out, "The bytes took another route than requested: "+x+".")
		}
	}
	if above > 0 {
		out = append(out, fmt.Sprintf("Faster than the stored limit (%s) allows in %d of %s: that limit is too low, "+
			"measure it again.", aboveFirst, above, all))
	}
	if unsettled > 0 {
		out = append(out, fmt.Sprintf("The rate did not settle in %d of %s.", unsettled, all))
	}
	if f.Ceilings == nil && len(f.Runs) > 0 {
		out = append(out, "The limits of this machine have not been measured: there is no share to compare with.")
	}
	return out
}

// fastest returns the fastest run of a class whose data was right, and the number of such runs. If op is not empty,
// only runs of that operation count.
func fastest(f *record.File, op, class string) (best *record.Run, n int) {
	for i := range f.Runs {
		r := &f.Runs[i]
		if measured(r) != class || (op != "" && r.Settings.Op != op) {
			continue
		}
		n++
		if !failed(r) && (best == nil || r.GBps > best.GBps) {
			best = r
		}
	}
	return best, n
}

func trainSentence(t *record.Train) string {
	name := printable(t.Workload)
	if name == "custom" || name == "" { // no name that a reader knows
		name = "The training-shaped run"
	}
	s := fmt.Sprintf("%s is %s: the accelerator worked %s of the time", name, boundWords(bottleneck.Current(t.Bound)),
		percent(t.AU))
	if t.WantedAU > 0 {
		s += fmt.Sprintf(", %s wanted", percent(t.WantedAU))
	}
	return s + fmt.Sprintf(", and waited %s between two steps of %s.", span(t.Idle), span(t.Target))
}

func boundWords(b bottleneck.Bound) string {
	words := map[bottleneck.Bound]string{
		bottleneck.Storage: "held back by reading",
		bottleneck.Copy:    "held back by the copy into device memory",
		bottleneck.CPU:     "held back by processors",
		bottleneck.Compute: "held back by the accelerator itself, as it should be",
	}
	if w, ok := words[b]; ok {
		return w
	}
	return printable(string(b))
}
