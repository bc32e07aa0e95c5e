// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// TestReportsAreObserved: each message with reports is one event, with the object and the labels of metrics.
func TestReportsAreObserved(t *testing.T) {
	events := make(chan Event, 4)
	d := serve(t, func(o *Options) { o.Observe = func(e Event) { events <- e } })
	d.store.put("b", "big", random(1<<20))
	c := d.login()
	items, _ := c.open(wire.WantBuffered, item("big"))
	if r, _ := c.ask(&wire.Close{Handles: []uint64{items[0].Handle}, Reports: []wire.Report{{Device: "cuda:0",
		Route: "made-up", Stage: "total", Bytes: 100, Time: 1e9}}}); r.Type() != wire.TypeAck {
		t.Fatalf("%+v", r)
	}
	e := <-events
	if e.Bucket != "b" || e.Key != "big" || e.Objects != 1 || e.Committed || e.Account == "" || e.Peer.PID == 0 ||
		len(e.Reports) != 1 || e.Reports[0].Route != Other || e.Reports[0].Bytes != 100 {
		t.Errorf("%+v", e)
	}
	if r, _ := c.ask(&wire.Close{Reports: []wire.Report{{Stage: "total", Bytes: -1}}}); r.Type() == wire.TypeAck {
		t.Errorf("%+v", r)
	}
	if r, _ := c.ask(&wire.Close{Reports: []wire.Report{{Stage: "total", Bytes: 7, Route: "socket"}}}); r.Type() !=
		wire.TypeAck {
		t.Errorf("%+v", r)
	}
	if e := <-events; e.Bucket != "" || e.Objects != 0 || e.Reports[0].Bytes != 7 {
		t.Errorf("a report that was refused, or an object: %+v", e)
	}
}
