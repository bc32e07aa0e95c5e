// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/effort"
)

// verified is the request for a whole verified file to a fake GPU, and the engine.
func verified(t *testing.T, g *fakegpu.GPU, o Options, f *vfs.File, route report.Route) (*Engine, Request) {
	t.Helper()
	d := g.Open("cuda:0")
	e := newEngine(t, o)
	r := whole(d, f, alloc(t, d, f.Size()).Ptr(), route)
	r.Verify = []*checksum.Sums{sumsOf(t, f.Path(), 64*units.KiB)}
	return e, r
}

// checkNextWorks fails the test unless the GPU is idle and the engine serves the next request.
func checkNextWorks(t *testing.T, g *fakegpu.GPU, e *Engine, r Request) {
	t.Helper()
	g.CheckIdle()
	if err := start(t, e, context.Background(), r).Err(); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func onDevice(o Options) Options {
	o.VerifyOn = VerifyDevice
	return o
}

// A bit that flips on the way to the device is found where it has arrived; one
// that flips in a sum is too. The CPU, which sums before, finds neither.
func TestDeviceSumsFindWhatGoesWrongOnTheWay(t *testing.T) {
	effort.Slow(t)
	path, want := writeFile(t, 3*units.MiB+777, 81)
	rng := rand.New(rand.NewPCG(8, 1))
	flips := effort.Rounds{Test: 10, CI: 40}.Of(t)
	onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
		e, r := verified(t, g, by.by(onDevice(small)), f, by.route)
		for i := range flips {
			if i%2 == 0 {
				g.FlipCopy(1 + rng.IntN(40))
			} else {
				g.FlipSum(1 + rng.IntN(40))
			}
			err := start(t, e, context.Background(), r).Err()
			if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "summed on cuda:0 where it had arrived") ||
				!strings.Contains(err.Error(), path) {
				t.Fatalf("flip %d: %v", i, err)
			}
			g.CheckIdle()
			g.FlipCopy(0)
		}
		tr := start(t, e, context.Background(), r)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		equal(t, g.Bytes(r.Segments[0].Dst, int64(len(want))), want)
		if v := tr.Report().Verify; v.Where != "device" || v.DeviceBytes != int64(len(want)) {
			t.Errorf("report: %+v", v)
		}
	})
	g := fakegpu.Build(t, fakegpu.Options{})
	o := small
	o.VerifyOn = VerifyHost
	e, r := verified(t, g, o, openFile(t, path), report.RouteBuffered)
	g.FlipCopy(3)
	if err := start(t, e, context.Background(), r).Err(); err != nil {
		t.Errorf("the CPU sums before the copy, and found %v", err)
	}
	if n := g.Count("sums_queued"); n != 0 {
		t.Errorf("%d sums on the device", n)
	}
}

func TestDeviceSumsOfWhatComesOverANetwork(t *testing.T) {
	data := noise(9*units.MiB+4321, 82)
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, onDevice(Options{Poison: true}))
	f := vfs.NewRemote("s3://b/k", int64(len(data)), &memRemote{data: data, parallel: 3})
	b := alloc(t, d, f.Size()+8)
	r := whole(d, f, b.Ptr()+3, report.RouteAuto)
	// A server may keep one sum of the whole, whatever its size; blocks whose size
	// fits no tile are the CPU's.
	for block, where := range map[int64]string{checksum.DefaultBlock: "device", f.Size(): "device", 100_000: "host"} {
		sums := &checksum.Sums{Size: f.Size(), Block: block}
		for off := int64(0); off < f.Size(); off += block {
			sums.Blocks = append(sums.Blocks, checksum.Of(data[off:min(f.Size(), off+block)]))
		}
		r.Verify = []*checksum.Sums{sums}
		tr := start(t, e, context.Background(), r)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		equal(t, g.Bytes(b.Ptr()+3, f.Size()), data)
		if v := tr.Report().Verify; v.Where != where || v.Blocks != int64(len(sums.Blocks)) || v.Bytes != f.Size() {
			t.Errorf("blocks of %d: %+v", block, v)
		}
		data[5*units.MiB+17] ^= 4
		if err := start(t, e, context.Background(), r).Err(); !errs.Is(err, errs.Corrupt) ||
			strings.Contains(err.Error(), "summed on cuda:0") != (where == "device") {
			t.Errorf("blocks of %d: %v", block, err)
		}
		data[5*units.MiB+17] ^= 4
		g.CheckIdle()
	}
}

// A transfer whose sums are under way has not ended, however it will.
func TestDeviceSumsAreWaitedFor(t *testing.T) {
	path, _ := writeFile(t, 3*units.MiB, 83)
	onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
		e, r := verified(t, g, by.by(onDevice(small)), f, by.route)
		g.HoldSums()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		tr := start(t, e, ctx, r)
		g.Await("sums_held", 1)
		if done, _ := tr.Progress(); done != 0 {
			t.Errorf("%d bytes count as delivered before any sum", done)
		}
		cancel()
		waitFailed(tr)
		if ended(tr) {
			t.Error("Done is closed with sums in flight")
		}
		g.ReleaseSums()
		if err := tr.Err(); !errs.Is(err, errs.Cancelled) {
			t.Errorf("got %v", err)
		}
		checkNextWorks(t, g, e, r)
	})
}

func TestDeviceSumsThatFailEndTheTransfer(t *testing.T) {
	path, _ := writeFile(t, 3*units.MiB, 84)
	for name, arrange := range map[string]func(g *fakegpu.GPU){
		"the kernel":              func(g *fakegpu.GPU) { g.FailSum(7, fakegpu.LaunchFailed, false) },
		"the launch":              fakegpu.FailingCall("cuLaunchKernel", 5, fakegpu.LaunchFailed),
		"the order behind copies": fakegpu.FailingCall("cuStreamWaitEvent", 5, fakegpu.LaunchFailed),
		"the copy":                fakegpu.FailingCopy(9, fakegpu.LaunchFailed, false),
	} {
		t.Run(name, func(t *testing.T) {
			onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
				o := by.by(onDevice(small))
				// The driver reports the failure at the next event of its stream. One thread
				// alone: so that this is the event of the copy that failed.
				o.Workers, o.QueueDepth = 1, 1
				e, r := verified(t, g, o, f, by.route)
				arrange(g)
				err := start(t, e, context.Background(), r).Err()
				if !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), "LAUNCH_FAILED") ||
					!strings.Contains(err.Error(), path) {
					t.Errorf("got %v", err)
				}
				checkNextWorks(t, g, e, r)
			})
		})
	}
}

// A kernel that faults ends the context, and with it whatever is queued.
func TestDeviceSumsThatBreakTheContext(t *testing.T) {
	path, _ := writeFile(t, 3*units.MiB, 89)
	onEachReader(t, path, func(t *testing.T, g *fakegpu.GPU, f *vfs.File, by reader) {
		e, err := New(by.by(onDevice(small)))
		if err != nil {
			t.Fatal(err)
		}
		d := g.Open("cuda:0")
		b, err := d.Alloc(f.Size())
		if err != nil {
			t.Fatal(err)
		}
		r := whole(d, f, b.Ptr(), by.route)
		r.Verify = []*checksum.Sums{sumsOf(t, path, 64*units.KiB)}
		g.FailSum(7, fakegpu.LaunchFailed, true)
		if err := start(t, e, context.Background(), r).Err(); !errs.Is(err, errs.Device) ||
			!strings.Contains(err.Error(), "LAUNCH_FAILED") {
			t.Errorf("got %v", err)
		}
		if err := e.Close(); err == nil {
			t.Error("nothing is said of the dead context")
		}
		g.CheckIdle()
	})
}

// Where the driver cannot compute, the CPU sums, and the report says why; where
// the device was named, the transfer fails.
func TestDeviceSumsThatCannotBe(t *testing.T) {
	path, want := writeFile(t, 9*units.MiB, 85)
	for name, c := range map[string]struct {
		opts    fakegpu.Options
		arrange func(g *fakegpu.GPU)
		reason  string
	}{
		"no compiler": {arrange: fakegpu.FailingCall("cuModuleLoadData", 0, fakegpu.NoJIT),
			reason: "PTX compiler is not here"},
		"an old library": {opts: fakegpu.Options{Without: []string{"cuLaunchKernel"}}, reason: "lacks cuLaunchKernel"},
	} {
		t.Run(name, func(t *testing.T) {
			g := fakegpu.Build(t, c.opts)
			if c.arrange != nil {
				c.arrange(g)
			}
			e, r := verified(t, g, Options{Poison: true}, openFile(t, path), report.RouteBuffered)
			vfstest.Hold(t, path, 0, int64(len(want)))
			for range 2 { // it is remembered: nobody asks the driver again
				tr := start(t, e, context.Background(), r)
				if err := tr.Err(); err != nil {
					t.Fatal(err)
				}
				equal(t, g.Bytes(r.Segments[0].Dst, int64(len(want))), want)
				tr.port.sums.wait()
				rep, told := tr.Report(), false
				for _, x := range rep.Refusals {
					told = told || x.What == "verification on the device" && x.On == "cuda:0" &&
						strings.Contains(x.Reason, c.reason) && x.Fix != ""
				}
				if !told || rep.Verify.Where != "host" || !strings.Contains(strings.Join(rep.Notes, "\n"), "in the CPU's reach") {
					t.Errorf("verified on %s, refusals %+v, notes %q", rep.Verify.Where, rep.Refusals, rep.Notes)
				}
			}
			strict := newEngine(t, onDevice(Options{}))
			if c.arrange != nil {
				c.arrange(g)
			}
			if err := start(t, strict, context.Background(), r).Err(); !errs.Is(err, errs.Unsupported) ||
				!strings.Contains(err.Error(), c.reason) {
				t.Errorf("named as the place: %v", err)
			}
			g.CheckIdle()
		})
	}
}

// Of itself the engine leaves large pieces to the device and small ones to the
// CPU, once the device is ready.
func TestDeviceSumsAreChosenBySize(t *testing.T) {
	path, _ := writeFile(t, 9*units.MiB, 86)
	g := fakegpu.Build(t, fakegpu.Options{})
	e, r := verified(t, g, Options{Poison: true}, openFile(t, path), report.RouteDirect)
	requireDirect(t, r.Files[0])
	if err := start(t, e, context.Background(), r).Err(); err != nil {
		t.Fatal(err)
	}
	e.main.ports.all[r.Device].sums.wait()
	tr := start(t, e, context.Background(), r)
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	rep := tr.Report()
	if v := rep.Verify; v.Where != "device" || strings.Contains(strings.Join(rep.Notes, "\n"), "CPU") {
		t.Errorf("%+v, notes %q", v, rep.Notes)
	}
	r.Segments[0].Len = 100_000
	tr = start(t, e, context.Background(), r)
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	if v := tr.Report().Verify; v.Where != "host" {
		t.Errorf("a small one: %+v", v)
	}
}

func TestDeviceSumsAreFreedWithTheEngine(t *testing.T) {
	path, _ := writeFile(t, 3*units.MiB, 87)
	sums := sumsOf(t, path, 4096)
	g, d := fakegpu.OpenOne(t)
	e, err := New(onDevice(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(3 * units.MiB)
	if err != nil {
		t.Fatal(err)
	}
	r := whole(d, openFile(t, path), b.Ptr(), report.RouteBuffered)
	r.Verify = []*checksum.Sums{sums}
	if err := start(t, e, context.Background(), r).Err(); err != nil {
		t.Fatal(err)
	}
	for _, free := range []func() error{b.Free, e.Close, d.Close} {
		if err := free(); err != nil {
			t.Fatal(err)
		}
	}
	g.CheckFreed()
	if n := g.Count("bytes_summed"); n != 3*units.MiB {
		t.Errorf("%d bytes were summed", n)
	}
}

func TestPeersOfADeviceThatSums(t *testing.T) {
	path, want := writeFile(t, 3*units.MiB+1, 88)
	for _, p2p := range []bool{true, false} {
		g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
		g.Peer(0, 1, p2p)
		devices := g.OpenAll()
		e, f := newEngine(t, onDevice(small)), openFile(t, path)
		r, at := withPeers(t, f, devices...)
		r.Verify = []*checksum.Sums{sumsOf(t, path, 32*units.KiB)}
		tr := start(t, e, context.Background(), r)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		checkPeers(t, g, at, want)
		if v := tr.Report().Verify; v.Where != "device" {
			t.Errorf("report: %+v", v)
		}
		g.CheckIdle()
	}
}

func TestParseVerifyOn(t *testing.T) {
	for in, want := range map[string]VerifyOn{"": VerifyAuto, "auto": VerifyAuto, "host": VerifyHost,
		"device": VerifyDevice} {
		if got, err := ParseVerifyOn(in); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	if _, err := New(Options{VerifyOn: "gpu"}); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "expected auto, host or device") {
		t.Errorf("got %v", err)
	}
}
