// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// loads runs the loads of a lane.
type loads struct {
	*lane
	sched *sched[*Load]
	// need starts the workers for one way of reading, once. If this way uses staging, need also prepares staging for
	// the load's device.
	need    func(w plan.Way, l *Load) error
	io      IO // mechanism of direct reads; set when they first start, guarded by lane.mu
	scratch scratch
	// ending frees the memory that ended loads have shared with other processes.
	ending releases
}

// Load is a load that is running or has ended.
type Load struct {
	task[*Load]
	e     *loads
	req   Request
	port  *port
	total int64
	began time.Time
	shown tally.Start // the whole load, for a profiler

	tally  tally.Tally
	verify verifier
	ready  *readiness
	cu     cuFileUse
	fan    fanout // other devices that receive the same bytes
	net    netUse
	truths []*truth // one for each file; nil before the load is planned
	// policies are the cache policies in force for the files; nil before the load is planned.
	policies []report.CachePolicy
	// shared has the shared reads of each file; an entry is nil before a read from storage is planned.
	shared    []*sharing
	shareable int          // number of files whose reads can still be shared; only the planner uses it
	small     []plan.Chunk // small chunks that no worker has yet; only the planner uses them
	borders   borders      // between allocations of the destination; nil before the load is planned

	prepared [plan.Ways]bool // staging was asked for; guarded by lane.mu
	packs    bool            // some chunks have a Weave and are packed in staging; guarded by lane.mu

	done   chan struct{} // closed when the result is settled
	result error
	wall   time.Duration
	memory func() // ends the promise that promiseMemory has recorded
}

// netUse is the network state of a load.
type netUse struct {
	ctx    context.Context // context of the requests; nil if no file is remote
	cancel context.CancelFunc
	queued []plan.Chunk // planned chunks that no fetcher has yet; only the planner uses them
}

// abort cancels the running requests.
func (n *netUse) abort() {
	if n.cancel != nil {
		n.cancel()
	}
}

// Done returns a channel that is closed when the load has ended and none of its copies is still queued on a device.
func (t *Load) Done() <-chan struct{} { return t.done }

// Err blocks until the load has ended and returns its error.
func (t *Load) Err() error {
	<-t.done
	return t.result
}

// Progress returns the number of bytes delivered so far, and the total number of bytes to deliver.
func (t *Load) Progress() (done, total int64) { return t.delivered.Load(), t.total }

// Ready waits until more than `known` parts of the destination are final, or until the load has ended. A part is one
// entry of Request.Parts. A part is final when its bytes are in the destination and, if they are verified, match their
// checksums. The result n means that the first n of Request.Parts are final. The load does not change a final part any
// more, even if the load fails later. If no more parts will become final, Ready returns the load's error. If ctx ends
// while Ready waits, err is of kind Cancelled and the load goes on.
func (t *Load) Ready(ctx context.Context, known int) (n int, err error) {
	for {
		n, grown := t.ready.look(known)
		if grown == nil {
			return n, nil
		}
		select {
		case <-grown:
		case <-t.done:
			if n, grown = t.ready.look(known); grown == nil {
				return n, nil
			}
			return n, t.result
		case <-ctx.Done():
			return n, &errs.Error{Kind: errs.Cancelled, Op: "wait for what is ready", Err: context.Cause(ctx)}
		}
	}
}

// inPlace reports whether a chunk is read through the page cache directly into the destination.
func (t *Load) inPlace(c plan.Chunk) bool {
	return t.port.mapper != nil && !c.Extra && c.Weave == nil
}

// cancelled returns the error of a load whose context has ended.
func (t *Load) cancelled(ctx context.Context) error {
	return &errs.Error{Kind: errs.Cancelled, Op: "transfer", Err: context.Cause(ctx),
		Name: t.destination() + " after " + units.Bytes(t.delivered.Load())}
}

// destination returns the name of the destination for errors.
func (t *Load) destination() string { return "to " + t.req.Device.Info().ID }

// cancelledAfter puts the final number of bytes into the error of a cancelled move. Bytes that were in flight at the
// cancellation still arrive and count. Other errors stay as they are.
func cancelledAfter(err error, op, what string, moved int64) error {
	if e, ok := err.(*errs.Error); ok && e.Kind == errs.Cancelled && e.Op == op {
		out := *e // other goroutines may have e already
		out.Name = what + " after " + units.Bytes(moved)
		return &out
	}
	return err
}
