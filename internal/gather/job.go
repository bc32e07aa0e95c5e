// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// The files of a job are opened and read in windows, one transfer for each window.
const (
	// mostInWindow and leastInWindow bound the number of files in a window.
	mostInWindow, leastInWindow = 64, 4
	// windowsOpen is the number of windows with open files. While one window is read, the next is opened, so that the
	// device does not wait.
	windowsOpen = 3
)

// windowSize returns the number of files in a window. All open windows of a job together use at most three eighths of
// the process's limit of open files.
func windowSize() int { return min(max(vfs.PoolSize()/2, leastInWindow), mostInWindow) }

// Job is a gather that is running or has ended.
type Job struct {
	e     *transfer.Engine
	req   Request
	total int64
	began time.Time
	done  chan struct{}

	moved atomic.Int64 // bytes of transfers that have ended

	mu      sync.Mutex
	running map[*transfer.Load]struct{}
	report  report.Report
	opening time.Duration // time until the first window was open
	err     error
}

// Start checks the request, begins to read and returns at once. If the context ends, the job is cancelled. Start
// itself fails only for a request that is not valid; Wait returns all other errors. The caller must not use the
// destinations until the job has ended.
func Start(ctx context.Context, e *transfer.Engine, r Request) (*Job, error) {
	total, err := r.check()
	if err != nil {
		return nil, err
	}
	j := &Job{e: e, req: r, total: total, began: time.Now(), done: make(chan struct{}),
		running: map[*transfer.Load]struct{}{}}
	go j.run(ctx)
	return j, nil
}

// Done returns a channel that is closed when the job has ended and the caller may use the destinations.
func (j *Job) Done() <-chan struct{} { return j.done }

// Wait blocks until the job has ended and returns its error.
func (j *Job) Wait() error {
	<-j.done
	return j.err
}

// Progress returns the number of bytes delivered so far, and the total number of bytes to deliver.
func (j *Job) Progress() (done, total int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	done = j.moved.Load()
	for t := range j.running {
		n, _ := t.Progress()
		done += n
	}
	return done, j.total
}

// Report blocks until the job has ended and returns its report, and the time until the first files were open.
func (j *Job) Report() (r report.Report, opening time.Duration) {
	<-j.done
	return j.report, j.opening
}

// run reads the windows. At most windowsOpen of them have open files.
func (j *Job) run(ctx context.Context) {
	defer close(j.done)
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, windowsOpen)
	var all sync.WaitGroup
	for parts := range slicesOf(j.req.parts(), windowSize()) {
		turns <- struct{}{}
		if inner.Err() != nil {
			break
		}
		w, err := j.open(inner, parts)
		if err != nil {
			cancel(err) // only the first error counts
			break
		}
		all.Go(func() {
			defer func() { <-turns }()
			if err := j.read(inner, w); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	j.end(ctx, context.Cause(inner))
}

// end sets the error and completes the report.
func (j *Job) end(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		err = &errs.Error{Kind: errs.Cancelled, Op: "gather", Err: context.Cause(ctx),
			Name: fmt.Sprintf("to %s after %s", j.req.Device.Info().ID, units.Bytes(j.moved.Load()))}
	}
	j.err = err
	r := &j.report
	if r.Direction == "" { // no window was read
		i := j.req.Device.Info()
		*r = report.Report{Direction: "load", ReadTotals: &report.ReadTotals{}, Limiting: "none",
			Device: report.Device{ID: i.ID, Kind: report.DeviceKind(i.Kind), Model: i.Model},
			Asked:  report.Asked{Route: j.req.Route, Cache: j.req.Cache}}
	}
	// JSON has lists, not null.
	r.Routes, r.Stages, r.Files = append([]report.RouteShare{}, r.Routes...), append([]report.Stage{}, r.Stages...),
		append([]report.File{}, r.Files...)
	r.Refusals, r.Notes = append([]report.Refusal{}, r.Refusals...), append([]string{}, r.Notes...)
	took := time.Since(j.began) - j.opening
	r.Seconds, r.GBps = took.Seconds(), units.GBps(r.Bytes, took)
	if r.Error = ""; err != nil {
		r.Error = err.Error()
	}
}
