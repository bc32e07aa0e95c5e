// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

func TestAGPUWithAShareWaitsForNoOther(t *testing.T) {
	path, want := writeFile(t, 3*units.MiB+5, 81)
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	devices := g.OpenAll()
	asked := map[string]int{}
	o := small
	o.Share = func(dev device.Info) (Share, bool) {
		asked[dev.ID]++
		return Share{PoolSize: 2 * units.MiB}, true
	}
	e := newEngine(t, o)
	f := openFile(t, path)
	first, second := alloc(t, devices[0], f.Size()), alloc(t, devices[1], f.Size())
	for _, d := range devices {
		e.Prepare(d)
	}
	e.main.mu.Lock()
	lane := e.lanes[devices[0]]
	e.main.mu.Unlock()
	stream := lane.ports.all[devices[0]].queue.(device.Streamer).Stream()
	g.HoldStream(stream, true)
	held := start(t, e, context.Background(), whole(devices[0], f, first.Ptr(), report.RouteBuffered))
	g.Await("copies_held", 1)
	free := start(t, e, context.Background(), whole(devices[1], f, second.Ptr(), report.RouteBuffered))
	if err := free.Err(); err != nil {
		t.Fatal(err)
	}
	if ended(held) {
		t.Error("the other transfer was not held")
	}
	if err := e.Close(); !errs.Is(err, errs.Invalid) {
		t.Errorf("closed while a transfer runs on a device of its own: %v", err)
	}
	g.HoldStream(stream, false)
	if err := held.Err(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g.Bytes(first.Ptr(), f.Size()), want) || !bytes.Equal(g.Bytes(second.Ptr(), f.Size()), want) {
		t.Fatal("bytes differ")
	}
	if n := free.Report().Engine.StagingSize; n > 2*units.MiB {
		t.Errorf("a share of 2 MiB has %d bytes of staging", n)
	}
	if asked["cuda:0"] != 1 || asked["cuda:1"] != 1 || len(asked) != 2 {
		t.Errorf("asked %v", asked)
	}
	// Writes, small deliveries and host memory work the same way.
	if err := e.Deliver(context.Background(), devices[1], second.Ptr(), []byte("few")); err != nil ||
		string(g.Bytes(second.Ptr(), 3)) != "few" {
		t.Error(err)
	}
	content, src := scattered(t, 9, units.MiB, devices[1], devices[0], host.New())
	p, s := handedOver(t, diskDir(t), units.MiB)
	tr := startWrite(t, e, context.Background(), WriteRequest{Sink: s, Sources: src, Checksums: true})
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	checkSunk(t, p, content, tr.Sums())
	if _, r := load(t, e, host.New(), f, report.RouteAuto, report.CacheBypass); r.Bytes != f.Size() {
		t.Error("host")
	}
	g.CheckIdle()
}

func TestOneGPUHasTheEnginesOwn(t *testing.T) {
	_, d := fakegpu.OpenOne(t)
	o := small
	o.Share = func(device.Info) (Share, bool) { return Share{}, false }
	e := newEngine(t, o)
	if l, err := e.lane(d); l != e.main || err != nil {
		t.Errorf("%p %v, expected the engine itself", l, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	o.Share = func(device.Info) (Share, bool) { return Share{}, true }
	e = newEngine(t, o)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Deliver(context.Background(), d, 1, []byte("x")); !errs.Is(err, errs.Closed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestWorkersStayNearTheirDevice(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Skip(err)
	}
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	o := small
	o.Near = &hostmem.Node{ID: 0, CPUs: []int{cpu}}
	e := newEngine(t, o)
	done := make(chan int)
	e.main.spawn(func() {
		var now unix.CPUSet
		_ = unix.SchedGetaffinity(0, &now)
		done <- now.Count()
	})
	if n := <-done; n != 1 {
		t.Errorf("a worker may run on %d processors, expected 1", n)
	}
	path, want := writeFile(t, units.MiB+5, 82)
	got, r := load(t, e, host.Staged(), openFile(t, path), report.RouteAuto, report.CacheBypass)
	if !bytes.Equal(got, want) || r.Engine.Node == nil || *r.Engine.Node != 0 {
		t.Errorf("node %v", r.Engine.Node)
	}
}

// Settings of servers with much memory: they bound what the engine takes and do
// not make its chunks larger than pays.
func TestLargeSettingsAreBounds(t *testing.T) {
	plain, err := Options{Workers: 10}.tune()
	if err != nil {
		t.Fatal(err)
	}
	large, err := Options{Workers: 10, PoolSize: units.GiB, QueueDepth: 64, MaxTransfer: 256 * units.MiB}.tune()
	if err != nil {
		t.Fatal(err)
	}
	if large.MaxTransfer != plain.MaxTransfer || large.block != plain.block || large.Workers != plain.Workers ||
		large.WriteBlock != plain.WriteBlock || large.WriteDepth != plain.WriteDepth {
		t.Errorf("large %+v, plain %+v", large, plain)
	}
	if large.QueueDepth != 64 || large.directSlots != 128 || large.layout().Size() > 256*units.MiB {
		t.Errorf("queue depth %d, %d slots, %d bytes of staging", large.QueueDepth, large.directSlots, large.layout().Size())
	}
	if large.piece != cuFileChunk {
		t.Errorf("reads of %d through cuFile", large.piece)
	}
}

// TestASmallFirstLoadPinsLess checks that a small load which is the first one pins two slots for each thread, and the
// next load pins the others.
func TestASmallFirstLoadPinsLess(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, Options{Workers: 2, MaxTransfer: DefaultMaxTransfer})
	path, _ := writeFile(t, 1*units.MiB, 7)
	f := openFile(t, path)
	b := alloc(t, d, f.Size())
	for _, ranges := range []int64{2, 3} { // of 4 MiB, two slots each
		if err := start(t, e, t.Context(), whole(d, f, b.Ptr(), report.RouteBuffered)).Err(); err != nil {
			t.Fatal(err)
		}
		g.Await("registered_ranges", ranges)
	}
	k := e.main
	for _, c := range []struct {
		entered int
		total   int64
		want    int
	}{{1, oneGulp - 1, 4}, {1, oneGulp, staging.All}, {2, 1, staging.All}} {
		k.entered = c.entered
		if n := k.slotsFor(&Load{total: c.total}); n != c.want {
			t.Errorf("load %d with %d bytes: %d slots, expected %d", c.entered, c.total, n, c.want)
		}
	}
}
