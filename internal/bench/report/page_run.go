// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

const (
	// overviewRows is how many runs the overview shows without loss: more bars
	// than a screen holds say less than the sweeps they come from.
	overviewRows = 16
	// openRuns is how many runs a page shows with all that is known of them.
	openRuns = 4
)

// newOverview shows the runs that no sweep shows. While there is room, it adds the points of sweeps over names. If
// there are only points of numeric sweeps, it shows the best point of each.
func newOverview(f *record.File) *overview {
	if len(f.Runs) == 0 {
		return nil
	}
	numeric, named, best := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, s := range f.Sweeps {
		top := -1
		for _, p := range s.Points {
			if s.Unit == "" {
				named[p.Run] = true
				continue
			}
			numeric[p.Run] = true
			if top < 0 || f.Runs[p.Run].GBps > f.Runs[top].GBps {
				top = p.Run
			}
		}
		if top >= 0 {
			best[top] = true
		}
	}
	count := func(show func(int) bool) (n int) {
		for i := range f.Runs {
			if show(i) {
				n++
			}
		}
		return n
	}
	show := func(i int) bool { return !numeric[i] }
	if own := func(i int) bool { return !numeric[i] && !named[i] }; count(show) > overviewRows && count(own) > 0 {
		show = own
	}
	if count(show) == 0 {
		show = func(i int) bool { return best[i] }
	}
	o := &overview{}
	var runs []*record.Run
	seen := map[string]bool{}
	for i := range f.Runs {
		// A plot of more bars than a screen holds says less than its table.
		if !show(i) || len(runs) == 40 {
			o.More++
			continue
		}
		r := &f.Runs[i]
		row := newRow(f, i)
		if len(r.Routes) == 1 { // how many bytes is in the list of runs
			row.Taken = takenNames(r)
		}
		runs, o.Rows = append(runs, r), append(o.Rows, row)
		m, words := measured(r), "measured "+measuredWords(measured(r))
		if failed(r) {
			m, words = "wrong", "wrong data"
		}
		if !seen[m] {
			seen[m] = true
			o.Legend = append(o.Legend, fact{m, words})
		}
	}
	for i, l := range barLabels(runs) {
		o.Rows[i].Name = join(", ", l.name, l.asked)
	}
	o.Title = "Against the limits of this machine"
	if f.Ceilings == nil {
		o.Title = "Rates"
	}
	o.Plot = shareBars(runs)
	return o
}

// headings returns headings that distinguish the runs of a list. A point of a sweep is named by its value in the
// sweep, because all points may have one name.
func headings(f *record.File) []string {
	out := make([]string, len(f.Runs))
	var own []*record.Run
	var at []int
	swept := sweptRuns(f)
	for i := range f.Runs {
		if !swept[i] {
			own, at = append(own, &f.Runs[i]), append(at, i)
		}
	}
	for i, l := range barLabels(own) {
		out[at[i]] = join(", ", l.name, l.asked)
	}
	for _, s := range f.Sweeps {
		several := len(seriesOf(s)) > 1
		for _, p := range s.Points {
			if out[p.Run] != "" {
				continue
			}
			place := printable(s.Axis) + ": " + printable(p.Label)
			if several {
				place = join(", ", place, printable(p.Series))
			}
			out[p.Run] = place
		}
	}
	return out
}

// maxPlots is the number of runs for which plots are drawn, because no browser opens a page with thousands of plots.
const maxPlots = 200

func newRunView(f *record.File, i int) runView {
	r := &f.Runs[i]
	v := runView{row: newRow(f, i), Routes: takenNames(r)}
	if i < maxPlots {
		v.OverTime, v.Latencies = overTime(r), latencies(r)
	}
	if failed(r) {
		v.Problems = append(v.Problems, "Verification "+verifyWords(r.Verify)+".")
	}
	for _, s := range []string{strayed(r), coldButCached(r)} {
		if s != "" {
			v.Problems = append(v.Problems, strings.ToUpper(s[:1])+s[1:]+".")
		}
	}
	if r.Interrupted {
		v.Problems = append(v.Problems, "Interrupted: these are the results so far.")
	}
	if r.Stable != nil && !r.Stable.Reached {
		v.Problems = append(v.Problems, "Stability "+stableWords(r.Stable)+".")
	}
	if l := r.Latency; l != nil {
		v.Quantiles = []fact{{"min", span(l.Min)}, {"mean", span(l.Mean)}, {"p50", span(l.P50)}, {"p90", span(l.P90)},
			{"p99", span(l.P99)}, {"p99.9", span(l.P999)}, {"max", span(l.Max)}}
	}
	add := func(name, value string) {
		if value != "" {
			v.Facts = append(v.Facts, fact{name, value})
		}
	}
	add("Run", v.Name)
	add("Rate", rates(r.GBps))
	if r.Share != nil {
		add("Share", join(", ", v.Share+" "+v.ShareOf, v.Above))
	}
	add("Route", "asked "+v.Asked+", taken "+v.Taken)
	add("Measured", v.Measured)
	add("Moved", size(r.Bytes)+" in "+span(r.Last.Seconds))
	if r.First != nil {
		add("First done", span(r.First.Seconds)+", "+rates(r.First.GBps))
	}
	add("Last done", span(r.Last.Seconds)+", "+rates(r.Last.GBps))
	if r.Ops > 0 {
		add("Requests", count(r.Ops)+", "+count(int64(r.IOPS))+" IOPS")
	}
	add("Settings", settingsWords(r.Settings))
	add("Paths", printable(strings.Join(r.Settings.Paths, ", ")))
	add("Route known from", printable(r.Proof))
	if r.Settings.Op != "copy" || r.Cache != nil {
		c := cacheWords(r.Cache)
		if r.Cache != nil && r.Cache.Why != "" {
			c += "; " + printable(r.Cache.Why)
		}
		add("Cache", c)
	}
	if r.Storage != nil {
		add("Block devices", diskWords(r.Storage))
	}
	add("CPU", cpuWords(r.CPU))
	if len(r.Passes) > 1 {
		add("Passes", passWords(r.Passes))
	}
	if r.Stable != nil {
		add("Stable", stableWords(r.Stable))
	}
	add("Verified", verifyWords(r.Verify))
	for _, x := range r.Refusals {
		v.Refusals = append(v.Refusals, record.Refusal{What: printable(x.What), Reason: printable(x.Reason),
			Fix: printable(x.Fix)})
	}
	for _, n := range r.Notes {
		v.Notes = append(v.Notes, printable(n))
	}
	return v
}
