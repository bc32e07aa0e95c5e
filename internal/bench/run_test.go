// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench"
	"github.com/nebulaio/nebulaio/internal/bench/dataset"
	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
	"github.com/nebulaio/nebulaio/test/closing"
)

// files makes a set of n files of size bytes in each of groups directories.
func files(t *testing.T, groups, n int, size int64, empty bool) *dataset.Set {
	t.Helper()
	o := dataset.Options{Files: n, FileSize: size, Seed: 5, Empty: empty}
	for range groups {
		o.Paths = append(o.Paths, t.TempDir())
	}
	s, err := dataset.Open(t.Context(), o)
	return closing.AtEnd(t, s, err)
}

func engine(t *testing.T) *transfer.Engine {
	t.Helper()
	e, err := transfer.New(transfer.Options{PoolSize: 4 << 20})
	return closing.AtEnd(t, e, err)
}

// whole checks what holds of every finished run, and that it can be read again.
func whole(t *testing.T, r record.Run, bytes int64) {
	t.Helper()
	if r.Bytes != bytes || r.Last.Bytes != bytes || r.Seconds <= 0 || r.GBps <= 0 {
		t.Errorf("%s: %d bytes of %d in %v s", r.Name, r.Bytes, bytes, r.Seconds)
	}
	var routed int64
	for _, x := range r.Routes {
		routed += x.Bytes
	}
	if routed != bytes || r.Proof == "" {
		t.Errorf("%s: routes %v of %d bytes, proof %q", r.Name, r.Routes, bytes, r.Proof)
	}
	if v := r.Verify; v != nil && (v.Bytes != bytes || v.Mismatches != 0 || v.Where == "") {
		t.Errorf("%s: verified %+v", r.Name, *v)
	}
	if l := r.Latency; l != nil && !(l.Min <= l.P50 && l.P50 <= l.P90 && l.P90 <= l.P99 && l.P99 <= l.P999 &&
		l.P999 <= l.Max) {
		t.Errorf("%s: latency %+v", r.Name, *l)
	}
	if l := r.Latency; l != nil {
		var n int64
		for _, b := range l.Buckets {
			n += b.Count
		}
		if n != r.Ops {
			t.Errorf("%s: %d latencies of %d requests", r.Name, n, r.Ops)
		}
	}
	parsed(t, record.File{Schema: record.Schema, Tool: "nebulaio bench", Version: "x", Command: []string{"x"},
		Started: time.Now(), Runs: []record.Run{r}})
}

func parsed(t *testing.T, f record.File) {
	t.Helper()
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := record.Parse("result", b); err != nil {
		t.Errorf("what a run gives cannot be read again: %v", err)
	}
}

var memories = []bench.Memory{bench.Host, bench.Pageable, bench.Pinned, bench.Engine}

// Every way to the device, in both orders and on both routes, moves every byte
// of a stripe of odd sizes to where it belongs.
func TestReadsArriveWhole(t *testing.T) {
	set := files(t, 2, 2, 1<<20+777, false)
	e := engine(t)
	direct, _ := set.Files()[0].Direct()
	for _, m := range memories {
		for _, p := range []bench.Pattern{bench.Sequential, bench.Random} {
			for _, route := range []bench.Route{bench.Direct, bench.Buffered} {
				if route == bench.Direct && !direct {
					continue
				}
				t.Run(strings.Join([]string{string(m), string(p), string(route)}, "/"), func(t *testing.T) {
					r, err := bench.Run(t.Context(), bench.Job{Set: set, Device: host.Staged(), Engine: e,
						Spec: bench.Spec{Memory: m, Pattern: p, Route: route, BlockSize: 128 << 10, Workers: 3, QueueDepth: 2,
							Verify: true}})
					if err != nil {
						t.Fatal(err)
					}
					whole(t, r, set.Bytes())
					if r.Interrupted || r.Verify == nil {
						t.Errorf("%+v", r)
					}
				})
			}
		}
	}
}

func TestReadsByRing(t *testing.T) {
	set := files(t, 1, 2, 1<<20+4096, false)
	for _, m := range []bench.Memory{bench.Host, bench.Pinned} {
		r, err := bench.Run(t.Context(), bench.Job{Set: set, Device: host.Staged(),
			Spec: bench.Spec{Memory: m, IO: bench.Uring, BlockSize: 64 << 10, Workers: 2, QueueDepth: 8, Verify: true,
				Pattern: bench.Random}})
		if errs.Is(err, errs.Unsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		whole(t, r, set.Bytes())
	}
}

func TestWritesArriveWhole(t *testing.T) {
	for _, m := range []bench.Memory{bench.Host, bench.Pageable, bench.Pinned} {
		for _, route := range []bench.Route{bench.Auto, bench.Buffered} {
			set := files(t, 2, 1, 1<<20+333, true)
			r, err := bench.Run(t.Context(), bench.Job{Set: set, Device: host.Staged(),
				Spec: bench.Spec{Op: bench.Write, Memory: m, Route: route, BlockSize: 64 << 10, Workers: 3, Verify: true,
					Pattern: bench.Random}})
			if err != nil {
				t.Fatal(err)
			}
			whole(t, r, set.Bytes())
		}
	}
}

// On a GPU nothing is left behind, on success or failure.
func TestGPURunsLeaveNothingBehind(t *testing.T) {
	set := files(t, 1, 1, 2<<20, false)
	for _, c := range []struct {
		memory bench.Memory
		fail   bool
	}{{bench.Pageable, false}, {bench.Pinned, false}, {bench.Engine, false}, {bench.Pinned, true}} {
		g := fakegpu.Build(t, fakegpu.Options{})
		devices, err := open.New(g.Options(device.Require))
		if err != nil {
			t.Fatal(err)
		}
		d, err := devices.Open(t.Context(), "cuda:0")
		if err != nil {
			t.Fatal(err)
		}
		if c.fail {
			g.FailCopy(3, fakegpu.LaunchFailed, false)
		}
		e, err := transfer.New(transfer.Options{PoolSize: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		r, err := bench.Run(t.Context(), bench.Job{Set: set, Device: d, Engine: e,
			Spec: bench.Spec{Memory: c.memory, BlockSize: 128 << 10, Workers: 2, QueueDepth: 2, Verify: true}})
		switch {
		case c.fail && !errs.Is(err, errs.Device):
			t.Errorf("a failed copy gave %v", err)
		case !c.fail && err != nil:
			t.Error(err)
		case !c.fail:
			whole(t, r, set.Bytes())
		}
		if err := errors.Join(e.Close(), devices.Close()); err != nil && !c.fail {
			t.Error(err)
		}
		g.CheckFreed()
	}
}

func TestACorruptByteIsFoundAndNamed(t *testing.T) {
	set := files(t, 1, 2, 1<<20, false)
	path := set.Files()[1].Path()
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[300001] ^= 0x10
	// As a disk would: nothing tells that the content is another. The change of
	// rights explains the new change time.
	if err := errors.Join(os.WriteFile(path, b, 0), os.Chtimes(path, was.ModTime(), was.ModTime()),
		os.Chmod(path, was.Mode()^0o040)); err != nil {
		t.Fatal(err)
	}
	for _, m := range memories {
		r, err := bench.Run(t.Context(), bench.Job{Set: set, Device: host.Staged(), Engine: engine(t),
			Spec: bench.Spec{Memory: m, BlockSize: 64 << 10, Verify: true}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Verify.Mismatches != 1 || !strings.Contains(r.Verify.First, path) {
			t.Errorf("%s: %+v", m, *r.Verify)
		}
		if m != bench.Engine && !strings.Contains(r.Verify.First, "offset 300001") {
			t.Errorf("%s: %+v", m, *r.Verify)
		}
	}
}

// The context's end is the run's end, and what was measured is the result.
func TestInterruptedGivesTheResultSoFar(t *testing.T) {
	set := files(t, 1, 1, 1<<20, false)
	for _, m := range memories {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := bench.Run(ctx, bench.Job{Set: set, Device: host.Staged(), Engine: engine(t),
			Spec: bench.Spec{Memory: m, BlockSize: 64 << 10, Time: time.Hour, Cache: bench.AsIs},
			Live: func(l bench.Live) {
				if l.Done > 0 {
					cancel()
				}
			}})
		cancel()
		if err != nil || !r.Interrupted || r.Bytes == 0 {
			t.Errorf("%s: %v, interrupted %v, %d bytes", m, err, r.Interrupted, r.Bytes)
		}
	}
}

func TestTimeEndsARun(t *testing.T) {
	set := files(t, 1, 1, 1<<20, false)
	for _, s := range []bench.Spec{
		{},
		{Route: bench.Buffered, Cache: bench.Cold}, // dropped between passes
		{Memory: bench.Engine, Cache: bench.Warm},
	} {
		s.BlockSize = 64 << 10
		var r record.Run
		// A busy machine may read nothing in a short time.
		for _, s.Time = range []time.Duration{150 * time.Millisecond, 10 * time.Second} {
			var err error
			r, err = bench.Run(t.Context(), bench.Job{Set: set, Device: host.New(), Engine: engine(t), Spec: s})
			if err != nil {
				t.Fatal(err)
			}
			if r.Bytes > 0 {
				break
			}
		}
		if r.Settings.Limit != "time" || r.Bytes == 0 || r.Interrupted {
			t.Errorf("%+v", r)
		}
	}
}

func TestPassesAreCountedOneByOne(t *testing.T) {
	set := files(t, 1, 1, 1<<20, false)
	r, err := bench.Run(t.Context(), bench.Job{Set: set, Spec: bench.Spec{Passes: 3, BlockSize: 64 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Passes) != 3 || r.Bytes != 3<<20 || r.First != nil {
		t.Errorf("%d passes, %d bytes, first %v", len(r.Passes), r.Bytes, r.First)
	}
	r, err = bench.Run(t.Context(), bench.Job{Set: set, Spec: bench.Spec{BlockSize: 64 << 10, Workers: 4}})
	if err != nil {
		t.Fatal(err)
	}
	if r.First == nil || r.First.Bytes > r.Bytes || r.First.Seconds > r.Seconds {
		t.Errorf("first done is %+v of %+v", r.First, r.Last)
	}
}

// What the page cache did is told, and a number of memory is not sold as one
// of storage.
func TestCacheHonesty(t *testing.T) {
	set := files(t, 1, 1, 4<<20, false)
	if set.Files()[0].FS().Memory {
		t.Skip("files are in memory here")
	}
	run := func(s bench.Spec) record.Run {
		t.Helper()
		s.BlockSize = 256 << 10
		r, err := bench.Run(t.Context(), bench.Job{Set: set, Spec: s, Machine: record.Machine{Memory: 1 << 30}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	release := vfstest.Hold(t, set.Files()[0].Path(), 0, 4<<20)
	warm := run(bench.Spec{Route: bench.Buffered, Cache: bench.Warm})
	release()
	if warm.Cache.Before != 4<<20 || warm.Cache.Verdict != "memory" || warm.Routes[0].Route != "page_cache" {
		t.Errorf("warm: %+v, %v", *warm.Cache, warm.Routes)
	}
	if left, err := set.Drop(); err != nil || left > 0 {
		t.Skipf("the kernel keeps %d bytes: %v", left, err)
	}
	if cold := run(bench.Spec{Route: bench.Buffered}); cold.Cache.Before != 0 || cold.Cache.After != 4<<20 ||
		cold.Cache.Verdict == "memory" {
		t.Errorf("cold: %+v, %v", *cold.Cache, cold.Routes)
	}
	if ok, _ := set.Files()[0].Direct(); ok {
		if d := run(bench.Spec{Route: bench.Direct}); d.Cache.After != 0 || d.Cache.Verdict != "storage" ||
			d.Routes[0].Route != "direct" {
			t.Errorf("direct: %+v, %v", *d.Cache, d.Routes)
		}
	}
}

func TestATruncatedFileEndsTheRun(t *testing.T) {
	for _, route := range []bench.Route{bench.Direct, bench.Buffered} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := dataset.Open(t.Context(), dataset.Options{Paths: []string{path}, Files: 1, FileSize: 4096})
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		if ok, _ := set.Files()[0].Direct(); !ok && route == bench.Direct {
			continue
		}
		if err := os.Truncate(path, 1<<19); err != nil {
			t.Fatal(err)
		}
		_, err = bench.Run(t.Context(), bench.Job{Set: set, Spec: bench.Spec{Route: route, BlockSize: 64 << 10}})
		if !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", route, err)
		}
	}
}

func TestDirectIsNotReplacedInSilence(t *testing.T) {
	dir := "/dev/shm"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no /dev/shm")
	}
	set, err := dataset.Open(t.Context(), dataset.Options{Paths: []string{dir}, Files: 1, FileSize: 1 << 20})
	if err != nil {
		t.Skip(err)
	}
	defer set.Close()
	if ok, _ := set.Files()[0].Direct(); ok {
		t.Skip("direct reads work here")
	}
	if _, err := bench.Run(t.Context(), bench.Job{Set: set, Spec: bench.Spec{Route: bench.Direct}}); !errs.Is(err,
		errs.Unsupported) || errs.FixOf(err) == "" {
		t.Errorf("asked for direct: %v", err)
	}
	r, err := bench.Run(t.Context(), bench.Job{Set: set, Spec: bench.Spec{}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Refusals) != 1 || r.Refusals[0].What != "direct" || r.Routes[0].Route != "page_cache" {
		t.Errorf("auto: %+v, %v", r.Refusals, r.Routes)
	}
}

func TestSpecsThatCannotRun(t *testing.T) {
	for name, c := range map[string]struct {
		spec bench.Spec
		kind errs.Kind
		word string
	}{
		"odd block":     {bench.Spec{BlockSize: 1000}, errs.Invalid, "block-size=1000"},
		"tiny block":    {bench.Spec{BlockSize: 1, Route: bench.Buffered}, errs.Invalid, "512 bytes"},
		"workers":       {bench.Spec{Workers: 5000}, errs.Invalid, "workers=5000"},
		"depth":         {bench.Spec{QueueDepth: -1}, errs.Invalid, "queue-depth=-1"},
		"lanes":         {bench.Spec{Workers: 1000, QueueDepth: 1000}, errs.Invalid, "in flight"},
		"memory":        {bench.Spec{Workers: 1000, BlockSize: 1 << 30}, errs.Invalid, "64 GiB"},
		"stable":        {bench.Spec{Stable: 2}, errs.Invalid, "until-stable=2"},
		"engine writes": {bench.Spec{Op: bench.Write, Memory: bench.Engine}, errs.Unsupported, "engine"},
		"ring writes":   {bench.Spec{Op: bench.Write, IO: bench.Uring}, errs.Unsupported, "uring"},
		"cufile through": {bench.Spec{Op: bench.Write, Memory: bench.CuFile, Route: bench.Buffered}, errs.Unsupported,
			"cuFile"},
	} {
		if err := c.spec.Check(); !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
