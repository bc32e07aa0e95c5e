// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/units"
)

// sweepPlots draws a sweep: a line over numbers, bars over names. If the points are training-shaped runs, accelerator
// utilisation comes first.
func sweepPlots(f *record.File, sw record.Sweep) []figure {
	if len(sw.Points) == 0 {
		return nil
	}
	both := func(draw func(w float64, class string) template.HTML) figure {
		return figure{draw(narrowW, "narrow"), draw(besideW, "wide")}
	}
	if sw.Unit == "" {
		return []figure{both(func(w float64, class string) template.HTML { return sweepBars(f, sw, w, class) })}
	}
	var out []figure
	height := 250.0
	if trains(sw) {
		height = 190
		out = append(out, both(func(w float64, class string) template.HTML {
			return sweepLines(f, sw, busyAxis(), w, height, class)
		}))
	}
	return append(out, both(func(w float64, class string) template.HTML {
		return sweepLines(f, sw, rateAxis(f, sw), w, height, class)
	}))
}

// trains reports whether the points of a sweep are training-shaped runs.
func trains(sw record.Sweep) bool {
	return slices.ContainsFunc(sw.Points, func(p record.SweepPoint) bool { return p.AU > 0 })
}

// axisOf describes the value axis of a sweep's plot.
type axisOf struct {
	unit, title string
	top         float64
	limit       float64 // 0 for none
	limitName   string
	value       func(record.SweepPoint) float64
}

func rateAxis(f *record.File, sw record.Sweep) axisOf {
	top, limit, name := sweepTop(f, sw)
	return axisOf{unit: "GB/s", top: max(top, limit) * 1.12, limit: limit, limitName: printable(name),
		value: func(p record.SweepPoint) float64 { return f.Runs[p.Run].GBps }}
}

// busyAxis always reaches to 100 %, because the part that is missing is lost time.
func busyAxis() axisOf {
	return axisOf{unit: "accelerator utilisation (%)", title: "Accelerator utilisation. ", top: 106,
		value: func(p record.SweepPoint) float64 { return min(p.AU, 1) * 100 }}
}

// sweepTop returns the greatest rate. It also returns the limit, if one limit binds all points and is near enough to
// be drawn.
func sweepTop(f *record.File, sw record.Sweep) (top, limit float64, name string) {
	same := true
	for i, p := range sw.Points {
		r := &f.Runs[p.Run]
		top = max(top, r.GBps)
		switch {
		case r.Share == nil:
			same = false
		case i == 0:
			limit, name = r.Share.Ceiling, r.Share.Name
		case r.Share.Name != name || r.Share.Ceiling != limit:
			same = false
		}
	}
	if !same || limit > top*1.8 {
		return top, 0, ""
	}
	return top, limit, name
}

func sweepDesc(f *record.File, sw record.Sweep) string {
	var out []string
	for _, p := range sw.Points {
		s := strings.TrimSpace(printable(p.Series+" "+p.Label)) + " " + units.Rate(f.Runs[p.Run].GBps)
		if trains(sw) {
			s += " (busy " + percent(p.AU) + ")"
		}
		out = append(out, s)
	}
	return printable(sw.Question) + " " + strings.Join(out, ", ") + ". " + printable(sw.Answer)
}

func sweepLines(f *record.File, sw record.Sweep, ax axisOf, w, height float64, class string) template.HTML {
	names := seriesOf(sw)
	legend := 4.0
	if len(names) > 1 {
		legend += 18*float64(legendRows(names, w)) + 6
	}
	fr := newFrame(w, height+legend, legend, ax.top, ax.unit)
	left := fr.x.from
	xs := make([]float64, 0, len(sw.Points))
	for _, p := range sw.Points {
		xs = append(xs, p.X)
	}
	lo, hi := slices.Min(xs), slices.Max(xs)
	// Read sizes and workers double from point to point; counts that start at
	// none have no logarithm.
	fr.x = scale{lo: lo, hi: hi, from: fr.x.from + 14, to: fr.x.to - 14, log: lo > 0 && hi >= 8*lo}
	axis := printable(sw.Axis)
	if fr.x.log {
		axis += " (logarithmic)"
	}
	if len(names) > 1 {
		drawLegend(fr.canvas, names, w)
	}
	last := -1e9
	sorted := slices.Clone(sw.Points)
	slices.SortStableFunc(sorted, func(a, b record.SweepPoint) int {
		switch {
		case a.X < b.X:
			return -1
		case a.X > b.X:
			return 1
		}
		return 0
	})
	for _, p := range sorted {
		label := shorten(printable(p.Label), 80)
		x, need := fr.x.at(p.X), textWidth(label)+4
		if x-last >= need {
			fr.xTick(x, label)
			last = x
		}
	}
	if ax.limit > 0 {
		y := fr.y.at(ax.limit)
		fr.line("limit", left, y, w-10, y)
		name := ax.limitName
		if w <= narrowW { // a long one would lie under the points
			name = "limit"
		}
		fr.text("note", "start", left+4, y-5, shorten(name+" "+units.Rate(ax.limit), w-left-20))
	}
	for i, name := range names {
		var d strings.Builder
		for _, p := range sw.Points {
			if p.Series == name {
				cmd := "L"
				if d.Len() == 0 {
					cmd = "M"
				}
				fmt.Fprintf(&d, "%s%s %s", cmd, px(fr.x.at(p.X)), px(fr.y.at(ax.value(p))))
			}
		}
		fr.path(fmt.Sprintf("curve s%d", i%seriesColours), d.String())
		for _, p := range sw.Points {
			if r := &f.Runs[p.Run]; p.Series == name {
				fr.marker(i, measured(r) != ofStorage, fr.x.at(p.X), fr.y.at(ax.value(p)))
			}
		}
	}
	fr.x.from, fr.x.to = left, w-10
	fr.baseline(axis)
	return fr.svg(class, ax.title+sw.Question, sweepDesc(f, sw))
}

func legendWidth(name string) float64 { return textWidth(name) + 34 }

func legendRows(names []string, w float64) int {
	rows, x := 1, 0.0
	for _, n := range names {
		n = shorten(printable(n), w-40)
		if x > 0 && x+legendWidth(n) > w {
			rows, x = rows+1, 0
		}
		x += legendWidth(n)
	}
	return rows
}

func drawLegend(c *canvas, names []string, w float64) {
	x, y := 0.0, 10.0
	for i, n := range names {
		n = shorten(printable(n), w-40)
		if x > 0 && x+legendWidth(n) > w {
			x, y = 0, y+18
		}
		c.line(fmt.Sprintf("curve s%d", i%seriesColours), x+2, y, x+18, y)
		c.marker(i, false, x+10, y)
		c.text("note", "start", x+23, y+4, n)
		x += legendWidth(n)
	}
}

// gridBelow draws the ticks of sc at bottom, and a line from each tick up to head. Zero has no line.
func (c *canvas) gridBelow(sc scale, head, bottom float64) {
	for _, t := range sc.ticks(4) {
		anchor := "middle"
		if t == 0 {
			anchor = "start"
		} else {
			c.line("grid", sc.at(t), head, sc.at(t), bottom)
		}
		c.text("tick", anchor, sc.at(t), bottom+15, tickText(t))
	}
}

func sweepBars(f *record.File, sw record.Sweep, w float64, class string) template.HTML {
	top, _, _ := sweepTop(f, sw)
	const rowH, head = 50.0, 6.0
	bottom := head + rowH*float64(len(sw.Points))
	c := newCanvas(w, bottom+40)
	sc := scale{hi: top * 1.02, from: 1, to: w - 14}
	if top <= 0 {
		sc.hi = 1
	}
	c.gridBelow(sc, head, bottom)
	for i, p := range sw.Points {
		r := &f.Runs[p.Run]
		y := head + rowH*float64(i)
		name := printable(p.Label)
		if p.Series != "" {
			name = printable(p.Series) + ", " + name
		}
		value := units.Rate(r.GBps) + ", " + shortMeasured(r)
		if trains(sw) {
			value += ", busy " + percent(p.AU)
		}
		c.text("label", "start", 0, y+16, shorten(name, (w-textWidth(value)-12)*bold))
		c.text("note", "end", w, y+16, value)
		c.rect("bar m-"+measured(r), sc.from, y+23, sc.at(r.GBps)-sc.from, 16)
	}
	c.text("unit", "middle", (sc.from+sc.to)/2, bottom+33, "rate (GB/s)")
	return c.svg(class, sw.Question, sweepDesc(f, sw))
}

func shortMeasured(r *record.Run) string {
	if failed(r) {
		return "wrong data"
	}
	return measuredWord(measured(r))
}

// measuredWord returns measured as one word.
func measuredWord(m string) string {
	if m == ofBoth {
		return "mixed"
	}
	return m
}
