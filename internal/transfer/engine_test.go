// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/closing"
)

// diskDir is a directory on a disk.
func diskDir(t *testing.T) string {
	t.Helper()
	return vfstest.DiskDir(t)
}

func writeFile(t *testing.T, size int64, seed uint64) (string, []byte) {
	t.Helper()
	path := filepath.Join(diskDir(t), fmt.Sprintf("f%d", seed))
	return path, vfstest.Write(t, path, size, seed)
}

func openFile(t *testing.T, path string) *vfs.File {
	t.Helper()
	return vfstest.Open(t, path)
}

func dropped(t *testing.T, f *vfs.File) {
	t.Helper()
	left, err := f.DropCache()
	if err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Fatalf("%d bytes of %s stayed in the page cache", left, f.Path())
	}
}

func newEngine(t *testing.T, o Options) *Engine {
	t.Helper()
	seen, ok := o.Trace.(*recorder)
	if !ok {
		seen = newRecorder()
		o.Trace = seen
	}
	t.Cleanup(func() { seen.check(t) })
	e, err := New(o)
	return closing.AtEnd(t, e, err)
}

// bytesOf views a host buffer.
func bytesOf(b device.Buffer) []byte { return host.New().Map(b.Ptr(), b.Size()) }

func alloc(t *testing.T, d device.Device, n int64) device.Buffer {
	t.Helper()
	return devicetest.Buffer(t, d, n)
}

// load moves one whole file and returns the delivered bytes and the report.
func load(t *testing.T, e *Engine, d device.Device, f *vfs.File, route report.Route, cache report.CachePolicy) ([]byte,
	report.Report) {
	t.Helper()
	b := alloc(t, d, f.Size())
	tr, err := e.Start(context.Background(), Request{Device: d, Files: []*vfs.File{f}, Route: route, Cache: cache,
		Segments: []Segment{{Len: f.Size(), Dst: b.Ptr()}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	return bytesOf(b), tr.Report()
}

func routeBytes(r report.Report, want report.RouteTaken) int64 {
	for _, x := range r.Routes {
		if x.Route == want {
			return x.Bytes
		}
	}
	return 0
}

func requireDirect(t *testing.T, f *vfs.File) {
	t.Helper()
	if ok, why := f.Direct(); !ok {
		t.Skipf("the file system under the test refuses O_DIRECT: %s", why.Reason)
	}
	if m, why := f.Probe(); m != vfs.ProbeCachestat {
		t.Skipf("the kernel has no cachestat: %s", why)
	}
}

// Each way of running the engine that a chunk can meet.
func engines() map[string]Options {
	small := Options{PoolSize: 2 * units.MiB, MaxTransfer: 128 * units.KiB, Workers: 3, QueueDepth: 4, Poison: true}
	ur, pr := small, small
	ur.IO, pr.IO = IOUring, IOPread
	return map[string]Options{"uring": ur, "pread": pr, "defaults": {Poison: true},
		"one slot each": {PoolSize: 256 * units.KiB, MaxTransfer: 128 * units.KiB, Poison: true}}
}

func devices() map[string]device.Device {
	return map[string]device.Device{"staged": host.Staged(), "in place": host.New()}
}

func TestWarmColdAndHalfTellTheirRoutes(t *testing.T) {
	path, want := writeFile(t, 9*units.MiB+1234, 1)
	for ename, opts := range engines() {
		for dname, dev := range devices() {
			t.Run(ename+"/"+dname, func(t *testing.T) {
				f := openFile(t, path)
				requireDirect(t, f)
				e := newEngine(t, opts)

				dropped(t, f)
				got, r := load(t, e, dev, f, report.RouteAuto, report.CacheBypass)
				if !bytes.Equal(got, want) {
					t.Fatal("cold: bytes differ")
				}
				// In place, the ragged end of less than a page comes through the cache.
				if d := routeBytes(r, report.RouteTakenDirect); d < f.Size()-4096 {
					t.Fatalf("cold: %d of %d bytes were direct: %+v", d, f.Size(), r.Routes)
				}

				release := vfstest.Hold(t, path, 0, f.Size())
				got, r = load(t, e, dev, f, report.RouteAuto, report.CacheAuto)
				release()
				if !bytes.Equal(got, want) {
					t.Fatal("warm: bytes differ")
				}
				if c := routeBytes(r, report.RouteTakenCache); c != f.Size() {
					t.Fatalf("warm: %d of %d bytes came from the page cache: %+v", c, f.Size(), r.Routes)
				}

				dropped(t, f)
				half := f.Size() / 2 &^ (plan.LeafSize - 1)
				release = vfstest.Hold(t, path, 0, half)
				got, r = load(t, e, dev, f, report.RouteAuto, report.CacheBypass)
				release()
				if !bytes.Equal(got, want) {
					t.Fatal("half: bytes differ")
				}
				if c, d := routeBytes(r, report.RouteTakenCache), routeBytes(r, report.RouteTakenDirect); c < half ||
					d < f.Size()-half-4096 {
					t.Fatalf("half: %d cached and %d direct of %d: %+v", c, d, f.Size(), r.Routes)
				}
			})
		}
	}
}

// drawSegments cuts a file of size bytes into segments of up to longest bytes that go to dst and behind, with up to gap
// bytes between two destinations. Some bytes of the file are in no segment.
func drawSegments(rng *rand.Rand, size, longest int64, dst device.Ptr, gap int64) []Segment {
	var segs []Segment
	for off := int64(0); off < size; {
		n := min(1+rng.Int64N(longest), size-off)
		segs = append(segs, Segment{Off: off, Len: n, Dst: dst})
		dst += device.Ptr(n + rng.Int64N(gap))
		off += n + rng.Int64N(9000)
	}
	return segs
}

func TestSegmentsAtOddOffsets(t *testing.T) {
	path, want := writeFile(t, 3*units.MiB+77, 2)
	rng := rand.New(rand.NewPCG(7, 7))
	for ename, opts := range engines() {
		for dname, dev := range devices() {
			for _, route := range []report.Route{report.RouteAuto, report.RouteBuffered, report.RouteDirect} {
				t.Run(fmt.Sprintf("%s/%s/%s", ename, dname, route), func(t *testing.T) {
					f := openFile(t, path)
					requireDirect(t, f)
					dropped(t, f)
					e := newEngine(t, opts)
					b := alloc(t, dev, 2*f.Size())
					out := bytesOf(b)
					segs := drawSegments(rng, f.Size(), 300_000, b.Ptr()+3, 5)
					tr, err := e.Start(context.Background(), Request{Device: dev, Files: []*vfs.File{f}, Segments: segs, Route: route,
						Cache: report.CacheBypass})
					if err != nil {
						t.Fatal(err)
					}
					if err := tr.Err(); err != nil {
						t.Fatal(err)
					}
					for i, s := range segs {
						at := int64(s.Dst - b.Ptr())
						if !bytes.Equal(out[at:at+s.Len], want[s.Off:s.Off+s.Len]) {
							t.Fatalf("segment %d at %d+%d differs", i, s.Off, s.Len)
						}
					}
				})
			}
		}
	}
}

func TestConcurrentTransfersShareOnePool(t *testing.T) {
	e := newEngine(t, Options{PoolSize: 2 * units.MiB, MaxTransfer: 256 * units.KiB, Poison: true})
	var wg sync.WaitGroup
	for i := range 6 {
		path, want := writeFile(t, 2*units.MiB+int64(i)*1111, uint64(10+i))
		f := openFile(t, path)
		if i%2 == 0 {
			requireDirect(t, f)
			dropped(t, f)
		}
		dev := device.Device(host.Staged())
		if i%3 == 0 {
			dev = host.New()
		}
		wg.Go(func() {
			b, err := dev.Alloc(f.Size())
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Free()
			for range 5 {
				tr, err := e.Start(context.Background(), Request{Device: dev, Files: []*vfs.File{f},
					Segments: []Segment{{Len: f.Size(), Dst: b.Ptr()}}})
				if err != nil {
					t.Error(err)
					return
				}
				if err := tr.Err(); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(bytesOf(b), want) {
					t.Error("bytes differ")
				}
				clear(bytesOf(b))
			}
		})
	}
	wg.Wait()
}

func TestRouteDirectRefusedOnMemoryFileSystem(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "nebulaio")
	if err != nil {
		t.Skipf("no tmpfs to test on: %v", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "x")
	want := bytes.Repeat([]byte("nebula"), 100_000)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	e := newEngine(t, Options{})
	_, err = e.Start(context.Background(), Request{Device: host.Staged(), Files: []*vfs.File{f},
		Route: report.RouteDirect})
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "tmpfs keeps files in memory") {
		t.Fatalf("got %v", err)
	}
	got, r := load(t, e, host.Staged(), f, report.RouteAuto, report.CacheAuto)
	if !bytes.Equal(got, want) {
		t.Fatal("bytes differ")
	}
	if routeBytes(r, report.RouteTakenCache) != f.Size() {
		t.Fatalf("tmpfs bytes came by %+v", r.Routes)
	}
	if len(r.Refusals) != 1 || r.Refusals[0].What != "direct" || r.Refusals[0].Fix == "" {
		t.Fatalf("refusals: %+v", r.Refusals)
	}
}
