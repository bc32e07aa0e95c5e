// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// box is where something of a plot lies, in its own pixels.
type box struct {
	what                     string
	left, right, top, bottom float64
}

func (a box) on(b box, w, h float64) bool {
	return min(a.right, b.right)-max(a.left, b.left) > w && min(a.bottom, b.bottom)-max(a.top, b.top) > h
}

// boxesOf reads a plot's texts, as wide as per pixels a character make them,
// and the lines of limits.
func boxesOf(t *testing.T, svg string, per float64) (width float64, texts, limits []box) {
	t.Helper()
	var root struct {
		Width float64 `xml:"width,attr"`
		Texts []struct {
			X      float64 `xml:"x,attr"`
			Y      float64 `xml:"y,attr"`
			Anchor string  `xml:"text-anchor,attr"`
			Text   string  `xml:",chardata"`
		} `xml:"text"`
		Lines []struct {
			Class string  `xml:"class,attr"`
			X1    float64 `xml:"x1,attr"`
			X2    float64 `xml:"x2,attr"`
			Y1    float64 `xml:"y1,attr"`
			Y2    float64 `xml:"y2,attr"`
		} `xml:"line"`
	}
	if err := xml.Unmarshal([]byte(svg), &root); err != nil {
		t.Fatal(err)
	}
	for _, x := range root.Texts {
		w := float64(len([]rune(x.Text))) * per
		left := x.X
		switch x.Anchor {
		case "middle":
			left -= w / 2
		case "end":
			left -= w
		}
		texts = append(texts, box{x.Text, left, left + w, x.Y - 9, x.Y + 2})
	}
	for _, l := range root.Lines {
		if l.Class == "limit" {
			limits = append(limits, box{"limit", l.X1, l.X2, l.Y1, l.Y2})
		}
	}
	return root.Width, texts, limits
}

// TestLabelsHaveTheirOwnPlace holds each plot's labels to the plot and apart
// from each other and from the lines of limits, by the widths of a usual face.
func TestLabelsHaveTheirOwnPlace(t *testing.T) {
	for name, f := range fixtures() {
		for _, svg := range plots(htmlOf(t, f)) {
			checkLabels(t, name, svg)
		}
	}
	// A limit in the middle of the plot, and a step that is short beside the
	// rest: their lines are where the text is.
	f := suite()
	f.Runs[1].Share.Ratio = 2.5
	f.Train.Target = f.Train.Isolated / 12
	for _, fig := range []figure{shareBars([]*record.Run{&f.Runs[0], &f.Runs[1]}), partBars(f.Train)} {
		checkLabels(t, "narrow", string(fig.Narrow))
		checkLabels(t, "wide", string(fig.Wide))
	}
}

func checkLabels(t *testing.T, name, svg string) {
	t.Helper()
	title := regexp.MustCompile(`<title>(.*?)</title>`).FindStringSubmatch(svg)[1]
	width, texts, limits := boxesOf(t, svg, 5.8)
	for i, a := range texts {
		if a.left < -1 || a.right > width+1 {
			t.Errorf("%s: %q leaves %q: %.0f to %.0f of %.0f", name, a.what, title, a.left, a.right, width)
		}
		for _, l := range limits {
			if a.on(l, -0.5, 1) {
				t.Errorf("%s: a limit's line crosses %q in %q", name, a.what, title)
			}
		}
		for _, b := range texts[i+1:] {
			if a.on(b, 1, 2) {
				t.Errorf("%s: %q lies on %q in %q", name, a.what, b.what, title)
			}
		}
	}
}

// TestQuantilesStayClearOfTheUnit puts the median where the unit stands.
func TestQuantilesStayClearOfTheUnit(t *testing.T) {
	l := &record.Latency{Min: 1e-3, P50: 1.02e-3, P90: 1.1e-3, P99: 2e-3, P999: 3e-3, Max: 4e-3,
		Buckets: []record.Bucket{{UpTo: 1.05e-3, Count: 90}, {UpTo: 4e-3, Count: 10}}}
	_, texts, _ := boxesOf(t, string(latencies(&record.Run{Name: "a", Latency: l})), glyph)
	var unit, p50 *box
	for i := range texts {
		switch texts[i].what {
		case "requests (%)":
			unit = &texts[i]
		case "p50":
			p50 = &texts[i]
		}
	}
	if unit == nil || p50 == nil || p50.left > unit.right {
		t.Fatalf("not beside each other: %v %v", unit, p50)
	}
	if p50.on(*unit, 0, 0) {
		t.Errorf("%v lies on %v", *p50, *unit)
	}
}

func TestTimesOfAPlotHaveAUnitThatFits(t *testing.T) {
	for _, c := range []struct {
		top  float64
		unit string
	}{{1.27e-6, "µs"}, {0.9e-3, "µs"}, {0.131, "ms"}, {9, "ms"}, {12, "s"}} {
		if unit, per := timeUnit(c.top); unit != c.unit || c.top*per < 0.1 {
			t.Errorf("%v: %v %s", c.top, c.top*per, unit)
		}
	}
	page := htmlOf(t, suite())
	if !strings.Contains(page, "idle (µs)") || strings.Contains(page, ">0.0005<") {
		t.Error("waits of a microsecond are drawn in milliseconds")
	}
	// Whatever the numbers, their labels are inside.
	for _, hi := range []float64{1e-9, 3.3e-5, 12345678, 1e15} {
		f := newFrame(smallW, 210, 4, hi, "x")
		_, texts, _ := boxesOf(t, string(f.svg("", "t", "d")), 6)
		for _, x := range texts {
			if x.left < 0 {
				t.Errorf("up to %g: %q begins at %.0f", hi, x.what, x.left)
			}
		}
	}
}

func TestBarLabelsTellRunsApart(t *testing.T) {
	f := suite()
	var runs []*record.Run
	for i := range f.Runs {
		runs = append(runs, &f.Runs[i])
	}
	seen := map[barLabel]string{}
	for i, l := range barLabels(runs) {
		key := fmt.Sprint(runs[i].Name, runs[i].Settings)
		if other, ok := seen[l]; ok && other != key {
			t.Errorf("%v is of two runs", l)
		}
		seen[l] = key
	}
	for _, want := range []barLabel{{"storage to device, pageable", "sequential, 1 MiB, cached"},
		{"storage to host memory", "random, 4 KiB, cold"}} {
		if _, ok := seen[want]; !ok {
			t.Errorf("no %v", want)
		}
	}
	// Nothing is cut, at no width, also where the name says more than usual.
	own := runs[:8]
	own[0].Name = "page cache of the first storage to device, pinned, by the engine, sequential, 1 MiB"
	for _, svg := range []string{string(shareBars(own).Wide), string(shareBars(own).Narrow)} {
		if strings.Contains(svg, "…") {
			t.Errorf("a label is cut: %s", regexp.MustCompile(`[^>]*…`).FindString(svg))
		}
	}
	if l := barLabels([]*record.Run{{Name: "sequential",
		Settings: record.Settings{Pattern: "sequential"}}}); l[0].name != "sequential" {
		t.Errorf("a name that says only the pattern becomes %q", l[0].name)
	}
}

func TestUtilisationIsDrawnToAHundred(t *testing.T) {
	f := suite()
	figs := sweepPlots(f, f.Sweeps[1])
	if len(figs) != 2 || len(sweepPlots(f, f.Sweeps[0])) != 1 {
		t.Fatalf("%d plots", len(figs))
	}
	for _, svg := range []string{string(figs[0].Narrow), string(figs[0].Wide)} {
		if !strings.Contains(svg, "accelerator utilisation (%)") || !strings.Contains(svg, ">100</text>") {
			t.Error("not on a scale to 100 %")
		}
		var y []float64
		for _, m := range regexp.MustCompile(`<circle class="dot[^>]*cy="([\d.]+)"`).FindAllStringSubmatch(svg, -1) {
			v, _ := strconv.ParseFloat(m[1], 64)
			y = append(y, v)
		}
		if len(y) != 3 || y[0] <= y[1] || y[1] != y[2] {
			t.Errorf("56 %%, 100 %% and 100 %% are at %v", y)
		}
	}
	if !strings.Contains(string(figs[1].Wide), ">GB/s<") {
		t.Error("no rate beside it")
	}
}
