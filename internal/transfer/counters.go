// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/tally"
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

// end adds a transfer that has ended. cufile is the route of what libcufile moved.
func (o *totals) end(device, direction string, err error, s *tally.Sums, cufile report.RouteTaken, stages []report.Stage) {
	o.mu.Lock()
	if o.ended++; err != nil {
		o.failed++
	}
	for _, x := range stages {
		add(&o.stages, counted{device, direction, x.Stage}, x.Bytes, x.Busy)
	}
	o.mu.Unlock()
	for r, a := range s.Routes {
		o.route(device, direction, r, a.Bytes, a.Busy)
	}
	o.route(device, direction, cufile, s.CuFile.Bytes, s.CuFile.Busy)
}

func (o *totals) route(device, direction string, r report.RouteTaken, bytes int64, busy time.Duration) {
	if bytes == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	add(&o.routes, counted{device, direction, string(r)}, bytes, busy.Seconds())
}

func add(to *map[counted]sum, k counted, bytes int64, seconds float64) {
	if *to == nil {
		*to = map[counted]sum{}
	}
	v := (*to)[k]
	(*to)[k] = sum{v.bytes + bytes, v.seconds + seconds}
}

// collect adds what o has counted to c.
func (o *totals) collect(c *Counters) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.Ended, c.Failed = c.Ended+o.ended, c.Failed+o.failed
	for k, v := range o.routes {
		c.Routes = append(c.Routes, RouteCount{k.device, k.direction, report.RouteTaken(k.name), v.bytes, v.seconds})
	}
	for k, v := range o.stages {
		c.Stages = append(c.Stages, StageCount{k.device, k.direction, k.name, v.bytes, v.seconds})
	}
}

// sort orders the counts by device, direction and name.
func (c *Counters) sort() {
	slices.SortFunc(c.Routes, func(a, b RouteCount) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Route, b.Route))
	})
	slices.SortFunc(c.Stages, func(a, b StageCount) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Stage, b.Stage))
	})
}
