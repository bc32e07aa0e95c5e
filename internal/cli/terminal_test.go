// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"
)

func TestColumns(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "模型": 4, "e\u0301": 1, "▁▂▃": 3, "é": 1, "🚀x": 3, "ｆｕｌｌ": 8} {
		if got := columns(text); got != want {
			t.Errorf("%q: %d columns, expected %d", text, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		name, rest string
		width      int
		want       string
	}{
		{"read", "1 GB/s", 80, "read  1 GB/s"},
		{"a long name of a run", "1 GB/s", 24, "a long name of …  1 GB/s"},
		{"a long name of a run", "1 GB/s", 10, "a long na…"},
		{"模型模型模型模型", "1 GB/s", 20, "模型模型模…  1 GB/s"},
		{"", "1.00 GiB of 2.00 GiB", 8, "1.00 Gi…"},
		{"alone", "", 3, "al…"},
		{"alone", "", 1, "…"},
		{"alone", "x", 0, ""},
	} {
		got := fit(c.name, c.rest, c.width)
		if got != c.want || columns(got) > c.width {
			t.Errorf("%q and %q in %d columns: %q (%d), expected %q", c.name, c.rest, c.width, got, columns(got), c.want)
		}
	}
}

// A line never reaches the last column, also when the window is made narrower
// while it is drawn; then what has wrapped is taken away first.
func TestLinesFollowTheWindow(t *testing.T) {
	var out strings.Builder
	width := 60
	a := &app{World: World{Stderr: &out, StderrIsTerminal: true, Now: time.Now,
		TerminalWidth: func() int { return width }}}
	p := &progress{a: a, draws: true}
	long := strings.Repeat("model/模型/", 20)
	p.line(long, "1.00 GB/s")
	width = 25
	p.line(long, "1.00 GB/s")
	p.clear()
	parts := strings.Split(escapes.ReplaceAllString(out.String(), ""), "\r")
	if n := columns(parts[1]); n != 59 && n != 58 {
		t.Errorf("%q has %d columns", parts[1], n)
	}
	// 59 columns are three rows of 25: two up, then all below is cleared.
	if !strings.Contains(out.String(), "\x1b[2A\r\x1b[J\r") {
		t.Errorf("what wrapped stays: %q", out.String())
	}
	for _, s := range parts[3:] {
		if n := columns(s); n > 24 {
			t.Errorf("%q has %d columns of 24", s, n)
		}
	}
	if !strings.HasSuffix(out.String(), " \r") {
		t.Errorf("the line is not cleared: %q", out.String())
	}
}

func TestStepsTellTheTimeLeft(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	p := &stepPlan{all: []benchStep{{name: "limits", weight: 10}, {name: "read", weight: 1}, {name: "sweep", weight: 9}},
		began: start, now: start}
	for _, c := range []struct {
		at, began, now int
		want           string
	}{
		{0, 0, 5, "step 1 of 3: limits"},
		{1, 20, 20, "step 2 of 3, about 20s left: read"},
		{1, 20, 21, "step 2 of 3, about 19s left: read"},
		{1, 20, 50, "step 2 of 3, about 18s left: read"}, // it takes longer than expected
		{2, 330, 330, "step 3 of 3, about 4m30s left: sweep"},
		{2, 330, 2000, "step 3 of 3, about 0s left: sweep"},
	} {
		p.at, p.now = c.at, at(c.began)
		if got := p.text(at(c.now)); got != c.want {
			t.Errorf("%q, expected %q", got, c.want)
		}
	}
}
