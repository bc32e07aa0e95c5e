// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/cuda"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// onePage opens a queue with a mark, and 4096 bytes on the device and on the host.
func onePage(t *testing.T, d device.Device) (device.Queue, device.Mark, device.Buffer, []byte) {
	t.Helper()
	q := devicetest.Queue(t, d)
	return q, devicetest.Mark(t, q), devicetest.Buffer(t, d, 4096), devicetest.HostBytes(t, 4096)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBytesGoInAndComeOut(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, b := devicetest.Queue(t, d), devicetest.Buffer(t, d, 1<<20)
	in, out := devicetest.HostBytes(t, 1<<20), devicetest.HostBytes(t, 1<<20)
	for i := range in {
		in[i] = byte(i * 7)
	}
	unregister, err := d.Register(in)
	must(t, err)
	must(t, q.CopyIn(b.Ptr(), in))
	must(t, q.CopyIn(b.Ptr(), nil))
	must(t, q.CopyOut(out, b.Ptr()))
	must(t, q.CopyOut(nil, b.Ptr()))
	must(t, q.Drain())
	if !bytes.Equal(in, out) {
		t.Fatal("bytes differ")
	}
	if n := g.Count("pageable_copies"); n != 1 { // the way out was not registered
		t.Fatalf("%d pageable copies, expected 1", n)
	}
	must(t, unregister())
	g.CheckIdle()
}

func TestAMarkIsDoneWhenWhatIsBeforeItIsDone(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, b, src := devicetest.Queue(t, d), devicetest.Buffer(t, d, 8), devicetest.HostBytes(t, 4096)
	m := devicetest.Mark(t, q)
	if done, err := m.Done(); !done || err != nil {
		t.Fatalf("a mark never recorded is done: %v %v", done, err)
	}
	must(t, m.Wait())
	for range 3 { // over and over
		g.Hold(0)
		must(t, q.CopyIn(b.Ptr(), src[:8]))
		must(t, m.Record())
		if done, err := m.Done(); done || err != nil {
			t.Fatalf("the copy is held back, the mark says done: %v %v", done, err)
		}
		g.Release()
		must(t, m.Wait())
		if done, err := m.Done(); !done || err != nil {
			t.Fatalf("after Wait: %v %v", done, err)
		}
	}
	g.CheckIdle()
}

func TestAfterWaitsForTheCallersStream(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, b := devicetest.Queue(t, d), devicetest.Buffer(t, d, 8)
	theirs, ours := devicetest.HostBytes(t, 4096), devicetest.HostBytes(t, 4096)
	copy(theirs, "theirs..")
	copy(ours, "ours....")
	f := g.Thread(0)
	defer f.Leave()
	s := f.NewStream()
	defer f.DestroyStream(s)
	defer g.HoldStream(s, false)
	g.HoldStream(s, true)
	f.Copy(s, b.Ptr(), theirs[:8])
	must(t, q.After(s))
	must(t, q.CopyIn(b.Ptr(), ours[:8]))
	g.Await("waiting_for_event", 1) // ours has come as far as it can
	if g.Count("copies_done") != 0 {
		t.Fatal("a copy was done before the caller's own work")
	}
	g.HoldStream(s, false)
	must(t, q.Drain())
	if got := g.Bytes(b.Ptr(), 8); string(got) != "ours...." {
		t.Fatalf("%q was written last", got)
	}
	if n := g.Count("events"); n != 0 {
		t.Fatalf("%d events are left", n)
	}
	must(t, q.After(0)) // the legacy default stream
	must(t, q.Drain())
	g.CheckIdleBut("pushed") // this thread's own
}

func TestTheCallingThreadsContextIsLeftAsFound(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	f := g.Thread(1) // device 1 is current, we use device 0
	defer f.Leave()
	ctx, depth := g.Current()
	d := g.Open("cuda:0")
	q, err := d.NewQueue()
	must(t, err)
	b, err := d.Alloc(4096)
	must(t, err)
	m, err := q.NewMark()
	must(t, err)
	mem := devicetest.HostBytes(t, 4096)
	unregister, err := d.Register(mem)
	must(t, err)
	_, ferr := d.Alloc(-1)
	g.Fail("cuMemAlloc_v2", 0, 1, fakegpu.OutOfMemory)
	_, oerr := d.Alloc(4096)
	if ferr == nil || oerr == nil {
		t.Fatal("allocations that cannot work worked")
	}
	done, err := m.Done()
	must(t, errors.Join(q.CopyIn(b.Ptr(), mem), m.Record(), m.Wait(), q.CopyOut(mem, b.Ptr()), q.After(0), q.Drain(), err))
	if !done {
		t.Error("the mark is not done after Wait")
	}
	must(t, errors.Join(unregister(), m.Close(), b.Free(), q.Close(), d.Close()))
	if c, n := g.Current(); c != ctx || n != depth {
		t.Fatalf("context 0x%x at depth %d is current, it was 0x%x at %d", c, n, ctx, depth)
	}
	if g.Retained(0) != 0 {
		t.Error("device 0 is still retained after Close")
	}
}

func TestManyGoroutinesShareAQueue(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q := devicetest.Queue(t, d)
	const workers, each = 8, 50
	b := devicetest.Buffer(t, d, workers*each)
	src := devicetest.HostBytes(t, workers*each)
	for i := range src {
		src[i] = byte(i)
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			m, err := q.NewMark()
			if err != nil {
				t.Error(err)
				return
			}
			for i := range each {
				at := w*each + i
				if err := errors.Join(q.CopyIn(b.Ptr()+device.Ptr(at), src[at:at+1]), m.Record(), m.Wait()); err != nil {
					t.Error(err)
				}
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if !bytes.Equal(g.Bytes(b.Ptr(), workers*each), src) {
		t.Fatal("bytes differ")
	}
	g.CheckIdle()
}

func TestAllocation(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	b := devicetest.Buffer(t, d, 1000)
	if b.Size() != 1000 || b.Ptr()%256 != 0 {
		t.Errorf("%d bytes at 0x%x", b.Size(), b.Ptr())
	}
	must(t, b.Free())
	must(t, b.Free()) // once is enough
	for _, n := range []int64{0, -5} {
		if _, err := d.Alloc(n); !errs.Is(err, errs.Invalid) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	g.Fail("cuMemAlloc_v2", 0, 1, fakegpu.OutOfMemory)
	_, err := d.Alloc(12345)
	if !errs.Is(err, errs.NoMemory) || !strings.Contains(err.Error(), "allocate 12345 bytes on cuda:0") ||
		!strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory") || errs.FixOf(err) == "" {
		t.Errorf("got %v", err)
	}
	var r *cuda.Result
	if !errors.As(err, &r) || r.Code != 2 {
		t.Errorf("the driver's result is not on the chain of %v", err)
	}
}

func TestRegister(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	a, b := g.Open("cuda:0"), g.Open("cuda:1")
	mem := devicetest.HostBytes(t, 1<<20)
	first, err := a.Register(mem)
	must(t, err)
	second, err := b.Register(mem) // registered already: fine, and not its own to undo
	must(t, err)
	must(t, second())
	if n := g.Count("registered_ranges"); n != 1 {
		t.Fatalf("%d ranges are registered, expected 1", n)
	}
	q, dst := devicetest.Queue(t, b), devicetest.Buffer(t, b, 4096)
	must(t, q.CopyIn(dst.Ptr(), mem[:4096]))
	must(t, q.Drain())
	if g.Count("pageable_copies") != 0 {
		t.Error("one registration does not serve both devices")
	}
	must(t, first())
	nothing, err := a.Register(nil)
	must(t, err)
	must(t, nothing())
	g.Fail("cuMemHostRegister_v2", 0, 1, fakegpu.OutOfMemory)
	if _, err := a.Register(mem); !errs.Is(err, errs.NoMemory) ||
		!strings.Contains(err.Error(), "pin 1048576 bytes of staging for cuda:0") ||
		!strings.Contains(errs.FixOf(err), "buffer_pool_size") {
		t.Errorf("got %v", err)
	}
	g.CheckIdle()
}

func TestEveryCallThatFailsNamesItself(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, m, b, mem := onePage(t, d)
	must(t, m.Record())
	for fn, do := range map[string]func() error{
		"cuStreamCreate":       func() error { _, err := d.NewQueue(); return err },
		"cuEventCreate":        func() error { _, err := q.NewMark(); return err },
		"cuMemcpyHtoDAsync_v2": func() error { return q.CopyIn(b.Ptr(), mem) },
		"cuMemcpyDtoHAsync_v2": func() error { return q.CopyOut(mem, b.Ptr()) },
		"cuEventRecord":        m.Record,
		"cuEventQuery":         func() error { _, err := m.Done(); return err },
		"cuStreamSynchronize":  q.Drain,
		"cuStreamWaitEvent":    func() error { return q.After(0) },
		"cuCtxPushCurrent_v2":  func() error { return q.CopyIn(b.Ptr(), mem) },
	} {
		g.Fail(fn, 0, 1, fakegpu.LaunchFailed)
		err := do()
		if !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), strings.TrimSuffix(fn, "_v2")) ||
			!strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED (719)") {
			t.Errorf("%s: %v", fn, err)
		}
	}
	must(t, q.Drain())
	if n := g.Count("events"); n != 1 { // the mark's
		t.Errorf("%d events, expected 1: a failed After left one behind", n)
	}
	g.CheckIdle()
}

func TestAFailedCopyIsReportedByTheMarkBehindIt(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, m, b, mem := onePage(t, d)
	g.FailCopy(2, fakegpu.LaunchFailed, false)
	must(t, q.CopyIn(b.Ptr(), mem))
	must(t, m.Record())
	must(t, m.Wait())
	must(t, q.CopyIn(b.Ptr(), mem))
	must(t, m.Record())
	if err := m.Wait(); !errs.Is(err, errs.Device) {
		t.Fatalf("got %v", err)
	}
	g.CheckIdle()
}

func TestCloseIsSafeTwice(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	must(t, d.Close())
	must(t, d.Close())
	g.CheckFreed()
}
