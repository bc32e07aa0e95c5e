// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// partBars draws the time that each part of a step takes alone, beside the time of the step.
func partBars(t *record.Train) figure {
	draw := func(w float64, class string) template.HTML {
		parts := trainParts(t)
		top := 0.0
		for _, p := range parts {
			top = max(top, p.seconds)
		}
		if top <= 0 {
			return ""
		}
		const rowH, head = 46.0, 6.0
		bottom := head + rowH*float64(len(parts))
		c := newCanvas(w, bottom+40)
		// The values have a column of their own, which no bar reaches.
		unit, per := timeUnit(top)
		sc := scale{hi: top * per * 1.02, from: 1, to: w - 72}
		c.gridBelow(sc, head, bottom)
		for i, p := range parts {
			y := head + rowH*float64(i)
			c.text("label", "start", 0, y+16, p.name)
			c.text("note", "end", w, y+33, span(p.seconds))
			c.rect("bar "+[]string{"m-storage", "m-memory", "m-step", "m-idle"}[i], sc.from, y+22, sc.at(p.seconds*per)-sc.from,
				14)
			// Only beside the bars: a short step's line would cross the names.
			x := sc.at(t.Target * per)
			c.line("limit", x, y+19, x, y+39)
		}
		c.text("unit", "middle", (sc.from+sc.to)/2, bottom+33, "time per step ("+unit+"); the line is the step")
		return c.svg(class, "What each part of a step takes alone",
			fmt.Sprintf("Loader alone %s, copy alone %s, step %s, idle %s", span(t.Isolated), span(t.Copy), span(t.Target),
				span(t.Idle)))
	}
	return figure{draw(narrowW, "narrow"), draw(besideW, "wide")}
}

// timeLine draws some steps and the gaps between them, to scale.
func timeLine(t *record.Train) figure {
	return figure{timeLineIn(t, narrowW, 10, "full narrow"), timeLineIn(t, wideW, 30, "full wide")}
}

func timeLineIn(t *record.Train, w float64, n int, class string) template.HTML {
	if len(t.Trace) < 2 {
		return ""
	}
	// Steps that warm up are not what the figures are of.
	first := min(t.Warmup, max(len(t.Trace)-n, 0))
	steps := t.Trace[first:min(first+n, len(t.Trace))]
	begin, end := steps[0].Begin, steps[len(steps)-1].End
	if end <= begin {
		return ""
	}
	c := newCanvas(w, 118)
	sc := scale{lo: 0, hi: end - begin, from: 1, to: w - 10}
	const y, h = 30.0, 34.0
	x := 0.0
	for _, l := range []struct{ class, name string }{{"bar m-step", "step"}, {"bar m-idle", "accelerator idle"}} {
		c.rect(l.class, x, 3, 12, 12)
		c.text("note", "start", x+18, 13, l.name)
		x += legendWidth(l.name) + 8
	}
	for i, s := range steps {
		if i > 0 {
			if gap := s.Begin - steps[i-1].End; gap > 0 {
				from := sc.at(steps[i-1].End - begin)
				c.rect("bar m-idle", from, y, sc.at(s.Begin-begin)-from, h)
			}
		}
		from := sc.at(s.Begin - begin)
		c.rect("bar m-step", from, y+4, sc.at(s.End-begin)-from-0.5, h-8)
	}
	c.line("axis", sc.from, y+h+6, sc.to, y+h+6)
	for _, tk := range sc.ticks(int(w / 80)) {
		c.line("axis", sc.at(tk), y+h+6, sc.at(tk), y+h+10)
		anchor := "middle"
		if tk == 0 {
			anchor = "start"
		}
		c.text("tick", anchor, sc.at(tk), y+h+22, tickText(tk))
	}
	name := fmt.Sprintf("time (s); steps %d to %d of %d", first+1, first+len(steps), len(t.Trace))
	c.text("unit", "middle", w/2, 113, name)
	return c.svg(class, "Steps and idle gaps over time",
		fmt.Sprintf("Steps %d to %d of %d, %s idle between two steps on average", first+1, first+len(steps), len(t.Trace),
			span(t.Idle)))
}

// idlePlot draws how long the accelerator waited before each step.
func idlePlot(t *record.Train) figure {
	draw := func(w float64, class string) template.HTML {
		if len(t.Trace) < 3 {
			return ""
		}
		var gaps []float64
		top := 0.0
		for i := 1; i < len(t.Trace); i++ {
			g := max(t.Trace[i].Begin-t.Trace[i-1].End, 0)
			gaps, top = append(gaps, g), max(top, g)
		}
		unit, per := timeUnit(top)
		for i := range gaps {
			gaps[i] *= per
		}
		f := newFrame(w, 230, 4, top*per*1.15, "idle ("+unit+")")
		f.x.lo, f.x.hi = 1, float64(len(t.Trace))
		for _, tk := range f.x.ticks(6) {
			f.xTick(f.x.at(tk), tickText(tk))
		}
		if len(gaps) <= int(w/3) {
			bw := max((f.x.to-f.x.from)/float64(len(gaps)+1)-1, 1)
			for i, g := range gaps {
				y := f.y.at(g)
				f.rect("bar m-idle", f.x.at(float64(i+2))-bw/2, y, min(bw, f.x.to-f.x.at(float64(i+2))+bw/2), f.y.from-y)
			}
		} else {
			// More steps than pixels: of those that share one, the longest wait.
			var d strings.Builder
			per := (len(gaps) + int(w/2) - 1) / int(w/2)
			for i := 0; i < len(gaps); i += per {
				worst := 0.0
				for _, g := range gaps[i:min(i+per, len(gaps))] {
					worst = max(worst, g)
				}
				fmt.Fprintf(&d, "M%s %sV%s", px(f.x.at(float64(i+2))), px(f.y.from), px(f.y.at(worst)))
			}
			f.path("curve s-idle", d.String())
		}
		f.baseline("step")
		return f.svg(class, "Idle time before each step", fmt.Sprintf("%s on average, p99 %s", span(t.Idle), span(t.IdleP99)))
	}
	return figure{draw(narrowW, "narrow"), draw(besideW, "wide")}
}
