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

// shareBars draws each run as its share of the limit that binds it. If no limit is known, it draws the rate.
func shareBars(runs []*record.Run) figure {
	return figure{shareBarsIn(runs, narrowW, true), shareBarsIn(runs, wideW, false)}
}

// shareRow is one bar with its text broken into lines.
type shareRow struct {
	name, asked   []string // what moves where; in which way
	rate, route   []string
	above         []string
	barY, y, high float64
}

const shareLineH = 15.0

// heights returns the heights of the bar's label and of the note that explains it.
func (r *shareRow) heights() (label, note float64) {
	return float64(len(r.name)+len(r.asked)) * shareLineH, float64(len(r.rate)+len(r.route)+len(r.above)) * shareLineH
}

func shareRows(runs []*record.Run, from, labelW, noteW float64, narrow bool) (rows []shareRow, bottom float64) {
	y := from
	for i, l := range barLabels(runs) {
		r := shareRow{y: y,
			name: wrapped(l.name, labelW*bold, 2), asked: wrapped(l.asked, labelW, 2),
			rate: wrapped(shareLine(runs[i]), noteW, 2), route: wrapped(underBar(runs[i]), noteW, 2)}
		if above(runs[i].Share) {
			r.above = wrapped(aboveWords, noteW, 2)
		}
		label, note := r.heights()
		if narrow {
			r.barY = y + label + 8
			r.high = label + 8 + 16 + 4 + note + 14
		} else {
			r.high = max(label, note, 16) + 16
			r.barY = y + r.high/2 - 8
		}
		rows, y = append(rows, r), y+r.high
	}
	return rows, y
}

func shareBarsIn(runs []*record.Run, w float64, narrow bool) template.HTML {
	top, shares := 0.0, false
	for _, r := range runs {
		shares = shares || r.Share != nil
	}
	value := func(r *record.Run) float64 {
		switch {
		case !shares:
			return r.GBps
		case r.Share == nil:
			return 0
		}
		return r.Share.Ratio * 100
	}
	for _, r := range runs {
		top = max(top, value(r))
	}
	if shares {
		top = max(top, 100)
	}
	const head = 8.0
	sc := scale{hi: top * 1.02, from: 292, to: 720}
	labelW, noteX := sc.from-16, sc.to+22
	noteW := w - noteX
	if narrow {
		sc.from, sc.to, labelW, noteX, noteW = 1, w-14, w-4, 0, w
	}
	rows, bottom := shareRows(runs, head, labelW, noteW, narrow)
	c := newCanvas(w, bottom+40)
	// On a narrow plot the text lies between the bars: lines stay beside these.
	across := func(class string, x float64) {
		if !narrow {
			c.line(class, x, head, x, bottom)
			return
		}
		for _, r := range rows {
			c.line(class, x, r.barY-3, x, r.barY+19)
		}
	}
	for _, t := range sc.ticks(5) {
		anchor := "middle"
		if narrow && t == 0 {
			anchor = "start"
		} else {
			across("grid", sc.at(t))
		}
		c.text("tick", anchor, sc.at(t), bottom+15, tickText(t))
	}
	for i, row := range rows {
		r := runs[i]
		class := "bar m-" + measured(r)
		if failed(r) {
			class = "bar m-wrong"
		}
		labelX, anchor := sc.from-12, "end"
		label, note := row.heights()
		labelY, noteY := row.y+(row.high-label)/2, row.y+(row.high-note)/2
		if narrow {
			labelX, anchor, labelY, noteY = 0, "start", row.y, row.barY+20
		}
		stack := func(class, anchor string, x float64, y *float64, lines []string) {
			for _, s := range lines {
				*y += shareLineH
				c.text(class, anchor, x, *y-3, s)
			}
		}
		stack("label", anchor, labelX, &labelY, row.name)
		stack("note dim", anchor, labelX, &labelY, row.asked)
		stack("note", "start", noteX, &noteY, row.rate)
		stack("note dim", "start", noteX, &noteY, row.route)
		stack("note above", "start", noteX, &noteY, row.above)
		if v := value(r); v > 0 {
			c.rect(class, sc.from, row.barY, sc.at(v)-sc.from, 16)
		}
	}
	if !narrow { // else it would cross the labels
		c.line("axis", sc.from, head, sc.from, bottom)
	}
	name, title := "share of the limit (%)", "Each run as a share of its limit"
	if shares {
		across("limit", sc.at(100))
	} else {
		name, title = "rate (GB/s); limits not measured", "The rate of each run"
	}
	c.text("unit", "middle", (sc.from+sc.to)/2, bottom+32, name)
	var say []string
	for _, r := range runs {
		s := printable(r.Name) + ": " + shareLine(r)
		if above(r.Share) {
			s += ", " + aboveWords
		}
		say = append(say, s+", measured "+markWords(r))
	}
	class := "full wide"
	if narrow {
		class = "full narrow"
	}
	return c.svg(class, title, strings.Join(say, ". "))
}

// barLabel distinguishes a run from the others: what moves where, and by which route.
type barLabel struct{ name, asked string }

// barLabels takes the route from the settings and removes from the names what the route repeats. Runs with equal
// labels get the settings in which they differ.
func barLabels(runs []*record.Run) []barLabel {
	out := make([]barLabel, len(runs))
	for i, r := range runs {
		out[i] = barLabel{labelName(r), labelAsked(r)}
	}
	for _, part := range []func(s record.Settings) string{
		func(s record.Settings) string { return plural(s.Workers, "worker") },
		func(s record.Settings) string { return printable(s.Route) },
	} {
		seen := map[barLabel]int{}
		for _, l := range out {
			seen[l]++
		}
		for i, r := range runs {
			if seen[out[i]] > 1 {
				out[i].asked = join(", ", out[i].asked, part(r.Settings))
			}
		}
	}
	return out
}

func labelAsked(r *record.Run) string {
	s := r.Settings
	block, cache := "", s.Cache
	if s.BlockSize > 0 {
		block = size(s.BlockSize)
	}
	switch cache {
	case "warm":
		cache = "cached"
	case "as-is":
		cache = ""
	}
	return join(", ", printable(s.Pattern), block, printable(cache))
}

// labelName returns a run's name without the parts that labelAsked contains.
func labelName(r *record.Run) string {
	s := r.Settings
	said := []string{s.Pattern, units.Bytes(s.BlockSize), size(s.BlockSize), s.Cache, "cached", "cold", "warm"}
	var rest []string
	for _, p := range strings.Split(r.Name, ", ") {
		if !slices.Contains(said, p) {
			rest = append(rest, p)
		}
	}
	if len(rest) == 0 {
		return printable(r.Name)
	}
	return printable(strings.Join(rest, ", "))
}

// join joins the texts that are not empty.
func join(sep string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), sep)
}

func shareLine(r *record.Run) string {
	if r.Share == nil {
		return units.Rate(r.GBps) + ", limit not measured"
	}
	return fmt.Sprintf("%s, %s of %s", units.Rate(r.GBps), percent(r.Share.Ratio), printable(r.Share.Name))
}

// underBar returns the route taken and what was measured, short enough for a bar.
func underBar(r *record.Run) string {
	s := takenNames(r) + "; measured " + shortMeasured(r)
	switch {
	case failed(r):
		return "wrong data"
	case strayed(r) != "":
		s += ", not as asked"
	case coldButCached(r) != "":
		s += ", asked cold"
	case r.Interrupted:
		s += ", interrupted"
	}
	return s
}
