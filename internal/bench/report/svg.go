// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// canvas collects the elements of an SVG drawing. Colours and fonts come from the page's style sheet by class, so
// that a plot follows light, dark and print.
type canvas struct {
	b    strings.Builder
	w, h float64
}

func newCanvas(w, h float64) *canvas { return &canvas{w: w, h: h} }

// px prints a coordinate. A value that cannot be drawn is drawn at the edge.
func px(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// xmlText escapes text for XML and replaces characters that XML does not allow.
func xmlText(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(printable(s))) // a Builder does not fail
	return b.String()
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, px(x1), px(y1), px(x2), px(y2))
}

// rect draws a bar. A value above zero is at least a pixel wide and high.
func (c *canvas) rect(class string, x, y, w, h float64) {
	fmt.Fprintf(&c.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`, class, px(x), px(y), px(max(w, 1)),
		px(max(h, 1)))
}

func (c *canvas) path(class, d string) { fmt.Fprintf(&c.b, `<path class="%s" d="%s"/>`, class, d) }

// text writes s. The anchor is its start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	fmt.Fprintf(&c.b, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, px(x), px(y), xmlText(s))
}

// marker draws a point. Its shape, not only its colour, identifies the series. A hollow marker means that the run did
// not measure storage.
func (c *canvas) marker(series int, hollow bool, x, y float64) {
	class := fmt.Sprintf("dot s%d", series%seriesColours)
	if hollow {
		class += " hollow"
	}
	const r = 4.0
	switch series % 4 {
	case 0:
		fmt.Fprintf(&c.b, `<circle class="%s" cx="%s" cy="%s" r="%s"/>`, class, px(x), px(y), px(r))
	case 1:
		fmt.Fprintf(&c.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`, class, px(x-3.5), px(y-3.5), px(7),
			px(7))
	case 2:
		c.path(class, fmt.Sprintf("M%s %sl%s %sh-%sz", px(x), px(y-r-0.5), px(r+0.5), px(2*r), px(2*r+1)))
	default:
		c.path(class, fmt.Sprintf("M%s %sl%s %sl-%s %sl-%s -%sz", px(x), px(y-r-1), px(r+1), px(r+1), px(r+1), px(r+1),
			px(r+1), px(r+1)))
	}
}

const seriesColours = 6

// svg returns the finished drawing. Its title names it, and its description says what the plot shows, for readers who
// cannot see it. The numbers are in a table beside it.
func (c *canvas) svg(class, title, desc string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="plot %s" role="img" viewBox="0 0 %s %s" width="%s" height="%s" xmlns="http://www.w3.org/2000/svg"><title>%s</title><desc>%s</desc>%s</svg>`,
		class, px(c.w), px(c.h), px(c.w), px(c.h), xmlText(title), xmlText(desc), c.b.String()))
}

// The plots' type is the reader's own: these are of a wide face, a narrow one
// leaves a little room. bold is by how much less of it fits.
const (
	glyph = 6.9
	bold  = 0.86
)

func textWidth(s string) float64 { return float64(utf8.RuneCountInString(s)) * glyph }

// shorten cuts text to about w pixels of the plots' type.
func shorten(s string, w float64) string {
	n := int(w / glyph)
	if utf8.RuneCountInString(s) <= n || n < 2 {
		return s
	}
	r := []rune(s)
	return strings.TrimRight(string(r[:n-1]), " ,") + "…"
}

// wrapped breaks text at its spaces into at most n lines of about w pixels. It cuts the last line if the text does
// not fit.
func wrapped(s string, w float64, n int) []string {
	var out []string
	for _, word := range words80(printable(s)) {
		if k := len(out) - 1; k >= 0 && (textWidth(out[k]+" "+word) <= w || len(out) == n) {
			out[k] += " " + word
		} else {
			out = append(out, word)
		}
	}
	for i, line := range out {
		out[i] = shorten(line, w)
	}
	return out
}

// timeUnit returns the unit in which times up to top seconds have short numbers, and the number of these units in a
// second.
func timeUnit(top float64) (string, float64) {
	switch {
	case top >= 10:
		return "s", 1
	case top >= 1e-3:
		return "ms", 1e3
	}
	return "µs", 1e6
}

// scale maps values to pixels.
type scale struct {
	lo, hi   float64 // values
	from, to float64 // pixels
	log      bool
}

func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(max(v, s.lo))
	}
	if hi <= lo {
		return (s.from + s.to) / 2
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// ticks returns about n round values from 0 or lo to hi.
func (s scale) ticks(n int) []float64 {
	if s.log {
		return s.logTicks(n)
	}
	step := niceStep((s.hi - s.lo) / float64(max(n, 1)))
	if step <= 0 {
		return nil
	}
	var out []float64
	for i := math.Ceil(s.lo/step - 1e-9); i*step <= s.hi*(1+1e-9) && len(out) < 50; i++ {
		out = append(out, i*step+0) // not -0
	}
	return out
}

func (s scale) logTicks(n int) []float64 {
	for _, per := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		var out []float64
		for e := math.Floor(math.Log10(s.lo)); e <= math.Ceil(math.Log10(s.hi)); e++ {
			for _, m := range per {
				if v := m * math.Pow(10, e); v >= s.lo*0.999 && v <= s.hi*1.001 {
					out = append(out, v)
				}
			}
		}
		if len(out) <= n || len(per) == 1 {
			for len(out) > n && n > 1 {
				out = everySecond(out)
			}
			return out
		}
	}
	return nil
}

func everySecond(v []float64) []float64 {
	var out []float64
	for i := 0; i < len(v); i += 2 {
		out = append(out, v[i])
	}
	return out
}

func niceStep(raw float64) float64 {
	if raw <= 0 || math.IsNaN(raw) || math.IsInf(raw, 0) {
		return 0
	}
	e := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if raw <= m*e*1.0001 {
			return m * e
		}
	}
	return 10 * e
}

// tickText prints a tick's value with no more decimals than its step needs.
func tickText(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// frame is the area of a canvas with axes, in which values are drawn.
type frame struct {
	*canvas
	x, y scale
}

// newFrame leaves enough room for the text of the axes. It draws the value axis with its unit above it and lines
// behind the values.
func newFrame(w, h, top, hi float64, unit string) *frame {
	f := &frame{canvas: newCanvas(w, h)}
	if hi <= 0 {
		hi = 1
	}
	f.y = scale{lo: 0, hi: hi, from: h - 38, to: top + 16}
	ticks := f.y.ticks(5)
	left := 40.0
	for _, t := range ticks {
		left = max(left, textWidth(tickText(t))+10)
	}
	f.x = scale{from: min(left, w/3), to: w - 10}
	for _, t := range ticks {
		y := f.y.at(t)
		f.line("grid", f.x.from, y, f.x.to, y)
		f.text("tick", "end", f.x.from-6, y+3.5, tickText(t))
	}
	f.text("unit", "start", 4, top+6, unit)
	return f
}

// baseline draws the bottom line and names the axis below it.
func (f *frame) baseline(name string) {
	f.line("axis", f.x.from, f.y.from, f.x.to, f.y.from)
	f.text("unit", "middle", (f.x.from+f.x.to)/2, f.h-5, shorten(name, f.w-60))
}

func (f *frame) xTick(x float64, label string) {
	f.line("axis", x, f.y.from, x, f.y.from+4)
	anchor := "middle"
	if half := float64(utf8.RuneCountInString(label)) * 3; x+half > f.w-2 {
		anchor, x = "end", f.w-2
	}
	f.text("tick", anchor, x, f.y.from+16, label)
}
