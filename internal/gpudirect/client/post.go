// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/report"
)

// post is what the server is told without anybody waiting for it: handles that
// were let go, and what was moved.
type post struct {
	mu      sync.Mutex
	handles map[*conn][]uint64
	moved   map[movedBy]moved
	wake    chan struct{}
}

// movedBy is what reports are added up by; a process has a handful of them.
type movedBy struct {
	write                bool
	device, route, stage string
}

type moved struct {
	bytes int64
	time  time.Duration
}

// maxMoved bounds the sums that wait; a message has room for so many.
const maxMoved = wire.MaxReports

// letGo tells the server, soon, that a handle is not needed any more.
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

// count adds to what the server will be told of bytes that were moved. It goes
// with the next handle that is let go, or when the client is closed.
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

// countReport adds what the engine says of a transfer. All times are of the
// clock on the wall, so that no stage takes longer than the total.
func (d *door) countReport(r *report.Report, write bool) {
	for by, m := range movedOf(r, write) {
		d.count(by, m.bytes, m.time)
	}
}

// movedOf is a report as the server counts it: the total of each route, and each
// kind of stage. The time of a transfer that took several routes is shared among
// them by their bytes. Stages of one kind overlap: they take the whole time at most.
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
			// Busy would add up all threads, and exceed the time that passed.
			all[by] = moved{all[by].bytes + s.Bytes, min(all[by].time+seconds(s.Span), seconds(r.Seconds))}
		}
	}
	return all
}

// stageOf is a stage of the engine's reports by the name that the server's
// metrics have for its kind; empty for one that moves nothing.
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

// tellEvery is how long bytes that came inline may wait to be told of.
const tellEvery = time.Second

// deliver tells the server, until the door is closed and everything was said.
func (d *door) deliver() {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.post.wake:
		case <-tick.C:
		case <-d.quit:
			d.tell(true)
			return
		}
		d.tell(false)
	}
}

// tell sends what has gathered. But for the last time, what goes over a
// connection that a commit keeps waits until it is over: the others' handles must not wait with it.
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
				break // with the connection the server has let go of everything
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
