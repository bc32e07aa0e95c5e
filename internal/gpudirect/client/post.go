// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/report"
)

// post collects messages that are sent to the server in the background: closed handles and reports of moved bytes.
type post struct {
	mu      sync.Mutex
	handles map[*conn][]uint64
	moved   map[movedBy]moved
	wake    chan struct{}
	flush   chan flushing
	gather  atomic.Int64 // gatherFor in nanoseconds; tests have a longer time
}

// flushing is a request to send the collected messages now.
type flushing struct {
	all  bool          // send also what waits for a commit
	done chan struct{} // closed when the server has answered
}

// movedBy is the key by which reports are added up. A process has only a few of them.
type movedBy struct {
	write                bool
	device, route, stage string
}

type moved struct {
	bytes int64
	time  time.Duration
}

// maxMoved is the largest number of totals that wait to be sent. One message has room for this many.
const maxMoved = wire.MaxReports

// letGo asks the server, in the background, to close a handle.
func (d *door) letGo(h *handle) {
	h.c.held.Add(-1)
	if h.c.dead.Load() {
		return
	}
	d.post.mu.Lock()
	if d.post.handles == nil {
		d.post.handles = map[*conn][]uint64{}
	}
	d.post.handles[h.c] = append(d.post.handles[h.c], h.id)
	d.post.mu.Unlock()
	d.nudge()
}

func (d *door) nudge() {
	select {
	case d.post.wake <- struct{}{}:
	default:
	}
}

// count adds to the totals of moved bytes. They are sent with the next closed handle, after tellEvery, or when the
// client is closed.
func (d *door) count(by movedBy, bytes int64, t time.Duration) {
	d.post.mu.Lock()
	defer d.post.mu.Unlock()
	if d.post.moved == nil {
		d.post.moved = map[movedBy]moved{}
	}
	m, ok := d.post.moved[by]
	if !ok && len(d.post.moved) >= maxMoved {
		return
	}
	d.post.moved[by] = moved{m.bytes + bytes, m.time + t}
}

// countReport adds the engine's report of a transfer to the totals. All times are wall-clock times, so that no stage
// takes longer than the total.
func (d *door) countReport(r *report.Report, write bool) {
	for by, m := range movedOf(r, write) {
		d.count(by, m.bytes, m.time)
	}
}

// movedOf converts a report to the totals that the server counts: one for each route, and one for each kind of stage.
// If a transfer took several routes, its time is divided among them by their bytes. Stages of one kind overlap, so
// their time is at most the whole time.
func movedOf(r *report.Report, write bool) map[movedBy]moved {
	all := map[movedBy]moved{}
	var bytes int64
	for _, x := range r.Routes {
		bytes += x.Bytes
	}
	for _, x := range r.Routes {
		share := 0.0
		if bytes > 0 {
			share = float64(x.Bytes) / float64(bytes)
		}
		all[movedBy{write, r.Device.ID, string(x.Route), "total"}] = moved{x.Bytes, seconds(r.Seconds * share)}
	}
	for _, s := range r.Stages {
		if name := stageOf(s.Stage); name != "" {
			by := movedBy{write, r.Device.ID, "", name}
			// Busy adds up all threads, and would exceed the elapsed time.
			all[by] = moved{all[by].bytes + s.Bytes, min(all[by].time+seconds(s.Span), seconds(r.Seconds))}
		}
	}
	return all
}

// stageOf returns the name of a stage in the server's metrics, or "" for a stage that moves nothing.
func stageOf(stage string) string {
	switch {
	case strings.HasPrefix(stage, "read"), stage == "network":
		return "read"
	case stage == "copy", stage == "deliver":
		return "copy"
	case stage == "verify", stage == "checksum":
		return "verify"
	case stage == "write":
		return "write"
	}
	return ""
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// gatherFor is the time for which closed handles are collected before they are sent. A batch closes its handles one
// after the other, and a message for each of them would keep the connections busy that open the next objects.
const gatherFor = 500 * time.Microsecond

// tellEvery is the longest time that reports of inline bytes wait to be sent.
const tellEvery = time.Second

// deliver sends the collected messages until the door is closed and all are sent.
func (d *door) deliver() {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var gathered <-chan time.Time // nil while no handle waits
	for {
		select {
		case <-d.post.wake:
			if gathered == nil {
				gathered = time.After(time.Duration(d.post.gather.Load()))
			}
			continue
		case <-gathered:
			gathered = nil
		case <-tick.C:
		case f := <-d.post.flush:
			gathered = nil
			d.tell(f.all)
			close(f.done)
			continue
		case <-d.quit:
			d.tell(true)
			return
		}
		d.tell(false)
	}
}

// flush sends the collected messages now, and waits until the server has closed their handles. If all is false, flush
// does not send messages that wait for a commit. The messages are sent even if the context ends before the reply.
func (d *door) flush(ctx context.Context, all bool) error {
	f := flushing{all, make(chan struct{})}
	select {
	case d.post.flush <- f:
	case <-d.quit:
		return nil
	case <-ctx.Done():
		return errs.Wrap("use door", d.path, context.Cause(ctx))
	}
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return errs.Wrap("use door", d.path, context.Cause(ctx))
	}
}

// tell sends the collected messages. If a commit keeps a connection busy, messages for it wait until the commit is
// over, so that other handles are not delayed. The last call does not postpone them.
func (d *door) tell(last bool) {
	d.post.mu.Lock()
	handles, sums := d.post.handles, d.post.moved
	d.post.handles, d.post.moved = nil, nil
	for c, ids := range handles {
		if !last && c.slow.Load() > 0 && !c.dead.Load() {
			if d.post.handles == nil {
				d.post.handles = map[*conn][]uint64{}
			}
			d.post.handles[c] = ids
			delete(handles, c)
		}
	}
	d.post.mu.Unlock()
	var reports []wire.Report
	for by, m := range sums {
		reports = append(reports, wire.Report{Write: by.write, Device: by.device, Route: by.route, Stage: by.stage,
			Bytes: m.bytes, Time: m.time})
	}
	for c, ids := range handles {
		for len(ids) > 0 {
			n := min(len(ids), wire.MaxItems)
			if d.askOn(context.Background(), c, asking{op: "let go", name: d.path,
				req: &wire.Close{Handles: ids[:n], Reports: reports}}) != nil {
				break // the connection is lost, so the server has closed its handles
			}
			ids, reports = ids[n:], nil
		}
	}
	if len(reports) == 0 {
		return
	}
	d.mu.Lock()
	all := append([]*conn(nil), d.conns...)
	d.mu.Unlock()
	for _, c := range all {
		if !last && c.slow.Load() > 0 {
			continue
		}
		if d.askOn(context.Background(), c, asking{op: "report", name: d.path, req: &wire.Close{Reports: reports}}) == nil {
			return
		}
	}
}
