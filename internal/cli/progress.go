// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/units"
)

// redrawEvery keeps a fast writer of progress from flooding a terminal.
const redrawEvery = 100 * time.Millisecond

// progress is a line on stderr that is rewritten as bytes move. It draws only
// on a terminal and only for a person.
type progress struct {
	a     *app
	draws bool
	began time.Time
	drawn time.Time
	width int // of what stands on the line
}

// startProgress begins a line for total bytes; quiet keeps it from being drawn.
func (a *app) startProgress(total int64, quiet bool) *progress {
	p := &progress{a: a, draws: a.StderrIsTerminal && !quiet, began: a.Now()}
	p.update(0, total)
	return p
}

// update shows how far it is. Calls do not overlap.
func (p *progress) update(done, total int64) {
	if p.a.Progress != nil {
		p.a.Progress(done, total)
	}
	if !p.draws {
		return
	}
	now := p.a.Now()
	if !p.drawn.IsZero() && now.Sub(p.drawn) < redrawEvery && done < total {
		return
	}
	p.drawn = now
	p.line(progressText(done, total, now.Sub(p.began)))
}

// clear leaves the line empty for what is printed next.
func (p *progress) clear() {
	if p.width > 0 {
		p.line("")
		fmt.Fprint(p.a.Stderr, "\r")
	}
}

// line writes over what stands there; spaces instead of an escape sequence
// clear the rest on every kind of terminal.
func (p *progress) line(text string) {
	n := utf8.RuneCountInString(text)
	fmt.Fprintf(p.a.Stderr, "\r%s%s", text, strings.Repeat(" ", max(0, p.width-n)))
	p.width = n
}

// longest is the time to go beyond which a guess at it says nothing.
const longest = 99 * time.Hour

// progressText is bytes, percent, rate and the time that remains at that rate.
func progressText(done, total int64, elapsed time.Duration) string {
	if total <= 0 {
		return units.Bytes(done)
	}
	text := fmt.Sprintf("%s of %s  %3d %%", units.Bytes(done), units.Bytes(total), int(float64(done)/float64(total)*100))
	if done <= 0 || elapsed <= 0 {
		return text
	}
	text += "  " + units.Rate(units.GBps(done, elapsed))
	left := elapsed.Seconds() * float64(total-done) / float64(done)
	if left > longest.Seconds() {
		return text
	}
	return text + "  ETA " + time.Duration(left*float64(time.Second)).Round(time.Second).String()
}
