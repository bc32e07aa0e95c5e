// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

func TestCountersAddUpWhatHasEnded(t *testing.T) {
	const size = 2 * units.MiB
	path, _ := writeFile(t, size, 91)
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	devices := g.OpenAll()
	o := small
	o.Share = func(dev device.Info) (Share, bool) { return Share{}, dev.ID == "cuda:1" }
	e := newEngine(t, o)
	f := openFile(t, path)
	if c := e.Counters(); c.Ended != 0 || len(c.Routes) != 0 || c.Routes == nil {
		t.Errorf("before: %+v", c)
	}
	route := func(dev, direction string, r report.RouteTaken) (n int64) {
		for _, x := range e.Counters().Routes {
			if x.Device == dev && x.Direction == direction && x.Route == r {
				n += x.Bytes
			}
		}
		return n
	}
	stage := func(dev, direction, name string) (n int64) {
		for _, x := range e.Counters().Stages {
			if x.Device == dev && x.Direction == direction && x.Stage == name {
				n += x.Bytes
			}
		}
		return n
	}
	if _, err := f.ReadAt(make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		loadGPU(t, g, e, devices[0], f, report.RouteBuffered)
	}
	loadGPU(t, g, e, devices[1], f, report.RouteBuffered)
	r, _ := withPeers(t, f, devices...)
	if err := start(t, e, context.Background(), r).Err(); err != nil {
		t.Fatal(err)
	}
	b := alloc(t, devices[1], 100)
	if err := e.Deliver(context.Background(), devices[1], b.Ptr(), make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	_, src := scattered(t, 3, units.MiB, devices[0])
	_, s := handedOver(t, diskDir(t), units.MiB)
	if err := startWrite(t, e, context.Background(), WriteRequest{Sink: s, Sources: src, Route: report.RouteBuffered, Checksums: true}).Err(); err != nil {
		t.Fatal(err)
	}
	h := alloc(t, host.New(), size)
	bad := whole(host.New(), f, h.Ptr(), report.RouteBuffered)
	bad.Verify = []*checksum.Sums{{Size: size, Block: size, Blocks: []uint64{1}}}
	if err := start(t, e, context.Background(), bad).Err(); !errs.Is(err, errs.Corrupt) {
		t.Fatal(err)
	}
	c := e.Counters()
	if c.Ended != 6 || c.Failed != 1 || c.Running != 0 {
		t.Errorf("%+v", c)
	}
	for what, got := range map[string][2]int64{
		"cuda:0 from the cache": {route("cuda:0", "load", report.RouteTakenCache), 3 * size},
		"cuda:1 from the cache": {route("cuda:1", "load", report.RouteTakenCache), size},
		"cuda:1 from its peer":  {route("cuda:1", "load", RouteTakenPeerP2P), size},
		"cuda:1 by socket":      {route("cuda:1", "load", RouteTakenSocket), 100},
		"cuda:0 saved":          {route("cuda:0", "save", report.RouteTakenBuffered), units.MiB},
		"cuda:0 copied":         {stage("cuda:0", "load", "copy"), 3 * size},
		"cuda:0 summed":         {stage("cuda:0", "save", "checksum"), units.MiB},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d bytes, expected %d", what, got[0], got[1])
		}
	}
}
