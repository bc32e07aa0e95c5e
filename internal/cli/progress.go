// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/units"
)

// redrawEvery limits how often the progress line is drawn.
const redrawEvery = 100 * time.Millisecond

// progress is a line on stderr that is redrawn as work proceeds. It is drawn
// only on a terminal and never with --json.
type progress struct {
	a     *app
	draws bool
	began time.Time
	drawn time.Time
	shown int // columns of the drawn line
}

// startProgress begins a line for total bytes. quiet suppresses drawing. A total
// of 0 means unknown.
func (a *app) startProgress(total int64, quiet bool) *progress {
	p := &progress{a: a, draws: a.StderrIsTerminal && !quiet, began: a.Now()}
	p.update(0, total)
	return p
}

// startWork begins a line for work that is not counted in bytes.
func (a *app) startWork(text string, quiet bool) *progress {
	p := &progress{a: a, draws: a.StderrIsTerminal && !quiet, began: a.Now()}
	p.say(text)
	return p
}

// update shows done of total bytes. Calls do not overlap.
func (p *progress) update(done, total int64) {
	if p.a.Progress != nil {
		p.a.Progress(done, total)
	}
	if !p.due(total > 0 && done >= total) {
		return
	}
	p.line("", progressText(done, total, p.a.Now().Sub(p.began)))
}

// say shows text for work that is not counted in bytes.
func (p *progress) say(text string) {
	if p.due(false) {
		p.line(text, "")
	}
}

// sharedProgress is a progress line that several goroutines draw. After clear nothing is drawn any more.
type sharedProgress struct {
	mu    sync.Mutex
	p     *progress
	ended bool
}

func (s *sharedProgress) draw(f func(p *progress)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		f(s.p)
	}
}

func (s *sharedProgress) say(text string) { s.draw(func(p *progress) { p.say(text) }) }

func (s *sharedProgress) update(done, total int64) {
	s.draw(func(p *progress) { p.update(done, total) })
}

func (s *sharedProgress) clear() {
	s.draw(func(p *progress) {
		p.clear()
		s.ended = true
	})
}

// due reports whether the line may be drawn now. The last line is always drawn.
func (p *progress) due(last bool) bool {
	if !p.draws {
		return false
	}
	now := p.a.Now()
	if !p.drawn.IsZero() && now.Sub(p.drawn) < redrawEvery && !last {
		return false
	}
	p.drawn = now
	return true
}

// clear empties the line for the next output.
func (p *progress) clear() {
	if p.shown > 0 {
		p.line("", "")
		fmt.Fprint(p.a.Stderr, "\r")
	}
}

// line redraws the line within the width of the terminal. The last column stays
// free: a line that reaches it would wrap and could not be redrawn. The rest is
// cleared with spaces, because spaces work on every terminal.
func (p *progress) line(name, rest string) {
	room := max(p.a.width()-1, 1)
	if p.shown > room {
		// The window became narrower and the old line has wrapped. Go up to its
		// first row and clear everything below.
		fmt.Fprintf(p.a.Stderr, "\x1b[%dA\r\x1b[J", (p.shown-1)/(room+1))
		p.shown = 0
	}
	text := fit(name, rest, room)
	n := columns(text)
	fmt.Fprintf(p.a.Stderr, "\r%s%s", text, strings.Repeat(" ", max(0, p.shown-n)))
	p.shown = n
}

// longest is the largest time left that is shown. Larger estimates are not useful.
const longest = 99 * time.Hour

// progressText returns the bytes, the percentage, the rate and the time left.
func progressText(done, total int64, elapsed time.Duration) string {
	if total <= 0 {
		text := units.Bytes(done)
		if done > 0 && elapsed > 0 {
			text += "  " + units.Rate(units.GBps(done, elapsed))
		}
		return text
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
