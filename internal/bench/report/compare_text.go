// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// WriteComparison writes the comparison c for a terminal: first the differences, then the pairs, their mean, and the
// runs without a counterpart. WriteComparison fails only if writing to w fails.
func WriteComparison(w io.Writer, c Comparison) error {
	s := newSheet(w)
	for _, x := range []struct {
		name string
		side Side
	}{{"A", c.A}, {"B", c.B}} {
		s.field("", x.name, x.side.Version+", "+x.side.Started+", "+x.side.Device)
		s.field("", "", x.side.Command)
	}
	if len(c.Differences) > 0 {
		s.line("")
		s.line("NOT THE SAME:")
		for _, d := range c.Differences {
			what := d.What
			if d.Run != "" {
				what += " of " + printable(d.Run)
			}
			s.wrap("! ", "    ", what+": "+blank(d.A)+" -> "+blank(d.B))
			if d.Means != "" {
				s.wrap("    ", "    ", d.Means)
			}
		}
	}
	if len(c.Pairs) > 0 {
		s.line("")
		g := newGrid("run", ">A", ">B", ">B/A", ">p99", ">CPU", ">noise", "verdict")
		for _, p := range c.Pairs {
			v := string(p.Verdict)
			if p.Why != "" {
				v += " *"
			}
			g.add(printable(p.Name), rateCell(p.A), rateCell(p.B), ratioCell(p.Rate), ratioCell(p.P99), ratioCell(p.CPU),
				noiseCell(p), v)
		}
		s.grid("", g)
		s.line("")
		for _, why := range reasons(c.Pairs) {
			s.wrap("* ", "  ", why)
		}
		if once(c.Pairs) {
			s.wrap("? ", "  ", fmt.Sprintf("one measurement: noise unknown, %s assumed", percent(unknownNoise)))
		}
		s.line("p99 and CPU (seconds a GiB) are B/A: less is better")
	}
	s.line("")
	switch {
	case c.Mean > 0:
		mean := fmt.Sprintf("%.3f (geometric, B/A) over %s", c.Mean, plural(compared(c), "pair"))
		if n := unlike(c); n > 0 {
			mean += fmt.Sprintf(", %d of them not like for like", n)
		}
		s.field("", "mean", mean)
	case c.Train == nil:
		s.field("", "mean", "none: no pair could be compared")
	}
	if c.Worst > 0 {
		s.field("", "worst", printable(c.WorstName)+": "+c.WorstWhy)
	} else if c.Mean > 0 {
		s.field("", "worst", "no run lost more than noise")
	}
	if t := c.Train; t != nil {
		s.field("", "train", fmt.Sprintf("%s: AU %s -> %s, idle a step %s -> %s, samples/s B/A %s, %s -> %s",
			printable(t.Workload),
			percent(t.AUa), percent(t.AUb), span(t.IdleA), span(t.IdleB), ratioCell(t.Rate), printable(string(t.BoundA)),
			printable(string(t.BoundB))))
	}
	if len(c.Limits) > 0 {
		s.line("")
		g := newGrid("limit", ">A", ">B", ">B/A")
		for _, l := range c.Limits {
			g.add(printable(l.Name), rateCell(l.A), rateCell(l.B), ratioCell(l.Ratio))
		}
		s.grid("", g)
	}
	s.alone("A", c.OnlyA)
	s.alone("B", c.OnlyB)
	return errs.Wrap("write", "comparison", s.w.Flush())
}

func (s *sheet) alone(side string, runs []Alone) {
	if len(runs) == 0 {
		return
	}
	s.line("")
	s.line("only in " + side + ":")
	for _, x := range runs {
		text := printable(x.Name)
		if x.Nearest != "" {
			text += "; nearest is " + printable(x.Nearest) + ": " + strings.Join(x.Differs, ", ")
		}
		s.wrap("  ", "    ", text)
	}
}

func ratioCell(r float64) string {
	if r == 0 {
		return none
	}
	return fmt.Sprintf("%.2f", r)
}

func noiseCell(p Pair) string {
	if strings.HasPrefix(p.From, "one") {
		return percent(p.Noise) + " ?"
	}
	return percent(p.Noise)
}

func once(pairs []Pair) bool {
	for _, p := range pairs {
		if strings.HasPrefix(p.From, "one") {
			return true
		}
	}
	return false
}

func reasons(pairs []Pair) []string {
	var out []string
	seen := map[string]bool{}
	for _, p := range pairs {
		if p.Why != "" && !seen[p.Why] {
			seen[p.Why] = true
			out = append(out, p.Why)
		}
	}
	return out
}

func compared(c Comparison) int {
	n := 0
	for _, p := range c.Pairs {
		if p.Verdict != Incomparable {
			n++
		}
	}
	return n
}

func unlike(c Comparison) int {
	n := 0
	for _, p := range c.Pairs {
		if p.Verdict != Incomparable && p.Why != "" {
			n++
		}
	}
	return n
}
