// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Plots are drawn at the size at which they are displayed, so that their text is as large as the text around them.
const (
	narrowW = 340
	wideW   = 1136
	besideW = 520 // half of a wide page, with a table beside it
	smallW  = 330 // one of several in a row
)

// figure is one plot in two sizes. The page shows the size that fits.
type figure struct{ Narrow, Wide template.HTML }

// markWords returns mark as words for a sentence.
func markWords(r *record.Run) string {
	if failed(r) {
		return "nothing: the data was wrong"
	}
	s := measuredWords(measured(r))
	switch {
	case strayed(r) != "":
		s += " (not the requested route)"
	case coldButCached(r) != "":
		s += " (asked cold)"
	}
	if r.Interrupted {
		s += " (interrupted)"
	}
	return s
}

// overTime draws the rate of each interval as a step.
func overTime(r *record.Run) template.HTML {
	pts := thin(r.Series, 400)
	if len(pts) < 2 {
		return ""
	}
	hi := 0.0
	for _, p := range pts {
		hi = max(hi, p.GBps)
	}
	limit := 0.0
	if r.Share != nil && r.Share.Ceiling <= hi*1.6 {
		limit = r.Share.Ceiling
	}
	unit, factor := "GB/s", 1.0
	if hi < 0.1 {
		unit, factor = "MB/s", 1e3
	}
	f := newFrame(smallW, 210, 4, max(hi, limit)*1.14*factor, unit)
	f.x.lo, f.x.hi = 0, pts[len(pts)-1].At
	for _, t := range f.x.ticks(5) {
		f.xTick(f.x.at(t), tickText(t))
	}
	var d strings.Builder
	at := f.x.from
	for i, p := range pts {
		y := px(f.y.at(p.GBps * factor))
		if i == 0 {
			fmt.Fprintf(&d, "M%s %s", px(at), y)
		} else {
			fmt.Fprintf(&d, "V%s", y)
		}
		at = f.x.at(p.At)
		fmt.Fprintf(&d, "H%s", px(at))
	}
	class := "m-" + measured(r)
	f.path("area "+class, d.String()+fmt.Sprintf("V%sH%sz", px(f.y.from), px(f.x.from)))
	f.path("curve "+class, d.String())
	if limit > 0 {
		y := f.y.at(limit * factor)
		f.line("limit", f.x.from, y, f.x.to, y)
		f.text("note", "end", f.x.to, y-4, "limit "+units.Rate(limit))
	}
	if r.First != nil && r.First.Seconds < f.x.hi {
		x := f.x.at(r.First.Seconds)
		f.line("event", x, f.y.at(r.GBps*factor), x, f.y.from)
		f.text("note dim", "end", x-4, f.y.from-6, "first done")
	}
	f.baseline("time (s)")
	return f.svg("", "Rate over time of "+r.Name, fmt.Sprintf("%d intervals, %s over the whole run, measured %s",
		len(r.Series), units.Rate(r.GBps), markWords(r)))
}

// thin averages neighbours until at most n points are left.
func thin(pts []record.Point, n int) []record.Point {
	if len(pts) <= n {
		return pts
	}
	per := (len(pts) + n - 1) / n
	var out []record.Point
	from := 0.0
	for i := 0; i < len(pts); i += per {
		group := pts[i:min(i+per, len(pts))]
		moved, begin := 0.0, from
		for _, p := range group {
			moved += p.GBps * (p.At - from)
			from = p.At
		}
		if from > begin {
			out = append(out, record.Point{At: from, GBps: moved / (from - begin)})
		}
	}
	return out
}

const latencyColumns = 44

// latencies draws the distribution of latencies on a logarithmic time axis.
func latencies(r *record.Run) template.HTML {
	l := r.Latency
	if l == nil {
		return ""
	}
	cols, lo, hi := logColumns(l, latencyColumns)
	if cols == nil {
		return ""
	}
	top := 0.0
	for _, v := range cols {
		top = max(top, v)
	}
	f := newFrame(smallW, 210, 4, top*1.42, "requests (%)")
	f.x = scale{lo: lo, hi: hi, from: f.x.from, to: f.x.to, log: true}
	for _, t := range f.x.ticks(5) {
		f.xTick(f.x.at(t), span1(t))
	}
	w := (f.x.to - f.x.from) / latencyColumns
	for i, v := range cols {
		if v > 0 {
			y := f.y.at(v)
			f.rect("column", f.x.from+w*float64(i)+0.5, y, w-1, f.y.from-y)
		}
	}
	// Each stands at its own height, below the unit: close ones run neither
	// into each other nor into it. Their values are in the table beside.
	for i, m := range []struct {
		name string
		at   float64
	}{{"p50", l.P50}, {"p99", l.P99}, {"p99.9", l.P999}} {
		if m.at < lo || m.at > hi {
			continue
		}
		x, y := f.x.at(m.at), f.y.to+8+float64(i)*14
		f.line("event", x, y-8, x, f.y.from)
		anchor, dx := "start", 4.0
		if x+textWidth(m.name)+4 > f.w {
			anchor, dx = "end", -4
		}
		f.text("note", anchor, x+dx, y, m.name)
	}
	f.baseline("latency of a request (logarithmic)")
	return f.svg("", "Latency distribution of "+r.Name, fmt.Sprintf("p50 %s, p90 %s, p99 %s, p99.9 %s, max %s",
		span(l.P50), span(l.P90), span(l.P99), span(l.P999), span(l.Max)))
}

// logColumns distributes the buckets, whose widths may differ, over n columns of equal width in logarithmic time. The
// values are percentages.
func logColumns(l *record.Latency, n int) (cols []float64, lo, hi float64) {
	total, before := 0.0, l.Min
	for _, b := range l.Buckets {
		if b.Count > 0 {
			if total == 0 {
				lo = before
				if lo <= 0 || lo >= b.UpTo { // nothing has a logarithm
					lo = b.UpTo / 2
				}
			}
			total, hi = total+float64(b.Count), b.UpTo
		}
		before = b.UpTo
	}
	if total == 0 || lo <= 0 {
		return nil, 0, 0
	}
	lo, hi = lo*0.9, hi*1.1
	cols = make([]float64, n)
	width := math.Log(hi/lo) / float64(n)
	column := func(v float64) float64 { return math.Log(max(v, lo)/lo) / width }
	before = max(l.Min, lo)
	for _, b := range l.Buckets {
		from, to := column(before), column(b.UpTo)
		before = max(b.UpTo, lo)
		if b.Count == 0 {
			continue
		}
		if to-from < 1e-9 {
			from = to - 1e-9
		}
		for i := int(max(from, 0)); i < n && float64(i) < to; i++ {
			overlap := min(to, float64(i+1)) - max(from, float64(i))
			cols[i] += float64(b.Count) / total * 100 * overlap / (to - from)
		}
	}
	return cols, lo, hi
}

// span1 prints a round time for an axis.
func span1(s float64) string {
	switch {
	case s >= 0.9995:
		return tickText(math.Round(s*100)/100) + " s"
	case s >= 0.9995e-3:
		return tickText(math.Round(s*1e5)/100) + " ms"
	}
	return tickText(math.Round(s*1e8)/100) + " µs"
}
