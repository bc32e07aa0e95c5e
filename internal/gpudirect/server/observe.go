// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// Event describes the transfers of objects that a client has reported in one message.
type Event struct {
	Account string // access key of the client
	Peer    Peer
	// Bucket and Key name the first object of the message, and Objects is the number of objects. If the client closed no
	// object with its reports, Bucket and Key are empty and Objects is 0.
	Bucket, Key string
	Objects     int
	// Committed is true if the message committed a new object.
	Committed bool
	// Reports has at least one entry. The names of routes, devices and stages are those of metric labels.
	Reports []wire.Report
}

// observe tells Options.Observe about the reports of a message. The event has no references to the message.
func observe(c *conn, e Event, reports []wire.Report) {
	if c.s.opts.Observe == nil || len(reports) == 0 {
		return
	}
	e.Account, e.Peer, e.Reports = c.account, c.peer, slices.Clone(reports)
	for i := range e.Reports {
		r := &e.Reports[i]
		r.Route, r.Device, r.Stage = routeLabel(r.Route), deviceLabel(r.Device), stageLabel(r.Stage)
	}
	c.s.opts.Observe(e)
}

// objectsOf returns an event with the first of the objects that a client has open under the given handles.
func objectsOf(c *conn, handles []uint64) Event {
	var e Event
	for _, id := range handles {
		h, ok := c.held[id]
		if !ok {
			continue
		}
		if e.Objects++; e.Objects == 1 {
			info := h.Info()
			e.Bucket, e.Key = info.Bucket, info.Key
		}
	}
	return e
}
