// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// handedOver makes a file of size bytes and the descriptors that its owner
// would hand to a writer.
func handedOver(t *testing.T, dir string, size int64) (path string, s *vfs.Sink) {
	t.Helper()
	path = filepath.Join(dir, fmt.Sprintf("draft%d", size))
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	d := vfs.Descriptors{Name: "bucket/key", Buffered: fd, Direct: -1, Size: size}
	if d.Direct, err = unix.Open(path, unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0); err != nil {
		d.Direct, d.Refused = -1, "the owner says: "+err.Error()
	}
	if s, err = vfs.SinkFromDescriptors(d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return path, s
}

// checkSunk fails the test unless the file begins with want and the sums are its.
func checkSunk(t *testing.T, path string, want []byte, sums *checksum.Sums) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
		t.Fatalf("%d bytes differ from %d expected", len(got), len(want))
	}
	if len(got)-len(want) >= 4096 {
		t.Fatalf("%d bytes were written, more than a page behind the %d of the content", len(got), len(want))
	}
	if sums == nil || sums.Size != int64(len(want)) || sums.Block != 1<<20 || len(sums.Blocks) != (len(want)+1<<20-1)>>20 {
		t.Fatalf("sums %+v of %d bytes", sums, len(want))
	}
	for i, sum := range sums.Blocks {
		if off, n := sums.Extent(int64(i)); checksum.Of(want[off:off+n]) != sum {
			t.Fatalf("the sum of block %d is wrong", i)
		}
	}
}

func TestASinkGetsEveryByteAndItsSums(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	places := map[string][]device.Device{"host": {host.New()}, "gpu": {g.Open("cuda:0")},
		"everywhere": {host.New(), host.Staged(), g.Open("cuda:0"), g.Open("cuda:1")}}
	for name, devices := range places {
		for _, o := range []Options{smallSave, {PoolSize: 256 * units.KiB, Poison: true}} {
			for _, route := range []report.Route{report.RouteAuto, report.RouteBuffered} {
				t.Run(fmt.Sprintf("%s/%d/%s", name, o.PoolSize, route), func(t *testing.T) {
					e, dir := newEngine(t, o), diskDir(t)
					for i, size := range []int64{1, 4096, 65537, 3*units.MiB + 77} {
						path, s := handedOver(t, dir, size)
						want, src := scattered(t, uint64(i), size, devices...)
						tr := startWrite(t, e, context.Background(), WriteRequest{Sink: s, Sources: src, Route: route, Checksums: true})
						if err := tr.Err(); err != nil {
							t.Fatal(err)
						}
						checkSunk(t, path, want, tr.Sums())
						r := tr.Report()
						if d, b := routeBytes(r, report.RouteTakenDirect), routeBytes(r, report.RouteTakenBuffered); d+b != size ||
							route == report.RouteBuffered && d != 0 {
							t.Errorf("%d direct and %d buffered of %d", d, b, size)
						}
						if ok, _ := s.Direct(); route == report.RouteAuto && ok && routeBytes(r, report.RouteTakenDirect) != size {
							t.Errorf("routes %+v", r.Routes)
						}
						if r.Save.Durable || r.Files[0].Path != "bucket/key" || r.Bytes != size {
							t.Errorf("report %+v %+v", r.Save, r.Files)
						}
					}
					for _, name := range namesIn(t, dir) {
						if !strings.HasPrefix(name, "draft") {
							t.Errorf("%s was left", name)
						}
					}
				})
			}
		}
	}
	g.CheckIdle()
}

func TestASinkMayBeEmpty(t *testing.T) {
	e := newEngine(t, smallSave)
	_, s := handedOver(t, diskDir(t), 0)
	tr := startWrite(t, e, context.Background(), WriteRequest{Sink: s, Checksums: true})
	if err := tr.Err(); err != nil || tr.Sums() == nil || len(tr.Sums().Blocks) != 0 {
		t.Fatalf("%v, sums %+v", err, tr.Sums())
	}
}

// brokenSink declines or fails writes.
type brokenSink struct {
	*vfs.Sink
	direct, buffered error
}

func (b *brokenSink) WriteDirect(p []byte, off int64) error {
	if b.direct != nil {
		return b.direct
	}
	return b.Sink.WriteDirect(p, off)
}

func (b *brokenSink) WriteBuffered(p []byte, off int64) error {
	if b.buffered != nil {
		return b.buffered
	}
	return b.Sink.WriteBuffered(p, off)
}

func TestASinkThatDeclinesDirectWritesIsWrittenThroughTheCache(t *testing.T) {
	_, d := fakegpu.OpenOne(t)
	e := newEngine(t, smallSave)
	path, s := handedOver(t, diskDir(t), units.MiB)
	want, src := scattered(t, 7, units.MiB, d)
	tr := startWrite(t, e, context.Background(), WriteRequest{Sink: &brokenSink{Sink: s, direct: vfs.ErrDirectRefused},
		Sources: src, Checksums: true})
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	checkSunk(t, path, want, tr.Sums())
	if n := routeBytes(tr.Report(), report.RouteTakenBuffered); n != units.MiB {
		t.Errorf("%d bytes through the page cache", n)
	}
}

func TestASinkThatFails(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	e := newEngine(t, smallSave)
	_, s := handedOver(t, diskDir(t), units.MiB)
	_, src := scattered(t, 7, units.MiB, d)
	full := errs.Wrap("write", "bucket/key", unix.ENOSPC)
	tr := startWrite(t, e, context.Background(), WriteRequest{Sink: &brokenSink{s, full, full}, Sources: src,
		Checksums: true})
	if err := tr.Err(); !errors.Is(err, unix.ENOSPC) || tr.Sums() != nil {
		t.Fatalf("%v, sums %v", err, tr.Sums())
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.Hold(2)
	tr = startWrite(t, e, ctx, WriteRequest{Sink: s, Sources: src, Checksums: true})
	cancelHeld(t, g, tr, cancel)
	if err := tr.Err(); !errs.Is(err, errs.Cancelled) ||
		!strings.Contains(err.Error(), "bucket/key after "+units.Bytes(tr.Report().Bytes)) {
		t.Fatalf("%v, the report has %d bytes", err, tr.Report().Bytes)
	}
	g.CheckIdle()
	if _, err := e.StartWrite(context.Background(), WriteRequest{Sink: s, Path: "f", Sources: src}); !errs.Is(err,
		errs.Invalid) {
		t.Errorf("a path and a sink: %v", err)
	}
}

func TestASinkByCuFile(t *testing.T) {
	for route, want := range map[int]report.RouteTaken{fakegpu.P2P: report.RouteTakenCuFileP2P,
		fakegpu.Posix: report.RouteTakenCuFileCompat} {
		r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{Route: route}, DirectPath{Plausible: true})
		const size = 3*units.MiB + 77
		dir := diskDir(t)
		path, s := handedOver(t, dir, size)
		content := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		b := alloc(t, r.dev, size)
		put(b.Ptr(), content)
		req := WriteRequest{Sink: s, Sources: []Source{{Len: size, Device: r.dev, Ptr: b.Ptr()}}, Route: report.RouteCuFile,
			Checksums: true}
		tr := startWrite(t, r.e, context.Background(), req)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		checkSunk(t, path, content, tr.Sums())
		rep := tr.Report()
		if n := routeBytes(rep, want); n != 3*units.MiB || routeBytes(rep, report.RouteTakenBuffered) != 77 {
			t.Errorf("routes %+v", rep.Routes)
		}
		if rep.CuFile == nil || rep.CuFile.Counters == nil || rep.CuFile.Counters.Writes.Total == 0 || !rep.CuFile.Opened {
			t.Errorf("cufile %+v", rep.CuFile)
		}
		// Sums are made by the CPU: auto writes from there, and says so.
		req.Route = report.RouteAuto
		tr = startWrite(t, r.e, context.Background(), req)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		rep = tr.Report()
		if rep.CuFile != nil || !slices.ContainsFunc(rep.Refusals,
			func(x report.Refusal) bool { return x.What == "cufile" && x.Fix != "" }) {
			t.Errorf("auto: %+v %+v", rep.CuFile, rep.Refusals)
		}
		if n := r.fake.Count("handles"); n != 0 {
			t.Errorf("libcufile still knows %d files", n)
		}
		req.Route, req.Sources = report.RouteCuFile, []Source{{Len: 3, Data: []byte("abc")}}
		if err := startWrite(t, r.e, context.Background(), req).Err(); !errs.Is(err, errs.Unsupported) {
			t.Errorf("cufile from memory: %v", err)
		}
		r.gpu.CheckIdle()
	}
}

// What a small object costs beside its bytes.
func BenchmarkSinkOfFewBytes(b *testing.B) {
	g := fakegpu.Build(b, fakegpu.Options{})
	e, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	fd, err := unix.Open(filepath.Join(b.TempDir(), "f"), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	s, err := vfs.SinkFromDescriptors(vfs.Descriptors{Name: "b/k", Buffered: fd, Direct: -1, Size: 4096})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for name, d := range map[string]device.Device{"host": host.New(), "gpu": g.Open("cuda:0")} {
		b.Run(name, func(b *testing.B) {
			m := devicetest.Buffer(b, d, 4096)
			for b.Loop() {
				tr, err := e.StartWrite(context.Background(), WriteRequest{Sink: s,
					Sources: []Source{{Len: 4096, Device: d, Ptr: m.Ptr()}}, Checksums: true})
				if err != nil {
					b.Fatal(err)
				}
				if err := tr.Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
