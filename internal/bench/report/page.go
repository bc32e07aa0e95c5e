// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/units"
)

// page is what the template shows: text that is ready, and plots.
type page struct {
	Style     template.CSS
	Policy    string
	Title     string
	Sentences []string
	Warnings  []string
	Facts     []fact
	Command   string
	Overview  *overview
	Train     *trainView
	Sweeps    []sweepView
	Runs      []runView
	Limits    []limitView
	LimitsOn  string
	Notes     []string
	Version   string
	Date, Day string
}

type fact struct{ Name, Value string }

type overview struct {
	Title  string
	Plot   figure
	Legend []fact // class and words
	Rows   []row
	More   int // runs that only sweeps show
}

// row is a run in a table.
type row struct {
	ID, Name          string
	GBps, GiBps       string
	Share, ShareOf    string
	Asked, Taken      string
	Class, Measured   string
	P99, CPU, Checked string
	Bad               string // what must not be missed
}

type runView struct {
	row
	Open      bool
	Problems  []string
	OverTime  template.HTML
	Latencies template.HTML
	Quantiles []fact
	Facts     []fact
	Refusals  []record.Refusal
	Notes     []string
}

type sweepView struct {
	ID, Question, Answer, Axis string
	Plot                       figure
	Hollow                     bool
	Groups                     []sweepGroup
}

type sweepGroup struct {
	Series string
	Points []sweepRow
}

type sweepRow struct {
	row
	Label string
}

type limitView struct{ Name, GBps, GiBps, Spread, How string }

type trainView struct {
	AU, Wanted, Samples, Rate string
	Asked, Taken              string
	Class, Measured           string
	Met                       bool
	Bound, Why                string
	Next                      []string
	Parts                     []trainRow
	Facts                     []fact
	Bars, Line, Idle          figure
}

type trainRow struct{ Name, Time, Of, What string }

func newPage(f *record.File) *page {
	v := judge(f)
	p := &page{
		Title: "NebulaIO benchmark", Sentences: v.Sentences, Warnings: v.Warnings, Command: shell(f.Command),
		Version: printable(f.Version), Date: f.Started.UTC().Format(time.DateTime) + " UTC", Day: f.Started.UTC().Format(time.DateOnly),
	}
	d := f.Machine.Device
	p.Facts = []fact{{"Device", deviceWords(d)}, {"Machine", machineWords(f.Machine)}}
	for _, s := range f.Machine.Storage {
		p.Facts = append(p.Facts, fact{"Storage", storageWords(s)})
	}
	p.Facts = append(p.Facts, fact{"Driver", blank(printable(d.Driver))}, fact{"Kernel", printable(f.Machine.Kernel + " " + f.Machine.Arch)},
		fact{"Measured", p.Date + ", took " + span(f.Seconds) + ", by NebulaIO " + p.Version})
	p.Overview = newOverview(f)
	shown := map[string]bool{}
	if p.Overview != nil && len(p.Overview.Rows) <= 6 {
		for _, r := range p.Overview.Rows {
			shown[r.ID] = true
		}
	}
	for i := range f.Runs {
		v := newRunView(f, i)
		// A long list is read from its headings; a short one is read.
		v.Open = shown[v.ID] || len(v.Problems) > 0
		p.Runs = append(p.Runs, v)
	}
	for i, s := range f.Sweeps {
		p.Sweeps = append(p.Sweeps, newSweepView(f, s, i))
	}
	if f.Train != nil {
		p.Train = newTrainView(f.Train)
	}
	if c := f.Ceilings; c != nil {
		p.LimitsOn = c.Measured.UTC().Format(time.DateTime) + " UTC"
		for _, l := range c.Limits {
			p.Limits = append(p.Limits, limitView{printable(l.Name), number(l.GBps), number(l.GBps * 1e9 / units.GiB), percent(l.Spread()), printable(l.How)})
		}
		p.Notes = append(p.Notes, c.Notes...)
	}
	p.Notes = append(p.Notes, f.Notes...)
	for i, n := range p.Notes {
		p.Notes[i] = printable(n)
	}
	return p
}

// newOverview shows the runs that are not steps of a numeric sweep, which has
// its own plot; where there are only such, the best of each.
func newOverview(f *record.File) *overview {
	if len(f.Runs) == 0 {
		return nil
	}
	numeric, best := map[int]bool{}, map[int]bool{}
	for _, s := range f.Sweeps {
		if s.Unit == "" {
			continue
		}
		top := -1
		for _, p := range s.Points {
			numeric[p.Run] = true
			if top < 0 || f.Runs[p.Run].GBps > f.Runs[top].GBps {
				top = p.Run
			}
		}
		if top >= 0 {
			best[top] = true
		}
	}
	show := func(i int) bool { return !numeric[i] }
	if len(numeric) >= len(f.Runs) {
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
		runs, o.Rows = append(runs, r), append(o.Rows, newRow(f, i))
		m, words := measured(r), "measured "+measuredWords(measured(r))
		if failed(r) {
			m, words = "wrong", "wrong data"
		}
		if !seen[m] {
			seen[m] = true
			o.Legend = append(o.Legend, fact{m, words})
		}
	}
	o.Title = "Against the limits of this machine"
	if f.Ceilings == nil {
		o.Title = "Rates"
	}
	o.Plot = shareBars(runs)
	return o
}

func newRow(f *record.File, i int) row {
	r := &f.Runs[i]
	v := row{
		ID: fmt.Sprintf("run-%d", i+1), Name: printable(r.Name), GBps: units.Rate(r.GBps), GiBps: gib(r.GBps),
		Share: none, ShareOf: "limit not measured", Asked: asked(r.Settings), Taken: taken(r),
		Class: "m-" + measured(r), Measured: measuredWords(measured(r)), P99: none, CPU: span(r.CPU.PerGiB), Checked: "not asked for",
	}
	if r.Share != nil {
		v.Share = percent(r.Share.Ratio)
		v.ShareOf = "of " + printable(r.Share.Name) + " (" + units.Rate(r.Share.Ceiling) + ")"
	}
	if r.Latency != nil {
		v.P99 = span(r.Latency.P99)
	}
	if r.Verify != nil {
		v.Checked = size(r.Verify.Bytes) + ", no difference"
	}
	switch {
	case failed(r):
		v.Bad, v.Checked = "wrong data", "FAILED"
	case strayed(r) != "":
		v.Bad = "route not as asked"
	case coldButCached(r) != "":
		v.Bad = coldButCached(r)
	case r.Interrupted:
		v.Bad = "interrupted"
	}
	return v
}

// maxPlots is of how many runs plots are drawn: a page of thousands is one that
// no browser opens.
const maxPlots = 200

func newRunView(f *record.File, i int) runView {
	r := &f.Runs[i]
	v := runView{row: newRow(f, i)}
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
		v.Problems = append(v.Problems, "Interrupted: this is what was measured until then.")
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
		v.Refusals = append(v.Refusals, record.Refusal{What: printable(x.What), Reason: printable(x.Reason), Fix: printable(x.Fix)})
	}
	for _, n := range r.Notes {
		v.Notes = append(v.Notes, printable(n))
	}
	return v
}

func newSweepView(f *record.File, s record.Sweep, i int) sweepView {
	v := sweepView{ID: fmt.Sprintf("sweep-%d", i+1), Question: printable(s.Question), Answer: printable(s.Answer), Axis: printable(s.Axis), Plot: sweepPlot(f, s)}
	names := seriesOf(s)
	for _, name := range names {
		g := sweepGroup{}
		if len(names) > 1 {
			g.Series = printable(name)
		}
		for _, p := range s.Points {
			if p.Series == name {
				r := newRow(f, p.Run)
				r.Taken = takenNames(&f.Runs[p.Run])
				g.Points = append(g.Points, sweepRow{r, printable(p.Label)})
				v.Hollow = v.Hollow || s.Unit != "" && measured(&f.Runs[p.Run]) != ofStorage
			}
		}
		v.Groups = append(v.Groups, g)
	}
	return v
}

func newTrainView(t *record.Train) *trainView {
	v := &trainView{
		AU: percent(t.AU), Samples: sig(t.SamplesPerSec), Rate: rates(t.GBps), Met: t.AU >= t.WantedAU,
		Bound: printable(string(t.Bound)), Why: printable(t.Why), Bars: partBars(t), Line: timeLine(t), Idle: idlePlot(t),
	}
	r := reading(t)
	v.Asked, v.Taken, v.Class, v.Measured = asked(r.Settings), taken(r), "m-"+measured(r), measuredWords(measured(r))
	if t.WantedAU > 0 {
		v.Wanted = percent(t.WantedAU)
	}
	for _, n := range t.Next {
		v.Next = append(v.Next, printable(n))
	}
	for _, p := range trainParts(t) {
		v.Parts = append(v.Parts, trainRow{p.name, span(p.seconds), ratioWords(p.seconds, t.Target), p.what})
	}
	v.Facts = []fact{
		{"Workload", printable(t.Workload)}, {"Batch", fmt.Sprintf("%d samples of %s", t.Batch, size(t.SampleBytes))},
		{"Loader", fmt.Sprintf("%s, %s, %d batches ahead", printable(t.Pattern), plural(t.Workers, "worker"), t.Prefetch)},
		{"Step", printable(t.Step) + ", timed by " + printable(t.Timing)},
		{"Steps", fmt.Sprintf("%d after %d to warm up, %s", t.Steps, t.Warmup, span(t.Seconds))},
		{"Cache", cacheWords(t.Cache)},
	}
	if t.Proof != "" {
		v.Facts = append(v.Facts, fact{"Route known from", printable(t.Proof)})
	}
	return v
}
