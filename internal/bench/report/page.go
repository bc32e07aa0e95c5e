// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html/template"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/units"
)

// page holds the data of the template: finished texts and plots.
type page struct {
	Style     template.CSS
	Policy    string
	Title     string
	Headline  string
	Lead      []string // the sentences after it
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

// row is one run in a table.
type row struct {
	ID, Name          string
	GBps, GiBps       string
	Share, ShareOf    string
	Above             string // remark on a share above 1
	AU                string // accelerator utilisation, if the point is a training-shaped run
	Asked, Taken      string
	Class, Measured   string
	Verdict           string // what was measured, in a word
	P99, CPU, Checked string
	Bad               string // a warning that must be seen
}

type runView struct {
	row
	Heading   string // what distinguishes this run from the others
	Routes    string // without bytes
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
	Plots                      []figure
	Hollow, Trains             bool
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
		Title: "NebulaIO benchmark", Headline: v.Sentences[0], Lead: v.Sentences[1:], Warnings: v.Warnings,
		Command: shell(f.Command),
		Version: printable(f.Version), Date: f.Started.UTC().Format(time.DateTime) +
			" UTC", Day: f.Started.UTC().Format(time.DateOnly),
	}
	d := f.Machine.Device
	p.Facts = []fact{{"Device", deviceWords(d)}, {"Machine", machineWords(f.Machine)}}
	for _, s := range f.Machine.Storage {
		p.Facts = append(p.Facts, fact{"Storage", storageWords(s)})
	}
	p.Facts = append(p.Facts, fact{"Driver", blank(printable(d.Driver))},
		fact{"Kernel", printable(f.Machine.Kernel + " " + f.Machine.Arch)},
		fact{"Measured", p.Date + ", took " + span(f.Seconds) + ", by NebulaIO " + p.Version})
	p.Overview = newOverview(f)
	heads := headings(f)
	for i := range f.Runs {
		v := newRunView(f, i)
		// A long list is read from its headings; a short one is read.
		v.Heading, v.Open = heads[i], len(f.Runs) <= openRuns
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
			p.Limits = append(p.Limits, limitView{printable(l.Name), number(l.GBps), number(l.GBps * 1e9 / units.GiB),
				percent(l.Spread()), printable(l.How)})
		}
		p.Notes = append(p.Notes, c.Notes...)
	}
	p.Notes = append(p.Notes, f.Notes...)
	for i, n := range p.Notes {
		p.Notes[i] = printable(n)
	}
	return p
}

func newRow(f *record.File, i int) row {
	r := &f.Runs[i]
	v := row{
		ID: fmt.Sprintf("run-%d", i+1), Name: printable(r.Name), GBps: units.Rate(r.GBps), GiBps: gib(r.GBps),
		Share: none, ShareOf: "limit not measured", Asked: asked(r.Settings), Taken: taken(r),
		Class: "m-" + measured(r), Measured: measuredWords(measured(r)), Verdict: measuredWord(measured(r)), P99: none,
		CPU: span(r.CPU.PerGiB), Checked: "no",
	}
	if r.Share != nil {
		v.Share = percent(r.Share.Ratio)
		v.ShareOf = "of " + printable(r.Share.Name) + " (" + units.Rate(r.Share.Ceiling) + ")"
		if above(r.Share) {
			v.Above = aboveWords
		}
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
		v.Bad = "not the requested route"
	case coldButCached(r) != "":
		v.Bad = coldButCached(r)
	case r.Interrupted:
		v.Bad = "interrupted"
	}
	return v
}

func newSweepView(f *record.File, s record.Sweep, i int) sweepView {
	v := sweepView{ID: fmt.Sprintf("sweep-%d", i+1), Question: printable(s.Question), Answer: printable(s.Answer),
		Axis: printable(s.Axis), Plots: sweepPlots(f, s), Trains: trains(s)}
	names := seriesOf(s)
	for _, name := range names {
		g := sweepGroup{}
		if len(names) > 1 {
			g.Series = printable(name)
		}
		for _, p := range s.Points {
			if p.Series == name {
				r := newRow(f, p.Run)
				r.Taken, r.AU = takenNames(&f.Runs[p.Run]), percent(p.AU)
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
		Bound: printable(string(bottleneck.Current(t.Bound))), Why: printable(t.Why), Bars: partBars(t), Line: timeLine(t),
		Idle: idlePlot(t),
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
