// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/report"
)

// cuRig is an engine over a fake GPU with a fake libcufile.
type cuRig struct {
	gpu   *fakegpu.GPU
	fake  *fakegpu.CuFile
	dev   device.Device
	e     *Engine
	asked int // how often plausibility was judged
	opens int
}

func newCuRig(t *testing.T, o Options, c fakegpu.CuFileOptions, peers DirectPath) *cuRig {
	t.Helper()
	t.Setenv("CUFILE_LOGFILE_PATH", filepath.Join(t.TempDir(), "cufile.log"))
	r := &cuRig{gpu: fakegpu.Build(t, fakegpu.Options{Devices: 2})}
	r.fake = r.gpu.BuildCuFile(c)
	var openDirect func(context.Context, device.Device) (device.Direct, error)
	r.dev, openDirect = r.fake.Open("cuda:0")
	o.OpenDirect = func(ctx context.Context, d device.Device) (device.Direct, error) {
		r.opens++
		return openDirect(ctx, d)
	}
	o.DirectPath = func(string, device.Info) DirectPath { r.asked++; return peers }
	r.e = newEngine(t, o)
	return r
}

// tiny makes many chunks of little data.
func tiny(api report.CuFileAPI) Options {
	return Options{PoolSize: 4 * units.MiB, MaxTransfer: 64 * units.KiB, Workers: 3, QueueDepth: 4, Poison: true,
		CuFile: api}
}

func apis() []report.CuFileAPI {
	return []report.CuFileAPI{report.CuFileSync, report.CuFileAsync, report.CuFileBatch}
}

func TestCuFileIsExact(t *testing.T) {
	path, want := writeFile(t, 3*units.MiB+1234, 41)
	for _, api := range apis() {
		t.Run(string(api), func(t *testing.T) {
			r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{}, DirectPath{})
			f := openFile(t, path)
			got, rep := loadGPU(t, r.gpu, r.e, r.dev, f, report.RouteCuFile)
			if !bytes.Equal(got, want) {
				t.Fatal("bytes differ")
			}
			c := rep.CuFile
			if len(rep.Routes) != 1 || rep.Routes[0].Route != report.RouteTakenCuFileCompat || rep.Routes[0].Bytes != f.Size() {
				t.Errorf("routes %+v", rep.Routes)
			}
			if c == nil || c.Version != "1.15.1" || c.API != api || c.Counters == nil || c.Counters.Reads.Posix < 48 ||
				c.Shared || !c.Opened || c.Contexts != 2 || c.Registered != 0 {
				t.Errorf("cufile %+v", c)
			}
			if !slices.ContainsFunc(rep.Notes, func(n string) bool { return strings.Contains(n, "every visible GPU, here 2") }) {
				t.Errorf("the cost of opening is not told: %q", rep.Notes)
			}
			if rep.Engine.StagingUsed || r.gpu.Count("copies_queued") != 0 {
				t.Errorf("staging was used: %+v", rep.Engine)
			}
			if r.asked != 1 {
				t.Errorf("judged %d times, expected once: whether the page cache is the better source", r.asked)
			}
			if told := slices.ContainsFunc(rep.Notes, func(n string) bool {
				return strings.Contains(n,
					"cuFile reads it from there")
			}); told != plan.Cached(f) {
				t.Errorf("read through the page cache: %v; the data is cached: %v", told, plan.Cached(f))
			}
			_, again := loadGPU(t, r.gpu, r.e, r.dev, f, report.RouteCuFile)
			if again.CuFile.Opened || again.CuFile.Counters.Reads.Total > c.Counters.Reads.Total+1 || r.opens != 1 {
				t.Errorf("the second load: %+v", again.CuFile)
			}
			r.gpu.CheckIdle()
		})
	}
}

func TestCuFileSegmentsAtOddOffsets(t *testing.T) {
	path, want := writeFile(t, 2*units.MiB+77, 42)
	for _, api := range apis() {
		t.Run(string(api), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 9))
			r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{}, DirectPath{})
			r.fake.Short(50_000) // the rest of a short read is read on
			f := openFile(t, path)
			b := alloc(t, r.dev, 3*f.Size())
			var segs []Segment
			at := int64(1)
			for off := int64(0); off < f.Size(); {
				n := min(1+rng.Int64N(150_000), f.Size()-off)
				segs = append(segs, Segment{Off: off, Len: n, Dst: b.Ptr() + device.Ptr(at)})
				off, at = off+n, at+n+rng.Int64N(5)
			}
			rng.Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
			tr := start(t, r.e, context.Background(), Request{Device: r.dev, Files: []*vfs.File{f}, Route: report.RouteCuFile,
				Segments: segs})
			if err := tr.Err(); err != nil {
				t.Fatal(err)
			}
			for _, s := range segs {
				if !bytes.Equal(r.gpu.Bytes(s.Dst, s.Len), want[s.Off:s.Off+s.Len]) {
					t.Fatalf("segment at %d differs", s.Off)
				}
			}
		})
	}
}

func TestCuFileCountersNameTheRoute(t *testing.T) {
	path, _ := writeFile(t, 300_000, 43)
	for route, want := range map[int]report.RouteTaken{fakegpu.Posix: report.RouteTakenCuFileCompat,
		fakegpu.P2P: report.RouteTakenCuFileP2P, fakegpu.NVFS: report.RouteTakenCuFileNVFS,
		fakegpu.Mixed: report.RouteTakenCuFileUnknown} {
		for _, api := range apis() {
			t.Run(fmt.Sprint(want, "/", api), func(t *testing.T) {
				r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{Route: route}, DirectPath{})
				if api == report.CuFileBatch && route != fakegpu.Mixed {
					r.fake.CountBatchesApart()
				}
				_, rep := loadGPU(t, r.gpu, r.e, r.dev, openFile(t, path), report.RouteCuFile)
				if len(rep.Routes) != 1 || rep.Routes[0].Route != want || rep.Routes[0].Bytes != 300_000 {
					t.Errorf("routes %+v of %+v", rep.Routes, rep.CuFile.Counters)
				}
				if route == fakegpu.Mixed && (rep.CuFile.Counters.Reads.Posix == 0 || rep.CuFile.Counters.Reads.P2P == 0 ||
					!strings.Contains(strings.Join(rep.Notes, "\n"), "unknown")) {
					t.Errorf("%+v, %q", rep.CuFile.Counters, rep.Notes)
				}
			})
		}
	}
}

func TestCuFileOfOthersIsLeftAsItIs(t *testing.T) {
	path, want := writeFile(t, 300_000, 44)
	r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{}, DirectPath{})
	r.fake.OpenDriver(0)
	got, rep := loadGPU(t, r.gpu, r.e, r.dev, openFile(t, path), report.RouteCuFile)
	if !bytes.Equal(got, want) {
		t.Fatal("bytes differ")
	}
	if c := rep.CuFile; !c.Shared || c.Counters != nil || !strings.Contains(c.Uncounted, "settings are not ours") ||
		rep.Routes[0].Route != report.RouteTakenCuFileUnknown {
		t.Errorf("%+v, %+v", c, rep.Routes)
	}
	if r.fake.Count("stats_level") != 0 {
		t.Error("the level of statistics was changed under its owner")
	}
}

// TestAutoTakesCuFileWhereItIsPlausible: absent bytes go through it, cached
// ones do not, and what counters show is remembered.
func TestAutoTakesCuFileWhereItIsPlausible(t *testing.T) {
	path, want := writeFile(t, 5*units.MiB+1234, 45)
	for _, api := range apis() {
		t.Run(string(api), func(t *testing.T) {
			r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{Route: fakegpu.P2P}, DirectPath{Plausible: true})
			f := openFile(t, path)
			requireDirect(t, f)
			dropped(t, f)
			vfstest.Hold(t, path, 0, 2*units.MiB)
			got, rep := loadGPU(t, r.gpu, r.e, r.dev, f, report.RouteAuto)
			if !bytes.Equal(got, want) {
				t.Fatal("bytes differ")
			}
			if c, d := routeBytes(rep, report.RouteTakenCache), routeBytes(rep, report.RouteTakenCuFileP2P); c != 2*units.MiB ||
				d != f.Size()-c {
				t.Errorf("%d cached and %d by cuFile of %d: %+v", c, d, f.Size(), rep.Routes)
			}
			vfstest.Hold(t, path, 0, f.Size())
			if _, rep = loadGPU(t, r.gpu, r.e, r.dev, f, report.RouteAuto); rep.CuFile != nil ||
				routeBytes(rep, report.RouteTakenCache) != f.Size() || refusal(rep, "cufile") != nil {
				t.Errorf("a warm load: %+v %+v", rep.Routes, rep.CuFile)
			}
			if r.asked != 1 {
				t.Errorf("judged %d times, expected once for a device and file system", r.asked)
			}
		})
	}
}

func TestAutoLeavesCuFileWhereItIsNot(t *testing.T) {
	path, want := writeFile(t, 600_000, 46)
	cold := func(t *testing.T, r *cuRig) report.Report {
		t.Helper()
		f := openFile(t, path)
		requireDirect(t, f)
		dropped(t, f)
		got, rep := loadGPU(t, r.gpu, r.e, r.dev, f, report.RouteAuto)
		if !bytes.Equal(got, want) {
			t.Fatal("bytes differ")
		}
		return rep
	}
	t.Run("not plausible", func(t *testing.T) {
		r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{},
			DirectPath{Reason: "a virtual disk", Fix: "an NVMe disk"})
		rep := cold(t, r)
		if x := refusal(rep, "cufile"); x == nil || x.Reason != "a virtual disk" || x.Fix != "an NVMe disk" || x.On != path ||
			rep.CuFile != nil || r.opens != 0 {
			t.Errorf("%+v, %+v, opened %d times", x, rep.CuFile, r.opens)
		}
		if routeBytes(rep, report.RouteTakenDirect) != 600_000 {
			t.Errorf("%+v", rep.Routes)
		}
	})
	t.Run("compat is not tried again", func(t *testing.T) {
		r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{}, DirectPath{Plausible: true})
		if rep := cold(t, r); routeBytes(rep, report.RouteTakenCuFileCompat) != 600_000 {
			t.Fatalf("%+v", rep.Routes)
		}
		rep := cold(t, r)
		if x := refusal(rep, "cufile"); x == nil || !strings.Contains(x.Reason, "posix operations alone") ||
			routeBytes(rep, report.RouteTakenDirect) != 600_000 {
			t.Errorf("%+v, %+v", x, rep.Routes)
		}
		if _, rep := loadGPU(t, r.gpu, r.e, r.dev, openFile(t, path), report.RouteCuFile); routeBytes(rep,
			report.RouteTakenCuFileCompat) != 600_000 {
			t.Errorf("asked for by name: %+v", rep.Routes)
		}
	})
	t.Run("registration refused", func(t *testing.T) {
		r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{Register: 5027}, DirectPath{Plausible: true})
		rep := cold(t, r)
		if x := refusal(rep, "cufile"); x == nil || !strings.Contains(x.Reason, "5027") ||
			!strings.Contains(x.Fix, "/run/udev") || routeBytes(rep, report.RouteTakenDirect) != 600_000 {
			t.Errorf("%+v, %+v", x, rep.Routes)
		}
	})
	t.Run("a read is refused", func(t *testing.T) {
		for _, api := range apis() {
			r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{}, DirectPath{Plausible: true})
			r.fake.Fail("cuFileRead", 0, 1, 5008)
			rep := cold(t, r)
			if x := refusal(rep, "cufile"); x == nil || !strings.Contains(x.Reason, "5008") ||
				routeBytes(rep, report.RouteTakenDirect) == 0 || rep.Bytes != 600_000 {
				t.Errorf("%s: %+v, %+v", api, x, rep.Routes)
			}
		}
	})
	t.Run("verified by the CPU", func(t *testing.T) {
		o := tiny(report.CuFileSync)
		o.VerifyOn = VerifyHost
		r := newCuRig(t, o, fakegpu.CuFileOptions{}, DirectPath{Plausible: true})
		f := openFile(t, path)
		requireDirect(t, f)
		req := whole(r.dev, f, alloc(t, r.dev, f.Size()).Ptr(), report.RouteAuto)
		req.Verify = []*checksum.Sums{sumsOf(t, path, checksum.DefaultBlock)}
		dropped(t, f)
		tr := start(t, r.e, t.Context(), req)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		if x := refusal(tr.Report(), "cufile"); x == nil || !strings.Contains(x.Reason, "verification") || r.opens != 0 {
			t.Errorf("%+v", x)
		}
	})
	t.Run("verified", func(t *testing.T) {
		r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{Route: fakegpu.P2P}, DirectPath{Plausible: true})
		f := openFile(t, path)
		requireDirect(t, f)
		dropped(t, f)
		sums, err := checksum.Compute(t.Context(), path, checksum.DefaultBlock, nil)
		if err != nil {
			t.Fatal(err)
		}
		dropped(t, f)
		b := alloc(t, r.dev, f.Size())
		req := whole(r.dev, f, b.Ptr(), report.RouteAuto)
		req.Verify = []*checksum.Sums{sums}
		tr := start(t, r.e, t.Context(), req)
		if err := tr.Err(); err != nil {
			t.Fatal(err)
		}
		rep := tr.Report()
		if v := rep.Verify; refusal(rep, "cufile") != nil || rep.CuFile == nil || v.Where != "device" ||
			v.DeviceBytes != f.Size() || v.Blocks != int64(len(sums.Blocks)) {
			t.Errorf("%+v, %+v, refused %+v", rep.Routes, v, refusal(rep, "cufile"))
		}
		r.gpu.CheckIdle()
		sums.Blocks[0] ^= 1
		if err := start(t, r.e, t.Context(), req).Err(); !errs.Is(err, errs.Corrupt) ||
			!strings.Contains(err.Error(), "summed on cuda:0") {
			t.Errorf("a wrong block: %v", err)
		}
		sums.Blocks[0] ^= 1
		r.gpu.FailSum(1, fakegpu.LaunchFailed, false)
		if err := start(t, r.e, t.Context(), req).Err(); !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), path) {
			t.Errorf("a sum that fails: %v", err)
		}
		req.Route = report.RouteCuFile
		if _, err := r.e.Start(t.Context(), req); !errs.Is(err, errs.Invalid) || errs.FixOf(err) == "" {
			t.Errorf("cufile and verified: %v", err)
		}
	})
}

func TestCuFileRefusalsFailTheRoute(t *testing.T) {
	path, _ := writeFile(t, 300_000, 47)
	load := func(t *testing.T, e *Engine, d device.Device) error {
		t.Helper()
		f := openFile(t, path)
		b := alloc(t, d, f.Size())
		tr, err := e.Start(t.Context(), whole(d, f, b.Ptr(), report.RouteCuFile))
		if err != nil {
			return err
		}
		return tr.Err()
	}
	t.Run("no udev entry", func(t *testing.T) {
		r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{Register: 5027}, DirectPath{})
		if err := load(t, r.e, r.dev); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), path) ||
			!strings.Contains(errs.FixOf(err), "udev") {
			t.Error(err)
		}
	})
	t.Run("no library", func(t *testing.T) {
		e := newEngine(t, tiny(report.CuFileSync))
		if err := load(t, e, host.Staged()); !errs.Is(err, errs.Unsupported) {
			t.Error(err)
		}
	})
	t.Run("old library", func(t *testing.T) {
		for api, without := range map[report.CuFileAPI]string{report.CuFileAsync: "cuFileReadAsync",
			report.CuFileBatch: "cuFileBatchIOSetUp"} {
			r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{Without: []string{without}}, DirectPath{})
			if err := load(t, r.e, r.dev); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), without) {
				t.Error(err)
			}
		}
	})
	for _, api := range apis() {
		t.Run("an error of the disk/"+string(api), func(t *testing.T) {
			r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{}, DirectPath{})
			r.fake.Fail("cuFileRead", 2, 1, 5044)
			if err := load(t, r.e, r.dev); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), path) {
				t.Error(err)
			}
			if err := load(t, r.e, r.dev); err != nil {
				t.Errorf("the load after it: %v", err)
			}
		})
		t.Run("truncated/"+string(api), func(t *testing.T) {
			r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{}, DirectPath{})
			name := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(name, make([]byte, 400_000), 0o600); err != nil {
				t.Fatal(err)
			}
			f := openFile(t, name)
			b := alloc(t, r.dev, f.Size())
			if err := os.Truncate(name, 100_000); err != nil {
				t.Fatal(err)
			}
			tr := start(t, r.e, t.Context(), whole(r.dev, f, b.Ptr(), report.RouteCuFile))
			if err := tr.Err(); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "100000") {
				t.Error(err)
			}
		})
		t.Run("cancelled/"+string(api), func(t *testing.T) {
			r := newCuRig(t, tiny(api), fakegpu.CuFileOptions{}, DirectPath{})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			f := openFile(t, path)
			b := alloc(t, r.dev, f.Size())
			tr := start(t, r.e, ctx, whole(r.dev, f, b.Ptr(), report.RouteCuFile))
			if err := tr.Err(); err != nil && !errs.Is(err, errs.Cancelled) {
				t.Error(err)
			}
		})
	}
}

// TestCuFileRegistersWhereItPays: memory is registered once counters have shown
// a direct route, and never in compatibility mode.
func TestCuFileRegistersWhereItPays(t *testing.T) {
	path, want := writeFile(t, leastRegistered+5000, 48)
	for _, route := range []int{fakegpu.P2P, fakegpu.Posix} {
		r := newCuRig(t, Options{}, fakegpu.CuFileOptions{Route: route}, DirectPath{})
		f := openFile(t, path)
		for i := range 2 {
			got, rep := loadGPU(t, r.gpu, r.e, r.dev, f, report.RouteCuFile)
			wanted := int64(0)
			if i == 1 && route == fakegpu.P2P {
				wanted = f.Size()
			}
			if !bytes.Equal(got, want) || rep.CuFile.Registered != wanted {
				t.Errorf("route %d, load %d: %+v", route, i, rep.CuFile)
			}
			if r.fake.Count("buffers") != 0 {
				t.Error("a destination is left registered")
			}
		}
	}
}
