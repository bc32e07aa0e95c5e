// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/report"
)

// small makes many chunks of little data, so that every slot is used again.
var small = Options{PoolSize: 4 * units.MiB, MaxTransfer: 64 * units.KiB, Workers: 3, QueueDepth: 4, Poison: true}

// whole is the request for one file in one piece.
func whole(d device.Device, f *vfs.File, dst device.Ptr, route report.Route) Request {
	return Request{Device: d, Files: []*vfs.File{f}, Route: route, Cache: report.CacheBypass,
		Segments: []Segment{{Len: f.Size(), Dst: dst}}}
}

func start(t *testing.T, e *Engine, ctx context.Context, r Request) *Load {
	t.Helper()
	tr, err := e.Start(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// loadGPU moves one whole file to the fake GPU.
func loadGPU(t *testing.T, g *fakegpu.GPU, e *Engine, d device.Device, f *vfs.File, route report.Route) ([]byte,
	report.Report) {
	t.Helper()
	b := alloc(t, d, f.Size())
	tr := start(t, e, context.Background(), whole(d, f, b.Ptr(), route))
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	return g.Bytes(b.Ptr(), f.Size()), tr.Report()
}

// gpuAndFile opens a fake GPU, an engine with small chunks and a file of size random bytes.
func gpuAndFile(t *testing.T, size int64, seed uint64) (*fakegpu.GPU, device.Device, *Engine, *vfs.File, []byte) {
	t.Helper()
	path, want := writeFile(t, size, seed)
	g, d := fakegpu.OpenOne(t)
	return g, d, newEngine(t, small), openFile(t, path), want
}

// moving is a load or a save.
type moving interface {
	Done() <-chan struct{}
	Err() error
}

// waitFailed returns when the transfer has an error; it may still have copies
// under way.
func waitFailed(tr moving) {
	for !hasFailed(tr) {
		runtime.Gosched()
	}
}

func hasFailed(tr moving) bool {
	switch t := tr.(type) {
	case *Load:
		return t.e.sched.hasFailed(&t.task)
	case *Save:
		return t.e.sched.hasFailed(&t.task)
	}
	panic("neither a load nor a save")
}

func ended(tr moving) bool {
	select {
	case <-tr.Done():
		return true
	default:
		return false
	}
}

// engineOfBroken makes an engine for a device that the test breaks, so that Close may fail.
func engineOfBroken(t *testing.T, o Options) *Engine {
	t.Helper()
	o.Poison = false
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// releaseStream lets the caller's stream go on. The transfer must wait for the stream, and then end well.
func releaseStream(t *testing.T, g *fakegpu.GPU, stream uint64, tr moving) {
	t.Helper()
	g.Await("waiting_for_event", 1)
	if ended(tr) {
		t.Error("the transfer ended before the caller's own work")
	}
	g.HoldStream(stream, false)
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestGPUWarmColdAndHalf(t *testing.T) {
	path, want := writeFile(t, 5*units.MiB+1234, 21)
	for name, opts := range engines() {
		t.Run(name, func(t *testing.T) {
			g, d := fakegpu.OpenOne(t)
			e := newEngine(t, opts)
			f := openFile(t, path)
			requireDirect(t, f)

			dropped(t, f)
			got, r := loadGPU(t, g, e, d, f, report.RouteAuto)
			if !bytes.Equal(got, want) {
				t.Fatal("cold: bytes differ")
			}
			if n := routeBytes(r, report.RouteTakenDirect); n != f.Size() {
				t.Fatalf("cold: %d of %d bytes were direct: %+v", n, f.Size(), r.Routes)
			}

			release := vfstest.Hold(t, path, 0, f.Size())
			got, r = loadGPU(t, g, e, d, f, report.RouteAuto)
			release()
			if !bytes.Equal(got, want) {
				t.Fatal("warm: bytes differ")
			}
			if n := routeBytes(r, report.RouteTakenCache); n != f.Size() {
				t.Fatalf("warm: %d of %d bytes came from the page cache: %+v", n, f.Size(), r.Routes)
			}

			dropped(t, f)
			release = vfstest.Hold(t, path, 0, 2*units.MiB)
			got, r = loadGPU(t, g, e, d, f, report.RouteAuto)
			release()
			if !bytes.Equal(got, want) {
				t.Fatal("half: bytes differ")
			}
			if c, n := routeBytes(r, report.RouteTakenCache), routeBytes(r, report.RouteTakenDirect); c != 2*units.MiB ||
				n != f.Size()-c {
				t.Fatalf("half: %d cached and %d direct of %d", c, n, f.Size())
			}

			if r.Device.ID != "cuda:0" || r.Device.Kind != report.CUDADevice || r.Engine.StagingState != "pinned" ||
				!r.Engine.StagingUsed {
				t.Errorf("report: %+v %+v", r.Device, r.Engine)
			}
			g.CheckPinned()
			if n := g.Count("bytes_in"); n != 3*f.Size() {
				t.Errorf("%d bytes were copied, expected each byte once: %d", n, 3*f.Size())
			}
			g.CheckIdle()
		})
	}
}

func TestGPUSegmentsAtOddOffsets(t *testing.T) {
	path, want := writeFile(t, 2*units.MiB+77, 22)
	rng := rand.New(rand.NewPCG(3, 9))
	for _, route := range []report.Route{report.RouteAuto, report.RouteBuffered, report.RouteDirect} {
		t.Run(string(route), func(t *testing.T) {
			g, d := fakegpu.OpenOne(t)
			e := newEngine(t, small)
			f := openFile(t, path)
			requireDirect(t, f)
			dropped(t, f)
			b := alloc(t, d, 3*f.Size())
			segs := drawSegments(rng, f.Size(), 150_000, b.Ptr()+1, 300)
			r := whole(d, f, 0, route)
			r.Segments = segs
			if err := start(t, e, context.Background(), r).Err(); err != nil {
				t.Fatal(err)
			}
			untouched := int64(0)
			for i, s := range segs {
				if !bytes.Equal(g.Bytes(s.Dst, s.Len), want[s.Off:s.Off+s.Len]) {
					t.Fatalf("segment %d at %d+%d differs", i, s.Off, s.Len)
				}
				lo := int64(s.Dst - b.Ptr())
				for _, x := range g.Bytes(b.Ptr()+device.Ptr(untouched), lo-untouched) {
					if x != 0xee {
						t.Fatalf("a byte before segment %d was written", i)
					}
				}
				untouched = lo + s.Len
			}
			g.CheckIdle()
		})
	}
}

// failing is a transfer that will not succeed, and what is around it.
type failing struct {
	g    *fakegpu.GPU
	d    device.Device
	e    *Engine
	f    *vfs.File
	b    device.Buffer
	tr   *Load
	want []byte
}

// reader is a way to read a file.
type reader struct {
	io    IO
	route report.Route
}

// ways to read, so that each meets each failure.
var readers = map[string]reader{
	"page cache":       {IOPread, report.RouteBuffered},
	"direct, threads":  {IOPread, report.RouteDirect},
	"direct, io_uring": {IOUring, report.RouteDirect},
}

// by runs the engine with this way to read.
func (r reader) by(o Options) Options {
	o.IO = r.io
	return o
}

// onEachReader runs a test for each way to read the file and each kind of driver, each with a fake GPU of its own.
func onEachReader(t *testing.T, path string, run func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader)) {
	t.Helper()
	for name, reader := range readers {
		for kind, without := range fakegpu.OldDrivers() {
			t.Run(strings.Trim(name+", "+kind, ", "), func(t *testing.T) {
				f := openFile(t, path)
				requireDirect(t, f)
				run(t, fakegpu.Build(t, fakegpu.Options{Without: without}), f, reader)
			})
		}
	}
}

// newFailing has all but the transfer. The test closes the engine.
func newFailing(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) failing {
	t.Helper()
	d := g.Open("cuda:0")
	seen := newRecorder()
	t.Cleanup(func() { seen.check(t) })
	o := by.by(small)
	o.Trace = seen
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return failing{g: g, d: d, f: f, e: e, b: alloc(t, d, f.Size())}
}

func eachReader(t *testing.T, prepare func(g *fakegpu.GPU), check func(t *testing.T, x failing)) {
	path, want := writeFile(t, 5*units.MiB, 23)
	onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
		x := newFailing(t, g, f, by)
		x.want = want
		prepare(g)
		x.tr = start(t, x.e, context.Background(), whole(x.d, f, x.b.Ptr(), by.route))
		check(t, x)
	})
}

// cancelHeld cancels a transfer while g holds its copies back, and then releases them. The transfer may not end before.
func cancelHeld(t *testing.T, g *fakegpu.GPU, tr moving, cancel func()) {
	t.Helper()
	g.Await("copies_held", 1)
	cancel()
	waitFailed(tr)
	if ended(tr) {
		t.Error("Done is closed with copies in flight")
	}
	g.Release()
}

// checkOver fails the test unless the transfer has really ended: nothing is
// queued, and nothing changes in the destination any more.
func (x failing) checkOver(t *testing.T) {
	t.Helper()
	<-x.tr.Done()
	if n := x.g.Count("copies_in_flight"); n != 0 {
		t.Errorf("Done is closed with %d copies in flight", n)
	}
	at := slices.Clone(x.g.Bytes(x.b.Ptr(), x.f.Size()))
	if err := x.e.Close(); err != nil && x.g.Count("copies_failed") == 0 {
		t.Errorf("close engine: %v", err)
	}
	if !bytes.Equal(at, x.g.Bytes(x.b.Ptr(), x.f.Size())) {
		t.Error("the destination was written after Done")
	}
}

func (x failing) checkNamed(t *testing.T, call string) {
	t.Helper()
	err := x.tr.Err()
	if !errs.Is(err, errs.Device) {
		t.Fatalf("got %v, of kind %v", err, errs.KindOf(err))
	}
	for _, part := range []string{x.f.Path(), "from offset ", "cuda:0", call, "CUDA_ERROR_LAUNCH_FAILED (719)"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %q: %v", part, err)
		}
	}
	if r := x.tr.Report(); r.Error != err.Error() {
		t.Errorf("the report's error is %q", r.Error)
	}
}

func TestGPUACopyThatCannotBeQueued(t *testing.T) {
	for _, skip := range []int{0, 5, 47} {
		t.Run(fmt.Sprint(skip), func(t *testing.T) {
			eachReader(t, func(g *fakegpu.GPU) { g.Fail(fakegpu.CopyToDevice, skip, 1000, fakegpu.LaunchFailed) },
				func(t *testing.T, x failing) {
					x.checkNamed(t, "cuMemcpy")
					x.checkOver(t)
					x.g.CheckIdle()
				})
		})
	}
}

func TestGPUAFailedTransferWaitsForItsOtherCopies(t *testing.T) {
	eachReader(t, func(g *fakegpu.GPU) {
		g.Hold(0)
		// Every later copy fails: a worker whose first copy is held does not see that its second one failed.
		g.Fail(fakegpu.CopyToDevice, 1, 1000, fakegpu.LaunchFailed)
	}, func(t *testing.T, x failing) {
		waitFailed(x.tr)
		if n := x.g.Count("copies_in_flight"); n == 0 {
			t.Error("no copy is in flight: the test shows nothing")
		}
		if ended(x.tr) {
			t.Error("Done is closed with copies in flight")
		}
		x.g.Release()
		x.checkOver(t)
	})
}

func TestGPUACopyThatFailsLater(t *testing.T) {
	for _, nth := range []int{1, 7, 48} {
		t.Run(fmt.Sprint(nth), func(t *testing.T) {
			eachReader(t, fakegpu.FailingCopy(nth, fakegpu.LaunchFailed, false),
				func(t *testing.T, x failing) {
					x.checkNamed(t, "cuEvent")
					x.checkOver(t)
					x.g.CheckIdle()
				})
		})
	}
}

// A sticky error ends the CUDA context: every later call fails, and still
// everything is given back.
func TestGPUAContextThatBreaks(t *testing.T) {
	eachReader(t, fakegpu.FailingCopy(5, fakegpu.LaunchFailed, true),
		func(t *testing.T, x failing) {
			x.checkNamed(t, "cu")
			x.checkOver(t)
			if err := errors.Join(x.b.Free(), x.d.Close()); err == nil {
				t.Error("a broken context freed memory without an error")
			}
			x.g.CheckFreed()
		})
}

// A wait can fail before the copy that it waits for is done; the copy then still
// has to be waited for, with all others of the queue.
func TestGPUAWaitThatFailsDoesNotLetItsCopyGo(t *testing.T) {
	path, _ := writeFile(t, 32*units.KiB, 34) // one copy
	onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
		x := newFailing(t, g, f, by)
		g.Hold(0)
		g.Fail("cuEventSynchronize", 0, 1_000_000, fakegpu.LaunchFailed)
		g.Fail("cuEventQuery", 0, 1_000_000, fakegpu.LaunchFailed)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			g.Await("drains", 1)
			g.Release()
		})
		x.tr = start(t, x.e, context.Background(), whole(x.d, x.f, x.b.Ptr(), by.route))
		<-x.tr.Done()
		if n := g.Count("copies_in_flight"); n != 0 {
			t.Errorf("Done is closed with %d copies in flight", n)
		}
		g.Release()
		x.checkNamed(t, "cuEvent")
		x.checkOver(t)
	})
}

func TestGPUMarksThatCannotBeMadeOrRecorded(t *testing.T) {
	for fn, skip := range map[string]int{"cuEventCreate": 0, "cuEventRecord": 3} {
		t.Run(fn, func(t *testing.T) {
			eachReader(t, fakegpu.FailingCall(fn, skip, fakegpu.LaunchFailed),
				func(t *testing.T, x failing) {
					x.checkNamed(t, fn)
					x.checkOver(t)
				})
		})
	}
}

func TestGPUAFailedTransferLeavesTheOthersAlone(t *testing.T) {
	g, d, e, f, want := gpuAndFile(t, 2*units.MiB, 24)
	good, bad := alloc(t, d, f.Size()), alloc(t, d, f.Size()-1)
	g.Hold(0)
	a := start(t, e, context.Background(), whole(d, f, good.Ptr(), report.RouteBuffered))
	b := start(t, e, context.Background(), whole(d, f, bad.Ptr(), report.RouteBuffered)) // its last byte lies outside
	g.Release()
	if err := b.Err(); !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), "CUDA_ERROR_INVALID_VALUE") {
		t.Errorf("a copy outside the allocation: %v", err)
	}
	if err := a.Err(); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(g.Bytes(good.Ptr(), f.Size()), want) {
		t.Error("bytes differ")
	}
	got, _ := loadGPU(t, g, e, d, f, report.RouteBuffered)
	if !bytes.Equal(got, want) {
		t.Error("the engine does not work after a failed transfer")
	}
	g.CheckIdle()
}

func TestGPUStagingThatCannotBePinnedStillWorks(t *testing.T) {
	g, d, e, f, want := gpuAndFile(t, 2*units.MiB, 25)
	g.Fail("cuMemHostRegister_v2", 0, 1000, fakegpu.OutOfMemory)
	got, r := loadGPU(t, g, e, d, f, report.RouteBuffered)
	if !bytes.Equal(got, want) {
		t.Fatal("bytes differ")
	}
	if r.Engine.StagingState != "not pinned" {
		t.Errorf("staging is %q", r.Engine.StagingState)
	}
	var found bool
	for _, x := range r.Refusals {
		if x.What == "pinned staging" {
			found = true
			if x.On != "cuda:0" || !strings.Contains(x.Reason, "cuMemHostRegister") ||
				!strings.Contains(x.Reason, "CUDA_ERROR_OUT_OF_MEMORY") || !strings.Contains(x.Fix, "buffer_pool_size") {
				t.Errorf("refusal: %+v", x)
			}
		}
	}
	if !found {
		t.Errorf("the report does not say that staging is not pinned: %+v", r.Refusals)
	}
	if g.Count("pageable_copies") == 0 {
		t.Error("the fake driver saw no pageable copy: the test shows nothing")
	}
	g.CheckIdle()
}

func TestGPUTwoDevicesAtOnce(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	devs := map[string]device.Device{"cuda:0": g.Open("cuda:0"), "cuda:1": g.Open("cuda:1")}
	e := newEngine(t, small)
	var wg sync.WaitGroup
	for i, id := range []string{"cuda:0", "cuda:1", "cuda:1", "cuda:0"} {
		path, want := writeFile(t, 2*units.MiB+int64(i)*777, uint64(40+i))
		f, d := openFile(t, path), devs[id]
		b := alloc(t, d, f.Size())
		wg.Go(func() {
			for range 3 {
				clear(g.Bytes(b.Ptr(), f.Size()))
				tr, err := e.Start(context.Background(), whole(d, f, b.Ptr(), report.RouteAuto))
				if err == nil {
					err = tr.Err()
				}
				if err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				if !bytes.Equal(g.Bytes(b.Ptr(), f.Size()), want) {
					t.Errorf("%s: bytes differ", id)
				}
				if r := tr.Report(); r.Device.ID != id || r.Engine.StagingState != "pinned" {
					t.Errorf("report of %s: %+v %+v", id, r.Device, r.Engine)
				}
			}
		})
	}
	wg.Wait()
	g.CheckPinned()
	g.CheckIdle()
}

func TestGPUCopiesBeginAfterTheCallersStream(t *testing.T) {
	g, d, e, f, want := gpuAndFile(t, 1*units.MiB, 26)
	b := alloc(t, d, f.Size())
	theirs, err := hostmem.Map(f.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Unmap()
	user := g.Thread(0)
	defer user.Leave()
	s := user.NewStream()
	defer user.DestroyStream(s)
	defer g.HoldStream(s, false)
	g.HoldStream(s, true)
	user.Copy(s, b.Ptr(), theirs.Bytes()[:f.Size()])
	r := whole(d, f, b.Ptr(), report.RouteBuffered)
	r.Stream, r.HasStream = s, true
	tr := start(t, e, context.Background(), r)
	g.Await("waiting_for_event", 1)
	g.Await("copies_queued", 2) // theirs and ours
	if g.Count("copies_done") != 0 || ended(tr) {
		t.Error("copies were done before the caller's own work")
	}
	g.HoldStream(s, false)
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g.Bytes(b.Ptr(), f.Size()), want) {
		t.Error("the caller's earlier work came last")
	}
	if n := g.Count("event_waits"); n != 1 {
		t.Errorf("%d waits between streams, expected 1", n)
	}
}

func TestGPUAStreamThatCannotBeOrderedAfter(t *testing.T) {
	g, d, e, f, want := gpuAndFile(t, 64*units.KiB, 27)
	b := alloc(t, d, f.Size())
	r := whole(d, f, b.Ptr(), report.RouteBuffered)
	r.Stream, r.HasStream = 0xdead0, true
	if _, err := e.Start(context.Background(), r); !errs.Is(err, errs.Device) ||
		!strings.Contains(err.Error(), "CUDA_ERROR_INVALID_HANDLE") {
		t.Fatalf("got %v", err)
	}
	got, _ := loadGPU(t, g, e, d, f, report.RouteBuffered) // nothing is left running
	if !bytes.Equal(got, want) {
		t.Error("bytes differ")
	}
}

func TestGPUCancelledInMidTransfer(t *testing.T) {
	path, _ := writeFile(t, 3*units.MiB, 28)
	onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
		x := newFailing(t, g, f, by)
		g.Hold(3)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		x.tr = start(t, x.e, ctx, whole(x.d, x.f, x.b.Ptr(), by.route))
		cancelHeld(t, g, x.tr, cancel) // three are done, one is in the middle
		x.checkOver(t)
		if err := x.tr.Err(); !errs.Is(err, errs.Cancelled) || !errors.Is(err, context.Canceled) ||
			!strings.Contains(err.Error(), "cuda:0") {
			t.Errorf("got %v", err)
		}
		if done, total := x.tr.Progress(); done >= total || total != x.f.Size() {
			t.Errorf("progress %d of %d", done, total)
		}
	})
}

func TestGPUACauseOfTheCallersIsStillACancellation(t *testing.T) {
	g, d, e, f, _ := gpuAndFile(t, 1*units.MiB, 29)
	b := alloc(t, d, f.Size())
	g.Hold(0)
	ctx, cancel := context.WithCancelCause(context.Background())
	tr := start(t, e, ctx, whole(d, f, b.Ptr(), report.RouteBuffered))
	enough := errors.New("the user has had enough")
	cancel(enough)
	waitFailed(tr)
	g.Release()
	if err := tr.Err(); !errs.Is(err, errs.Cancelled) || !errors.Is(err, enough) {
		t.Errorf("got %v, of kind %v", err, errs.KindOf(err))
	}
}

func TestGPUCloseRefusesWhileATransferRuns(t *testing.T) {
	path, want := writeFile(t, 1*units.MiB, 31)
	g, d := fakegpu.OpenOne(t)
	e, err := New(small)
	if err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	b := alloc(t, d, f.Size())
	g.Hold(0)
	tr := start(t, e, context.Background(), whole(d, f, b.Ptr(), report.RouteBuffered))
	g.Await("copies_held", 1)
	if err := e.Close(); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "1 transfers are still running") ||
		errs.FixOf(err) == "" {
		t.Errorf("got %v", err)
	}
	g.Release()
	if err := tr.Err(); err != nil {
		t.Errorf("the refused Close harmed the transfer: %v", err)
	}
	if !bytes.Equal(g.Bytes(b.Ptr(), f.Size()), want) {
		t.Error("bytes differ")
	}
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	if _, err := e.Start(context.Background(), whole(d, f, b.Ptr(), report.RouteBuffered)); !errs.Is(err, errs.Closed) {
		t.Errorf("a closed engine took a transfer: %v", err)
	}
}

func TestGPUCloseFreesEverything(t *testing.T) {
	path, _ := writeFile(t, 3*units.MiB, 32)
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	e, err := New(small)
	if err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	requireDirect(t, f)
	var devs []device.Device
	for _, id := range []string{"cuda:0", "cuda:1"} {
		d := g.Open(id)
		devs = append(devs, d)
		for _, route := range []report.Route{report.RouteBuffered, report.RouteDirect} {
			b := alloc(t, d, f.Size())
			if err := start(t, e, context.Background(), whole(d, f, b.Ptr(), route)).Err(); err != nil {
				t.Fatal(err)
			}
			if err := b.Free(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if g.Count("streams") != 2 || g.Count("events") == 0 || g.Count("registered_ranges") == 0 {
		t.Error("nothing is held before Close: the test shows nothing")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, d := range devs {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	g.CheckFreed()
}

// Staging is prepared in the background. An engine that is closed before that
// has begun must not leave it behind, nor let it touch memory that is gone.
func TestGPUCloseRightAfterASmallLoad(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	path, want := writeFile(t, 4096, 33)
	f := openFile(t, path)
	g, d := fakegpu.OpenOne(t)
	b := alloc(t, d, f.Size())
	for range 20 {
		e, err := New(Options{PoolSize: 128 * units.MiB})
		if err != nil {
			t.Fatal(err)
		}
		if err := start(t, e, context.Background(), whole(d, f, b.Ptr(), report.RouteBuffered)).Err(); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(g.Bytes(b.Ptr(), f.Size()), want) {
			t.Fatal("bytes differ")
		}
		if n := g.Count("registered_ranges"); n != 0 {
			t.Fatalf("%d registered ranges are left after Close", n)
		}
	}
}
