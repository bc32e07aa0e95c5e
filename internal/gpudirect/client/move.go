// SPDX-License-Identifier: Apache-2.0

package client

import (
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/units"
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

// merge adds the report of one of several transfers that make up a move.
func (m *Move) merge(t *report.Report) {
	r := &m.report.Report
	if r.Direction == "" {
		refusals, notes := r.Refusals, r.Notes
		*r = report.Report{Direction: t.Direction, Device: t.Device, Asked: t.Asked, Engine: t.Engine,
			Limiting: t.Limiting, Refusals: refusals, Notes: notes}
	}
	r.Bytes += t.Bytes
	for _, x := range t.Routes {
		i := indexOf(r.Routes, func(y report.RouteShare) bool { return y.Route == x.Route })
		if i < 0 {
			r.Routes = append(r.Routes, x)
			continue
		}
		y := &r.Routes[i]
		y.Bytes, y.Chunks, y.Span = y.Bytes+x.Bytes, y.Chunks+x.Chunks, y.Span+x.Span
		y.GBps = units.GBps(y.Bytes, seconds(y.Span))
	}
	for _, x := range t.Stages {
		i := indexOf(r.Stages, func(y report.Stage) bool { return y.Stage == x.Stage })
		if i < 0 {
			r.Stages = append(r.Stages, x)
			continue
		}
		y := &r.Stages[i]
		y.Bytes, y.Busy, y.Span = y.Bytes+x.Bytes, y.Busy+x.Busy, y.Span+x.Span
		y.GBps = units.GBps(y.Bytes, seconds(y.Span))
	}
	if t.ReadTotals != nil {
		if r.ReadTotals == nil {
			r.ReadTotals = &report.ReadTotals{}
		}
		r.Wanted, r.Read = r.Wanted+t.Wanted, r.Read+t.Read
		if r.Wanted > 0 {
			r.Amplification = float64(r.Read) / float64(r.Wanted)
		}
	}
	if t.Verify != nil {
		if r.Verify == nil {
			r.Verify = &report.Verification{}
		}
		r.Verify.Add(t.Verify)
	}
	if t.CuFile != nil {
		r.CuFile = t.CuFile
	}
	for _, x := range t.Refusals {
		// Many objects may be refused for the same reason, which is reported once.
		if indexOf(r.Refusals, func(y report.Refusal) bool { return y.What == x.What && y.Reason == x.Reason }) < 0 {
			r.Refusals = append(r.Refusals, x)
		}
	}
	for _, n := range t.Notes {
		if indexOf(r.Notes, func(o string) bool { return o == n }) < 0 && len(r.Notes) < mostNotes {
			r.Notes = append(r.Notes, n)
		}
	}
}

// mostNotes is the largest number of notes in the report of a batch.
const mostNotes = 32

func indexOf[T any](all []T, is func(T) bool) int {
	for i := range all {
		if is(all[i]) {
			return i
		}
	}
	return -1
}
