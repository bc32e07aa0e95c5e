// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// WriteText writes the benchmark results f for a terminal of 80 columns, without colour. The written text begins with
// the verdict and a description of the machine. After the verdict, the text has a table of runs, the answers of
// sweeps, the run that simulates training, and the limits of the machine. The written text ends with the details of
// each run. WriteText fails only if writing to w fails.
func WriteText(w io.Writer, f *record.File) error {
	s := newSheet(w)
	v := judge(f)
	s.field("", "verdict", strings.Join(v.Sentences, " "))
	for _, x := range v.Warnings {
		s.wrap("WARNING   ", "          ", x)
	}
	s.where(f)
	swept := sweptRuns(f)
	var own []int // runs that no sweep shows
	for i := range f.Runs {
		if !swept[i] {
			own = append(own, i)
		}
	}
	if len(own) > 1 {
		s.summary(f.Runs, own)
	}
	for _, sw := range f.Sweeps {
		s.sweep(f, sw)
	}
	if f.Train != nil {
		s.train(f.Train)
	}
	// A single run names the limit that binds; the others would only hide it.
	if f.Ceilings != nil && len(f.Ceilings.Limits) > 0 && (len(f.Runs) > 1 || len(f.Runs) == 0 && f.Train == nil) {
		s.ceilings(f)
	}
	told := map[string]bool{}
	for i := range f.Runs {
		// The table of a sweep says enough of its runs, unless one went wrong.
		if r := &f.Runs[i]; !swept[i] || failed(r) || strayed(r) != "" {
			s.run(r)
		} else {
			s.remarks("", r, told)
		}
	}
	for _, n := range f.Notes {
		s.wrap("note: ", "      ", printable(n))
	}
	return errs.Wrap("write", "report", s.w.Flush())
}

// sweptRuns returns the runs that are points of a sweep.
func sweptRuns(f *record.File) map[int]bool {
	in := map[int]bool{}
	for _, s := range f.Sweeps {
		for _, p := range s.Points {
			in[p.Run] = true
		}
	}
	return in
}

func (s *sheet) where(f *record.File) {
	s.field("", "device", deviceWords(f.Machine.Device))
	if d := f.Machine.Device.Driver; d != "" {
		s.field("", "", "driver "+printable(d))
	}
	s.field("", "machine", machineWords(f.Machine)+"; kernel "+printable(f.Machine.Kernel+" "+f.Machine.Arch))
	for _, x := range f.Machine.Storage {
		s.field("", "storage", storageWords(x))
	}
	s.field("", "version", printable(f.Version)+", "+f.Started.UTC().Format(time.DateTime)+" UTC, took "+span(f.Seconds))
	s.field("", "command", shell(f.Command))
}

func (s *sheet) summary(runs []record.Run, which []int) {
	s.line("")
	var all []*record.Run
	g := newGrid(">#", "run", ">GB/s", ">GiB/s", ">share", "taken", "measured")
	for _, i := range which {
		r := &runs[i]
		g.add(fmt.Sprint(i+1), printable(r.Name), number(r.GBps), number(r.GBps*1e9/units.GiB), shareNumber(r), takenNames(r),
			mark(r))
		all = append(all, r)
	}
	s.grid("", g)
	s.above("", all)
}

// above explains, below a table, what a share above 1 means.
func (s *sheet) above(indent string, runs []*record.Run) {
	if slices.ContainsFunc(runs, func(r *record.Run) bool { return above(r.Share) }) {
		s.wrap(indent, indent, fmt.Sprintf("A share of more than %.2f, or than the limit's own spread allows, is %s.",
			aboveLimit, aboveWords))
	}
}

// mark returns what was measured as one word, with a sign for a warning.
func mark(r *record.Run) string {
	m := measured(r)
	switch {
	case failed(r):
		return "WRONG DATA"
	case strayed(r) != "":
		return m + " (not as asked)"
	case coldButCached(r) != "":
		return m + " (asked cold)"
	case r.Interrupted:
		return m + " (interrupted)"
	}
	return m
}

// number prints a rate without its unit, which is in the heading.
func number(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func shareNumber(r *record.Run) string {
	if r.Share == nil {
		return none
	}
	return fmt.Sprintf("%.2f", r.Share.Ratio)
}

func (s *sheet) run(r *record.Run) {
	const in = "  "
	s.line("")
	s.line(printable(r.Name))
	if failed(r) {
		s.field(in, "VERIFIED", verifyWords(r.Verify))
	}
	s.field(in, "rate", rates(r.GBps)+", "+shareWords(r.Share))
	s.field(in, "done", doneWords(r))
	s.field(in, "requests", requestWords(r))
	if l := r.Latency; l != nil {
		s.field(in, "latency", fmt.Sprintf("p50 %s, p90 %s, p99 %s, p99.9 %s, max %s", span(l.P50), span(l.P90), span(l.P99),
			span(l.P999), span(l.Max)))
	}
	if n := len(r.Passes); n > 1 {
		s.field(in, "passes", passWords(r.Passes))
	}
	if r.Stable != nil {
		s.field(in, "stable", stableWords(r.Stable))
	}
	s.field(in, "route", "asked "+asked(r.Settings)+" -> taken "+taken(r))
	s.field(in, "", strayed(r))
	if r.Proof != "" {
		s.field(in, "", "known from "+printable(r.Proof))
	}
	if r.Settings.Op != "copy" || r.Cache != nil {
		s.field(in, "cache", "measured "+measuredWords(measured(r))+"; "+cacheWords(r.Cache))
		if r.Cache != nil {
			s.field(in, "", printable(r.Cache.Why))
		}
	}
	if d := r.Storage; d != nil {
		s.field(in, "disks", diskWords(d))
	}
	s.field(in, "cpu", cpuWords(r.CPU))
	if !failed(r) {
		s.field(in, "verified", verifyWords(r.Verify))
	}
	if r.Interrupted {
		s.field(in, "ended", "interrupted: these are the results so far")
	}
	s.remarks(in, r, map[string]bool{})
}

// remarks prints a run's refusals and notes that have not been printed yet.
func (s *sheet) remarks(in string, r *record.Run, told map[string]bool) {
	for _, x := range r.Refusals {
		text := printable(x.What) + ": " + printable(x.Reason)
		if told[text+x.Fix] {
			continue
		}
		told[text+x.Fix] = true
		s.wrap(in+"not taken: ", in+"           ", text)
		if x.Fix != "" {
			s.wrap(in+"      fix: ", in+"           ", printable(x.Fix))
		}
	}
	for _, n := range r.Notes {
		if !told[n] {
			told[n] = true
			s.wrap(in+"note: ", in+"      ", printable(n))
		}
	}
}

func doneWords(r *record.Run) string {
	last := fmt.Sprintf("last done %s at %s; %s in all", span(r.Last.Seconds), units.Rate(r.Last.GBps), size(r.Bytes))
	if r.First == nil {
		return last
	}
	return fmt.Sprintf("first done %s at %s, ", span(r.First.Seconds), units.Rate(r.First.GBps)) + last
}

func requestWords(r *record.Run) string {
	out := settingsWords(r.Settings)
	if r.Ops > 0 {
		out = fmt.Sprintf("%s, %s IOPS; %s", count(r.Ops), count(int64(r.IOPS)), out)
	}
	return strings.TrimSuffix(out, "; ")
}

func passWords(passes []record.Pass) string {
	lo, hi, _ := passSpread(passes)
	return fmt.Sprintf("%d, from %s to %s", len(passes), units.Rate(lo), units.Rate(hi))
}

func diskWords(d *record.Disk) string {
	return fmt.Sprintf("%s read %s, wrote %s meanwhile (all processes)", printable(strings.Join(d.Devices, ", ")),
		size(d.Read), size(d.Written))
}

func cpuWords(c record.CPU) string {
	return fmt.Sprintf("%s user, %s system; %s a GiB", span(c.User), span(c.System), span(c.PerGiB))
}

func (s *sheet) sweep(f *record.File, sw record.Sweep) {
	s.line("")
	s.wrap("", "", printable(sw.Question))
	several := seriesOf(sw)
	heads := []string{">" + printable(sw.Axis), ">GB/s", ">GiB/s", ">share", ">p99", "taken", "measured"}
	if sw.Unit == "" {
		heads[0] = printable(sw.Axis)
	}
	if len(several) > 1 {
		heads = append([]string{"series"}, heads...)
	}
	busy := trains(sw)
	if busy { // a step has no latency of its own; how busy the device was is what counts
		heads[slices.Index(heads, ">p99")] = ">busy"
	}
	var all []*record.Run
	g := newGrid(heads...)
	for _, p := range sw.Points {
		r := &f.Runs[p.Run]
		all = append(all, r)
		p99 := none
		switch {
		case busy:
			p99 = percent(p.AU)
		case r.Latency != nil:
			p99 = span(r.Latency.P99)
		}
		row := []string{printable(p.Label), number(r.GBps), number(r.GBps * 1e9 / units.GiB), shareNumber(r), p99,
			takenNames(r), mark(r)}
		if len(several) > 1 {
			row = append([]string{printable(p.Series)}, row...)
		}
		g.add(row...)
	}
	s.grid("  ", g)
	s.above("  ", all)
	if sw.Answer != "" {
		s.wrap("  -> ", "     ", printable(sw.Answer))
	}
}

// seriesOf returns the names of the series in the order of their first appearance.
func seriesOf(sw record.Sweep) []string {
	var out []string
	seen := map[string]bool{}
	for _, p := range sw.Points {
		if !seen[p.Series] {
			seen[p.Series] = true
			out = append(out, p.Series)
		}
	}
	return out
}

func (s *sheet) ceilings(f *record.File) {
	c := f.Ceilings
	s.line("")
	s.wrap("", "", "Limits of this machine, measured "+c.Measured.UTC().Format(time.DateTime)+" UTC:")
	g := newGrid("limit", ">GB/s", ">GiB/s", ">spread", "how")
	for _, l := range c.Limits {
		g.add(printable(l.Name), number(l.GBps), number(l.GBps*1e9/units.GiB), percent(l.Spread()), printable(l.How))
	}
	s.grid("  ", g)
	for _, n := range c.Notes {
		s.wrap("  note: ", "        ", printable(n))
	}
}
