// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/units"
)

// liveLine shows a run on a terminal: what runs, how fast, the last two seconds
// as a small picture, and when it ends. The steps of a longer command come first.
type liveLine struct {
	progress
	steps *stepPlan // nil where a command is one step
	name  string    // of what was shown last
}

func (a *app) newLiveLine(quiet bool) *liveLine {
	return &liveLine{progress: progress{a: a, draws: a.StderrIsTerminal && !quiet, began: a.Now()}}
}

// update is called by one run at a time.
func (l *liveLine) update(v bench.Live) {
	if l.a.Progress != nil {
		l.a.Progress(v.Done, v.Total)
	}
	if l.steps != nil {
		v.Rates = nil // no room for a picture
	}
	l.show(v.Name, strings.TrimSpace(liveText(v)))
}

// step shows what is measured when there are no bytes to count.
func (l *liveLine) step(name string, i, n int) { l.show(name, fmt.Sprintf("%d of %d", i+1, n)) }

// show draws a line, at once where another name is shown than before.
func (l *liveLine) show(name, rest string) {
	if !l.due(name != l.name) {
		return
	}
	l.name = name
	if l.steps != nil {
		// Which step runs is worth more than how fast: the rate goes first.
		name = l.steps.text(l.a.Now())
		if l.a.width()-columns(rest) < leastStep {
			rest = ""
		}
	}
	l.line(name, rest)
}

// leastStep is how many columns a step needs to be told by its number, its time and its name.
const leastStep = 40

// liveText returns the rate, the bytes done and the time left of a running benchmark, without its name.
func liveText(v bench.Live) string {
	text := fmt.Sprintf("%s %s  %s", sparkline(v.Rates), units.Rate(v.GBps), units.Bytes(v.Done))
	switch {
	case v.Limit > 0:
		text += fmt.Sprintf("  %s of %s", v.Elapsed.Round(100*time.Millisecond), v.Limit)
	case v.Total > 0 && v.Done > 0:
		left := time.Duration(float64(v.Elapsed) * float64(v.Total-v.Done) / float64(v.Done))
		text += fmt.Sprintf(" of %s  ETA %s", units.Bytes(v.Total), left.Round(time.Second))
	}
	return text
}

// sparkline draws rates from nothing to the largest of them.
func sparkline(rates []float64) string {
	const bars = "▁▂▃▄▅▆▇█"
	levels := []rune(bars)
	top := 0.0
	for _, r := range rates {
		top = max(top, r)
	}
	var b strings.Builder
	for _, r := range rates {
		i := 0
		if top > 0 {
			i = int(r / top * float64(len(levels)-1))
		}
		b.WriteRune(levels[min(max(i, 0), len(levels)-1)])
	}
	return b.String()
}
