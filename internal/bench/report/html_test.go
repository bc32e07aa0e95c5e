// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

var pages = flag.String("pages", "", "write the fixtures' HTML into this folder, to be looked at in a browser")

func htmlOf(t *testing.T, f *record.File) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteHTML(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// readable is a page's text with the spaces that keep units together as plain.
func readable(t *testing.T, f *record.File) string {
	t.Helper()
	return strings.ReplaceAll(htmlOf(t, f), "\u00a0", " ")
}

func TestWritePagesToLookAt(t *testing.T) {
	if *pages == "" {
		t.Skip("no -pages")
	}
	all := fixtures()
	all["hostile"] = hostile()
	for name, f := range all {
		if err := os.WriteFile(filepath.Join(*pages, name+".html"), []byte(htmlOf(t, f)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPageSaysEachThingThatHonestyNeeds(t *testing.T) {
	page := readable(t, h200())
	for _, want := range []string{
		"From storage: up to 3.90 GB/s", "NVIDIA H200", "570.86.15", "6.8.0-60-generic", "0.3.0", "2026-11-15 04:12:09 UTC",
		"nebulaio bench suite --dir /data/bench",
		"asked direct to pinned memory", "taken page cache 32 GiB", "memory, not storage", "resident before 14 GiB",
		"First done", "Last done", "IOPS",
		"p99.9", "512 KiB reaches 0.95 of the limit", "GPUDirect Storage: nvidia-fs is not loaded", "3.61 GiB/s",
		"of storage read (4.00 GB/s)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	for name, want := range map[string]string{"train": "What to change next",
		"stopped": "Interrupted: these are the results", "wrong": "Do not use those rates", "host": "no GPU was used"} {
		if !strings.Contains(readable(t, fixtures()[name]), want) {
			t.Errorf("%s: %q is not on the page", name, want)
		}
	}
}

// TestPageNeedsNothingElse also holds for a page of hostile text: no element
// can fetch, run or point elsewhere.
func TestPageNeedsNothingElse(t *testing.T) {
	for name, f := range map[string]*record.File{"h200": h200(), "train": training(), "hostile": hostile()} {
		page := htmlOf(t, f)
		for _, bad := range []string{"<script", "<link", "<img", "<iframe", "<object", "<embed", "@import", "url(", " style=",
			" onload", " src=", "javascript:alert"} {
			if strings.Contains(strings.ToLower(page), bad) {
				t.Errorf("%s: the page has %q", name, bad)
			}
		}
		for _, m := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			if !strings.HasPrefix(m[1], "#run-") {
				t.Errorf("%s: a link leaves the page: %s", name, m[1])
			}
			if !strings.Contains(page, `id="`+m[1][1:]+`"`) {
				t.Errorf("%s: a link goes nowhere: %s", name, m[1])
			}
		}
		if !strings.Contains(page, "default-src &#39;none&#39;; style-src &#39;sha256-") {
			t.Errorf("%s: no policy that forbids the network", name)
		}
		for _, u := range regexp.MustCompile(`https?://[^"' <]*`).FindAllString(page, -1) {
			if u != "http://www.w3.org/2000/svg" {
				t.Errorf("%s: names %s", name, u)
			}
		}
	}
}

func TestPageEscapesItsInput(t *testing.T) {
	page := htmlOf(t, hostile())
	if strings.ContainsAny(page, "\x1b\x00\u202e") {
		t.Error("the page holds control characters")
	}
	if strings.Contains(page, "<script>alert") || !strings.Contains(page, "&lt;script&gt;alert(1)") {
		t.Error("text is not escaped")
	}
	plain, evil := htmlOf(t, h200()), htmlOf(t, hostile())
	for _, tag := range []string{"</title>", "</style>"} {
		// One title of the page; each plot has one too.
		if svg := strings.Count(evil, "<svg"); strings.Count(evil, tag) > svg+1 || strings.Count(plain, "</style>") != 1 {
			t.Errorf("%s closes what it should not", tag)
		}
	}
}

// TestPageIsWellFormed reads the page as a tree: each element closed in order,
// headings without gaps, ids once.
func TestPageIsWellFormed(t *testing.T) {
	all := fixtures()
	all["hostile"], all["empty"] = hostile(), &record.File{Schema: 1, Tool: record.Tool}
	all["bare run"] = &record.File{Runs: []record.Run{{}, {Latency: &record.Latency{}, Series: make([]record.Point, 2)}},
		Sweeps: []record.Sweep{{Unit: "count", Points: []record.SweepPoint{{}, {Run: 1}}}, {Points: []record.SweepPoint{{}}},
			{}}, Train: &record.Train{Trace: make([]record.StepAt, 4)}}
	for name, f := range all {
		page := htmlOf(t, f)
		dec := xml.NewDecoder(strings.NewReader(page))
		dec.Strict, dec.AutoClose, dec.Entity = false, []string{"meta"}, xml.HTMLEntity
		var open []string
		ids, level := map[string]bool{}, 0
		for {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch el := tok.(type) {
			case xml.StartElement:
				open = append(open, el.Name.Local)
				for _, a := range el.Attr {
					if a.Name.Local == "id" && ids[a.Value] {
						t.Errorf("%s: id %s twice", name, a.Value)
					} else if a.Name.Local == "id" {
						ids[a.Value] = true
					}
				}
				if n := el.Name.Local; len(n) == 2 && n[0] == 'h' && n[1] >= '1' && n[1] <= '6' {
					if l := int(n[1] - '0'); l > level+1 {
						t.Errorf("%s: h%d after h%d", name, l, level)
					} else {
						level = l
					}
				}
			case xml.EndElement:
				if len(open) == 0 || open[len(open)-1] != el.Name.Local {
					t.Fatalf("%s: </%s> closes %v", name, el.Name.Local, open)
				}
				open = open[:len(open)-1]
			}
		}
		if len(open) != 0 {
			t.Errorf("%s: left open: %v", name, open)
		}
	}
}

func plots(page string) []string {
	return regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
}

// TestPlotsAreWhole reads each plot as strict XML: named, described, with
// numbers that can be drawn, and with its text inside.
func TestPlotsAreWhole(t *testing.T) {
	all := fixtures()
	all["hostile"] = hostile()
	for name, f := range all {
		svgs := plots(htmlOf(t, f))
		if len(svgs) == 0 {
			t.Errorf("%s has no plot", name)
		}
		for _, svg := range svgs {
			checkPlot(t, name, svg)
		}
	}
}

func checkPlot(t *testing.T, name, svg string) {
	t.Helper()
	var root struct {
		Role  string `xml:"role,attr"`
		Box   string `xml:"viewBox,attr"`
		Title string `xml:"title"`
		Desc  string `xml:"desc"`
		Texts []struct {
			X float64 `xml:"x,attr"`
			Y float64 `xml:"y,attr"`
		} `xml:"text"`
		Rects []struct {
			X float64 `xml:"x,attr"`
			Y float64 `xml:"y,attr"`
			W float64 `xml:"width,attr"`
			H float64 `xml:"height,attr"`
		} `xml:"rect"`
		Paths []struct {
			D string `xml:"d,attr"`
		} `xml:"path"`
	}
	if err := xml.Unmarshal([]byte(svg), &root); err != nil {
		t.Errorf("%s: %v in %.200s", name, err, svg)
		return
	}
	if root.Role != "img" || root.Title == "" || root.Desc == "" {
		t.Errorf("%s: a plot without role, title or description: %.200s", name, svg)
	}
	box := strings.Fields(root.Box)
	w, _ := strconv.ParseFloat(box[2], 64)
	h, _ := strconv.ParseFloat(box[3], 64)
	for _, x := range root.Texts {
		if x.X < 0 || x.X > w || x.Y < 0 || x.Y > h {
			t.Errorf("%s: %q has text outside, at %v %v", name, root.Title, x.X, x.Y)
		}
	}
	for _, x := range root.Rects {
		if x.X < 0 || x.X+x.W > w+1 || x.Y < 0 || x.Y+x.H > h+1 {
			t.Errorf("%s: %q has a bar outside: %+v of %v x %v", name, root.Title, x, w, h)
		}
	}
	for _, x := range root.Paths {
		if strings.Contains(x.D, "NaN") || strings.Contains(x.D, "Inf") {
			t.Errorf("%s: %q has a path through nowhere", name, root.Title)
		}
	}
}

func TestBarsAreAsLongAsTheirShare(t *testing.T) {
	r := h200().Runs
	width := func(i int) float64 {
		svg := string(shareBarsIn([]*record.Run{&r[i]}, wideW, false))
		m := regexp.MustCompile(`<rect class="bar [^"]*" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"`).FindStringSubmatch(svg)
		v, _ := strconv.ParseFloat(m[2], 64)
		return v
	}
	if got, want := width(4)/width(1), r[4].Share.Ratio/r[1].Share.Ratio; math.Abs(got-want) > 0.01 {
		t.Errorf("bars are as %v, shares as %v", got, want)
	}
}

func TestColumnsKeepEveryRequest(t *testing.T) {
	for name, l := range map[string]*record.Latency{
		"usual":     latencyAround(0.008, 32768),
		"one":       {Min: 1, Max: 1, Buckets: []record.Bucket{{UpTo: 1, Count: 5}}},
		"from zero": {Buckets: []record.Bucket{{UpTo: 0.001, Count: 5}, {UpTo: 1, Count: 0}, {UpTo: 10, Count: 5}}},
		"wide":      {Min: 1e-6, Max: 1, Buckets: []record.Bucket{{UpTo: 1, Count: 5}}},
	} {
		cols, lo, hi := logColumns(l, latencyColumns)
		sum := 0.0
		for _, v := range cols {
			sum += v
		}
		if math.Abs(sum-100) > 0.5 || lo <= 0 || hi <= lo {
			t.Errorf("%s: %v %% from %v to %v", name, sum, lo, hi)
		}
	}
	if cols, _, _ := logColumns(&record.Latency{}, latencyColumns); cols != nil {
		t.Error("no requests make columns")
	}
}

func TestThinKeepsTheBytes(t *testing.T) {
	var pts []record.Point
	for i := range 1001 {
		pts = append(pts, record.Point{At: float64(i + 1), GBps: float64(i % 7)})
	}
	moved := func(p []record.Point) float64 {
		sum, from := 0.0, 0.0
		for _, x := range p {
			sum, from = sum+x.GBps*(x.At-from), x.At
		}
		return sum
	}
	out := thin(pts, 100)
	if len(out) > 100 || math.Abs(moved(out)-moved(pts)) > 1e-6 || out[len(out)-1].At != 1001 {
		t.Errorf("%d points move %v of %v", len(out), moved(out), moved(pts))
	}
}

func TestTicksAreRoundAndFew(t *testing.T) {
	for _, c := range []struct {
		s    scale
		n    int
		want []float64
	}{
		{scale{hi: 4.4}, 5, []float64{0, 1, 2, 3, 4}},
		{scale{hi: 102}, 5, []float64{0, 25, 50, 75, 100}},
		{scale{hi: 62}, 4, []float64{0, 20, 40, 60}},
		{scale{lo: 0.004, hi: 0.09, log: true}, 5, []float64{0.005, 0.01, 0.02, 0.05}},
	} {
		got := c.s.ticks(c.n)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%+v: %v, expected %v", c.s, got, c.want)
		}
	}
	for _, s := range []scale{{lo: 1e-9, hi: 1e9, log: true}, {hi: 1e15}, {hi: 1e-12}, {}} {
		if n := len(s.ticks(5)); n > 12 {
			t.Errorf("%+v has %d ticks", s, n)
		}
	}
}

// TestColoursCanBeRead holds the style sheet's text against 4.5 and its shapes
// against 3, the contrasts that readers with weak sight need, in light and dark.
func TestColoursCanBeRead(t *testing.T) {
	blocks := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(pageStyle, -1)
	if len(blocks) != 3 { // light, dark, print
		t.Fatalf("%d sets of colours", len(blocks))
	}
	for i, b := range blocks {
		colour := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([\w-]+): #([0-9a-f]{3,6});`).FindAllStringSubmatch(b[1], -1) {
			colour[m[1]] = luminance(t, m[2])
		}
		contrast := func(a, b string) float64 {
			x, y := colour[a], colour[b]
			return (max(x, y) + 0.05) / (min(x, y) + 0.05)
		}
		for _, name := range []string{"ink", "dim", "link", "bad", "good"} {
			if c := contrast(name, "bg"); c < 4.5 {
				t.Errorf("set %d: %s has a contrast of %.1f", i, name, c)
			}
		}
		if c := contrast("ink", "bad-bg"); c < 4.5 {
			t.Errorf("set %d: warnings have a contrast of %.1f", i, c)
		}
		for _, name := range []string{"storage", "memory", "both", "copy", "unknown", "step", "idle", "column", "s0", "s1",
			"s2", "s3", "s4", "s5"} {
			if c := contrast(name, "bg"); c < 3 {
				t.Errorf("set %d: %s has a contrast of %.1f", i, name, c)
			}
		}
	}
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	part := func(v uint64) float64 {
		c := float64(v&255) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(n>>16) + 0.7152*part(n>>8) + 0.0722*part(n)
}
