// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

func TestAFewBytesGoAcross(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	for name, d := range map[string]device.Device{"host": host.New(), "staged": host.Staged(), "gpu": g.Open("cuda:1")} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, small)
			for _, n := range []int{0, 1, 4096, 65536, 65537, 200_001} {
				b := alloc(t, d, int64(n)+16)
				want := make([]byte, n)
				rand.NewChaCha8([32]byte{byte(n)}).Read(want)
				if err := e.Deliver(context.Background(), d, b.Ptr()+7, want); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(g.Bytes(b.Ptr()+7, int64(n)), want) {
					t.Fatalf("%d bytes differ", n)
				}
			}
		})
	}
	g.CheckPinned()
	g.CheckIdle()
}

func TestAFewBytesDoNotWaitForBulkCopies(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, small)
	path, want := writeFile(t, 1*units.MiB, 61)
	f := openFile(t, path)
	b := alloc(t, d, f.Size()+64)
	e.Prepare(d)
	e.main.mu.Lock()
	bulk := e.main.ports.all[d].queue.(device.Streamer).Stream()
	e.main.mu.Unlock()
	g.HoldStream(bulk, true)
	tr := start(t, e, context.Background(), whole(d, f, b.Ptr(), report.RouteBuffered))
	g.Await("copies_held", 1)
	if err := e.Deliver(context.Background(), d, b.Ptr()+device.Ptr(f.Size()), []byte("small")); err != nil {
		t.Error(err)
	}
	if ended(tr) {
		t.Error("the bulk copies were not held")
	}
	g.HoldStream(bulk, false)
	if err := tr.Err(); err != nil || !bytes.Equal(g.Bytes(b.Ptr(), f.Size()), want) ||
		string(g.Bytes(b.Ptr()+device.Ptr(f.Size()), 5)) != "small" {
		t.Fatalf("bytes differ: %v", err)
	}
	g.CheckIdle()
}

func TestAFewBytesComeAfterTheCallersStream(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, small)
	b := alloc(t, d, 8)
	theirs := alloc(t, host.New(), 8)
	put(theirs.Ptr(), []byte("theirs.."))
	f := g.Thread(0)
	defer f.Leave()
	s := f.NewStream()
	defer f.DestroyStream(s)
	g.HoldStream(s, true)
	f.Copy(s, b.Ptr(), g.Bytes(theirs.Ptr(), 8))
	done := make(chan error, 1)
	go func() { done <- e.Deliver(context.Background(), d, b.Ptr(), []byte("ours...."), s) }()
	g.Await("waiting_for_event", 1)
	g.HoldStream(s, false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := string(g.Bytes(b.Ptr(), 8)); got != "ours...." {
		t.Errorf("%q was written last", got)
	}
	g.CheckIdleBut("pushed")
}

func TestAFewBytesOfMany(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, small)
	const many, n = 16, 3000
	b := alloc(t, d, many*n)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			data := bytes.Repeat([]byte{byte(i + 1)}, n)
			at := b.Ptr() + device.Ptr(i*n)
			for range 20 {
				if err := e.Deliver(context.Background(), d, at, data); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(g.Bytes(at, n), data) {
					t.Errorf("caller %d has others' bytes", i)
				}
			}
		})
	}
	wg.Wait()
	g.CheckIdle()
}

func TestAFewBytesThatFail(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, small)
	b := alloc(t, d, 4096)
	data := make([]byte, 4096)
	for name, arrange := range map[string]func(){
		"queue copy": func() { g.Fail(fakegpu.CopyToDevice, 0, 1, fakegpu.InvalidValue) },
		"copy":       func() { g.FailCopy(1, fakegpu.LaunchFailed, false) },
		"drain":      func() { g.Fail("cuStreamSynchronize", 0, 1, fakegpu.LaunchFailed) },
	} {
		if err := e.Deliver(context.Background(), d, b.Ptr(), data); err != nil {
			t.Fatal(err) // what failed before does not stay
		}
		arrange()
		if err := e.Deliver(context.Background(), d, b.Ptr(), data); !errs.Is(err, errs.Device) ||
			!strings.Contains(err.Error(), fmt.Sprintf("deliver 4096 bytes at 0x%x of cuda:0", uint64(b.Ptr()))) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := e.Deliver(context.Background(), d, 0, data); !errs.Is(err, errs.Invalid) {
		t.Errorf("address 0: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Deliver(ctx, d, b.Ptr(), data); !errs.Is(err, errs.Cancelled) {
		t.Errorf("cancelled: %v", err)
	}
	for name, fn := range map[string]string{"stream": "cuStreamCreate", "pin": "cuMemHostRegister_v2"} {
		e := newEngine(t, small)
		g.Fail(fn, 2, 1, fakegpu.OutOfMemory)
		if name == "pin" {
			g.Fail(fn, 0, 1, fakegpu.OutOfMemory)
		}
		err := e.Deliver(context.Background(), d, b.Ptr(), data)
		if name == "stream" && err == nil || name == "pin" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkDeliver(b *testing.B) {
	g := fakegpu.Build(b, fakegpu.Options{})
	e, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	for name, d := range map[string]device.Device{"host": host.New(), "gpu": g.Open("cuda:0")} {
		b.Run(name, func(b *testing.B) {
			m := devicetest.Buffer(b, d, 4096)
			data := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Deliver(context.Background(), d, m.Ptr(), data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if err := e.Close(); err != nil {
		b.Fatal(err)
	}
}
