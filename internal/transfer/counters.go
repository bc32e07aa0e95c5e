// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/report"
)

// RouteTakenSocket: the bytes came inside a message and were delivered from
// memory; see Engine.Deliver.
const RouteTakenSocket report.RouteTaken = "socket"

// Routes of bytes that one device handed to another, or that were copied to it
// from the other's staging slots.
const (
	RouteTakenPeerP2P     report.RouteTaken = "peer_" + PeerP2P
	RouteTakenPeerStaging report.RouteTaken = "peer_" + PeerStaging
	RouteTakenPeerMemory  report.RouteTaken = "peer_" + PeerMemory
)

// Counters are what an engine has done since it was made: transfers that have
// ended, however they ended. It is plain data, the same in every language.
type Counters struct {
	Running int          `json:"running"` // transfers under way
	Ended   int64        `json:"ended"`
	Failed  int64        `json:"failed"` // of the ended ones, cancelled ones included
	Routes  []RouteCount `json:"routes"`
	Stages  []StageCount `json:"stages"`
}

// RouteCount is what went one way from or to one device.
type RouteCount struct {
	Device    string            `json:"device"`
	Direction string            `json:"direction"` // "load" or "save"
	Route     report.RouteTaken `json:"route"`
	Bytes     int64             `json:"bytes"`
	Seconds   float64           `json:"seconds"` // of all threads together
}

// StageCount is what one stage took for one device.
type StageCount struct {
	Device    string  `json:"device"`
	Direction string  `json:"direction"`
	Stage     string  `json:"stage"`
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"` // of all threads together
}

// counted is the key of a count.
type counted struct{ device, direction, name string }

// sum is a count.
type sum struct {
	bytes   int64
	seconds float64
}

// totals add up ended transfers. The zero value is ready.
type totals struct {
	mu            sync.Mutex
	ended, failed int64
	routes        map[counted]sum
	stages        map[counted]sum
}

func (o *totals) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended++; err != nil {
		o.failed++
	}
}

func (o *totals) route(device, direction string, r report.RouteTaken, bytes int64, busy time.Duration) {
	if bytes == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	add(&o.routes, counted{device, direction, string(r)}, bytes, busy.Seconds())
}

func (o *totals) stage(device, direction string, s report.Stage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	add(&o.stages, counted{device, direction, s.Stage}, s.Bytes, s.Busy)
}

func add(to *map[counted]sum, k counted, bytes int64, seconds float64) {
	if *to == nil {
		*to = map[counted]sum{}
	}
	v := (*to)[k]
	(*to)[k] = sum{v.bytes + bytes, v.seconds + seconds}
}

// Counters are those of the engine and of all devices with a share of their own.
func (e *Engine) Counters() Counters {
	e.mu.Lock()
	c := Counters{Running: e.busy(), Routes: []RouteCount{}, Stages: []StageCount{}}
	all := []*Engine{e}
	for _, l := range e.lanes {
		if l != e {
			all = append(all, l)
		}
	}
	e.mu.Unlock()
	for _, l := range all {
		l.totals.mu.Lock()
		c.Ended, c.Failed = c.Ended+l.totals.ended, c.Failed+l.totals.failed
		for k, v := range l.totals.routes {
			c.Routes = append(c.Routes, RouteCount{k.device, k.direction, report.RouteTaken(k.name), v.bytes, v.seconds})
		}
		for k, v := range l.totals.stages {
			c.Stages = append(c.Stages, StageCount{k.device, k.direction, k.name, v.bytes, v.seconds})
		}
		l.totals.mu.Unlock()
	}
	slices.SortFunc(c.Routes, func(a, b RouteCount) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Route, b.Route))
	})
	slices.SortFunc(c.Stages, func(a, b StageCount) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Stage, b.Stage))
	})
	return c
}

// count adds an ended load or save to the engine's totals. Its result is settled.
func (t *Transfer) count() {
	o, y := &t.e.totals, &t.tally
	o.end(t.result)
	device, direction := "", "load"
	if t.save != nil {
		device, direction = t.save.devices(), "save"
	} else {
		device = t.req.Device.Info().ID
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	stages := y.stages
	if t.save != nil {
		stages = t.saveStages
	}
	for name, a := range y.routes {
		if name == routeCuFile {
			name = taken(t.save.cu.counts.Known, t.save.cu.counts.Writes)
		}
		o.route(device, direction, name, a.bytes, a.busy)
	}
	o.route(device, direction, taken(t.cu.counters.Known, t.cu.counters.Reads.Plus(t.cu.counters.Batch)), y.cufile.bytes, y.cufile.busy)
	for _, s := range stages() {
		o.stage(device, direction, s)
	}
	for _, p := range t.peers {
		o.route(p.Device.Info().ID, direction, report.RouteTaken("peer_"+t.wayTo(p)), p.bytes.Load(), 0)
	}
}

// count adds an ended write in place.
func (p *Put) count() {
	o, device := &p.e.totals, p.req.Device.Info().ID
	o.end(p.err)
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, a := range p.routes {
		o.route(device, "save", name, a.bytes, a.busy)
	}
	o.stage(device, "save", report.Stage{Stage: "copy", Busy: p.copying.busy.Seconds(), Bytes: p.copying.bytes})
}

// count adds an ended upload.
func (u *Upload) count() {
	o, device := &u.e.totals, u.what.devices()
	o.end(u.err)
	u.mu.Lock()
	defer u.mu.Unlock()
	o.route(device, "save", report.RouteTakenNetwork, u.sent.Load(), u.sending.busy)
	o.stage(device, "save", report.Stage{Stage: "copy", Busy: u.copying.busy.Seconds(), Bytes: u.copying.bytes})
}
