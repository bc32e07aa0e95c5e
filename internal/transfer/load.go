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

// loads is what runs the loads of a lane.
type loads struct {
	*lane
	sched *sched[*Load]
	// need starts the workers for one way of reading, once, and prepares staging
	// for the load's device where that way uses it.
	need func(w plan.Way, l *Load) error
	io   IO // what direct reads use; settled when they first start, guarded by lane.mu
}

// Load is one running or ended load.
type Load struct {
	task[*Load]
	e     *loads
	req   Request
	port  *port
	total int64
	began time.Time

	tally  tally.Tally
	verify verifier
	ready  *readiness
	cu     cuFileUse
	fan    fanout // other devices that get the same bytes
	net    netUse
	truths []*truth // one for each file; nil before the load is planned
	// policies are in force for the files; nil before the load is planned.
	policies []report.CachePolicy

	prepared [plan.Ways]bool // staging was asked for; guarded by lane.mu
	packs    bool            // some chunks are woven, and packed in staging; guarded by lane.mu

	done   chan struct{} // closed when the result is settled
	result error
	wall   time.Duration
	memory func() // lets go of what promiseMemory has recorded
}

// netUse is a load's side of remotes.
type netUse struct {
	ctx    context.Context // of its requests; nil: no file is remote
	cancel context.CancelFunc
	queued []plan.Chunk // planned, not yet handed over; the planner's
}

// abort ends the requests under way.
func (n *netUse) abort() {
	if n.cancel != nil {
		n.cancel()
	}
}

// Done is closed when the load has ended and no copy of it is queued.
func (t *Load) Done() <-chan struct{} { return t.done }

// Err is the result; it blocks until Done.
func (t *Load) Err() error {
	<-t.done
	return t.result
}

// Progress is how many bytes have been delivered, of how many.
func (t *Load) Progress() (done, total int64) { return t.delivered.Load(), t.total }

// Ready waits until more than known of Request.Parts, counted in their order,
// are final in the destination, or until the load has ended, and tells how
// many are. What it has counted stays as it is, however the load ends. When
// nothing beyond known will come, err is the load's; when ctx ends first, it
// is of kind Cancelled and the load goes on.
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

// inPlace reports whether a chunk is read through the page cache straight into
// its place.
func (t *Load) inPlace(c plan.Chunk) bool {
	return t.port.mapper != nil && !c.Extra && c.Weave == nil
}

// cancelled is the error of a load whose context has ended.
func (t *Load) cancelled(ctx context.Context) error {
	return &errs.Error{Kind: errs.Cancelled, Op: "transfer", Err: context.Cause(ctx),
		Name: t.destination() + " after " + units.Bytes(t.delivered.Load())}
}

// destination names where the bytes go in errors.
func (t *Load) destination() string { return "to " + t.req.Device.Info().ID }

// cancelledAfter gives the error of a cancelled move its final number of bytes.
// What was in flight at the cancellation still arrives, and the report counts it.
// Other errors stay as they are.
func cancelledAfter(err error, op, what string, moved int64) error {
	if e, ok := err.(*errs.Error); ok && e.Kind == errs.Cancelled && e.Op == op {
		out := *e // others may hold e already
		out.Name = what + " after " + units.Bytes(moved)
		return &out
	}
	return err
}
