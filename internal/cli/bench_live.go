// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/units"
)

// liveLine shows a running benchmark on a terminal: its name, its rate, the
// rates of the last two seconds as a sparkline, and the time left. In a command
// with several steps, the step comes first.
type liveLine struct {
	progress
	steps *stepPlan // nil if the command is one step
	name  string    // the name shown last
}

func (a *app) newLiveLine(quiet bool) *liveLine {
	return &liveLine{progress: progress{a: a, draws: a.StderrIsTerminal && !quiet, began: a.Now()}}
}

// update shows the state of the running benchmark. Calls do not overlap.
func (l *liveLine) update(v bench.Live) {
	if l.a.Progress != nil {
		l.a.Progress(v.Done, v.Total)
	}
	if l.steps != nil {
		v.Rates = nil // no room for the sparkline
	}
	l.show(v.Name, strings.TrimSpace(liveText(v)))
}

// step shows the progress of work that is not counted in bytes.
func (l *liveLine) step(name string, i, n int) { l.show(name, fmt.Sprintf("%d of %d", i+1, n)) }

// show draws the line. A new name is drawn at once.
func (l *liveLine) show(name, rest string) {
	if !l.due(name != l.name) {
		return
	}
	l.name = name
	if l.steps != nil {
		// If the line is too short, the step stays and the rate is cut.
		name = l.steps.text(l.a.Now())
		if l.a.width()-columns(rest) < leastStep {
			rest = ""
		}
	}
	l.line(name, rest)
}

// leastStep is the number of columns that a step's number, time and name need.
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

// sparkline draws rates on a scale from zero to their maximum.
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
