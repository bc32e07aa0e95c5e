// SPDX-License-Identifier: Apache-2.0

package client

import (
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/report"
)

// Move is a read or write of objects that is in progress. To cancel a Move, cancel the context that it was started
// with.
type Move struct {
	done  chan struct{}
	began time.Time
	err   error
	// report is written before done is closed, and read after it.
	report report.Object
	sums   *checksum.Sums // of a write that asked for them; set before done is closed

	run   atomic.Pointer[running] // the transfer in progress, for Progress; nil if none
	moved atomic.Int64            // bytes moved by transfers that have ended
	total atomic.Int64
}

// running is a transfer in progress.
type running struct{ progress func() (done, total int64) }

// runs sets the function that Progress calls for the transfer in progress.
func (m *Move) runs(progress func() (done, total int64)) { m.run.Store(&running{progress}) }

func newMove(op string) *Move {
	return &Move{done: make(chan struct{}), began: time.Now(), report: report.Object{Op: op}}
}

// begun returns m. If the server's setting enable_async is off, begun first waits until m has ended.
func (c *Client) begun(m *Move) *Move {
	if w := c.wayNow(); w != nil && w.door != nil && !w.door.settings().Async {
		<-m.done
	}
	return m
}

// Done returns a channel that is closed when the move has ended. After the move has ended, the caller may use the
// move's memory again.
func (m *Move) Done() <-chan struct{} { return m.done }

// Wait blocks until the move has ended and returns its error.
func (m *Move) Wait() error {
	<-m.done
	return m.err
}

// Progress returns the bytes moved so far, and the bytes to move in total. The total of Progress is 0 until the size
// of the object is known.
func (m *Move) Progress() (done, total int64) {
	done = m.moved.Load()
	if r := m.run.Load(); r != nil {
		n, _ := r.progress()
		done += n
	}
	return done, m.total.Load()
}

// Report waits until the move has ended and returns its report.
func (m *Move) Report() report.Object {
	<-m.done
	return m.report
}

// Sums waits until the move has ended and returns the checksums of the blocks that were written. Sums returns nil if
// the write failed or did not ask for them; see Write.Sums.
func (m *Move) Sums() *checksum.Sums {
	<-m.done
	if m.err != nil {
		return nil
	}
	return m.sums
}

// opened records the time at which the object is open and the transfer can begin.
func (m *Move) opened() { m.report.OpenSeconds = time.Since(m.began).Seconds() }

// end completes the report and marks the move as ended.
func (m *Move) end(err error) {
	m.err = err
	r := &m.report
	if r.Direction == "" { // nothing was moved by the engine
		if r.Direction = "load"; r.Op == "write" {
			r.Direction = "save"
		}
	}
	if err != nil {
		r.Error = err.Error()
	}
	if r.Routes == nil {
		r.Routes = []report.RouteShare{}
	}
	if r.Stages == nil {
		r.Stages = []report.Stage{}
	}
	if r.Files == nil {
		r.Files = []report.File{}
	}
	if r.Refusals == nil {
		r.Refusals = []report.Refusal{}
	}
	if r.Notes == nil {
		r.Notes = []string{}
	}
	if r.Limiting == "" {
		r.Limiting = "none"
	}
	close(m.done)
}

// take makes the engine's report of one transfer the move's own, and keeps the refusals and notes recorded before.
func (m *Move) take(t report.Report) {
	t.Refusals = append(m.report.Refusals, t.Refusals...)
	t.Notes = append(m.report.Notes, t.Notes...)
	m.report.Report = t
}

// refuse adds a faster way that was not taken to the report.
func (m *Move) refuse(r *report.Refusal) {
	if r != nil {
		m.report.Refusals = append(m.report.Refusals, *r)
	}
}

// merge adds the report of one of several transfers that make up a move. The report of a batch lists objects, not
// files.
func (m *Move) merge(t *report.Report) {
	m.report.Merge(t)
	m.report.Files = nil
}
