// SPDX-License-Identifier: Apache-2.0

package train

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

func TestCancelLeavesNothingQueued(t *testing.T) {
	files := writtenSet(t, 5000, 15)
	for _, memory := range []string{Pageable, Pinned, Engine, Loader} {
		for _, what := range []string{"copies", "steps"} {
			t.Run(memory+"/"+what, func(t *testing.T) {
				g, d := fakegpu.OpenOne(t)
				c := base(d, files)
				c.Memory, c.Steps = memory, 1000
				var e *transfer.Engine
				if memory == Engine || memory == Loader {
					e, _ = transfer.New(transfer.Options{PoolSize: 2 << 20, MaxTransfer: 128 << 10})
					c.Engine, c.Host = e, host.New()
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c.Progress = func(phase string, done, _ int) {
					if phase == "train" && done == 5 {
						if what == "copies" {
							g.Hold(0)
						} else {
							g.HoldSteps()
						}
					}
				}
				type end struct {
					got record.Train
					err error
				}
				ended := make(chan end, 1)
				go func() {
					got, err := Run(ctx, c)
					ended <- end{got, err}
				}()
				g.Await(what+"_held", 1)
				cancel()
				select {
				case e := <-ended:
					t.Fatalf("ended with work held on the device: %v", e.err)
				default:
				}
				g.Release()
				g.ReleaseSteps()
				r := <-ended
				if !errs.Is(r.err, errs.Cancelled) || !r.got.Interrupted || r.got.Steps < 4 || r.got.Steps >= 1000 ||
					r.got.AU <= 0 {
					t.Errorf("%v with %+v", r.err, r.got)
				}
				if e != nil {
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				g.CheckFreed()
			})
		}
	}
}

func TestCancelBeforeTheRunBegins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := Run(ctx, base(host.New(), writtenSet(t, 5000, 15)))
	if !errs.Is(err, errs.Cancelled) || !got.Interrupted || got.Steps != 0 ||
		got.Bound != string(bottleneck.Unclear) {
		t.Errorf("%v with %+v", err, got)
	}
}

func TestAReadErrorEndsTheRun(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	files := writtenSet(t, 5000, 15)
	boom := errs.New(errs.IO, "read", "sample 7", "the disk is gone")
	var mu sync.Mutex
	reads := 0
	_, err := run(t.Context(), base(d, files), hooks{read: func(int64, []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if reads++; reads == 20 {
			return boom
		}
		return nil
	}})
	if !errors.Is(err, boom) || !errs.Is(err, errs.IO) {
		t.Errorf("got %v", err)
	}
	// For real: a file that became shorter than it was when it was opened.
	if err := os.Truncate(files[0].Path(), 8192); err != nil {
		t.Fatal(err)
	}
	for _, memory := range []string{Pinned, Engine} {
		c := base(d, files)
		c.Memory = memory
		var e *transfer.Engine
		if memory == Engine || memory == Loader {
			e, _ = transfer.New(transfer.Options{})
			c.Engine, c.Host = e, host.New()
		}
		if _, err := Run(t.Context(), c); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), files[0].Path()) {
			t.Errorf("%s: %v", memory, err)
		}
		if e != nil {
			e.Close()
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	g.CheckFreed()
}

func TestADeviceErrorEndsTheRun(t *testing.T) {
	files := writtenSet(t, 5000, 15)
	for name, fail := range map[string]func(g *fakegpu.GPU){
		"a copy":          fakegpu.FailingCopy(7, fakegpu.LaunchFailed, false),
		"a copy for good": fakegpu.FailingCopy(7, fakegpu.LaunchFailed, true),
		"a step":          fakegpu.FailingStep(4, fakegpu.LaunchTimeout, false),
		"a step for good": fakegpu.FailingStep(4, fakegpu.LaunchTimeout, true),
		"a launch":        fakegpu.FailingCall("cuLaunchKernel", 4, fakegpu.LaunchFailed),
		"an order":        fakegpu.FailingCall("cuStreamWaitEvent", 4, fakegpu.LaunchFailed),
		"a queued copy":   func(g *fakegpu.GPU) { g.Fail(fakegpu.CopyToDevice, 6, 1000, fakegpu.LaunchFailed) },
	} {
		t.Run(name, func(t *testing.T) {
			g, d := fakegpu.OpenOne(t)
			fail(g)
			if _, err := Run(t.Context(), base(d, files)); !errs.Is(err, errs.Device) {
				t.Errorf("got %v", err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			g.CheckFreed()
		})
	}
}

func TestWhatCannotBeOpenedIsGivenBack(t *testing.T) {
	files := writtenSet(t, 5000, 15)
	for fn, kind := range map[string]errs.Kind{
		"cuStreamCreate": errs.Device, "cuMemAlloc_v2": errs.NoMemory, "cuMemHostRegister_v2": errs.NoMemory,
		"cuEventCreate": errs.Device, "cuModuleLoadData": errs.Unsupported,
	} {
		code := map[errs.Kind]int{errs.Device: fakegpu.LaunchFailed, errs.NoMemory: fakegpu.OutOfMemory,
			errs.Unsupported: fakegpu.NoJIT}[kind]
		skip := 1
		if fn == "cuModuleLoadData" {
			skip = 0
		}
		g, d := fakegpu.OpenOne(t)
		g.Fail(fn, skip, 1, code)
		_, err := Run(t.Context(), base(d, files))
		if !errs.Is(err, kind) {
			t.Errorf("%s: %v", fn, err)
		}
		if fn == "cuMemAlloc_v2" && (!strings.Contains(err.Error(), "place batch 2 of 3") ||
			!strings.Contains(errs.FixOf(err), "lower prefetch (now 2)")) {
			t.Errorf("%s: %v", fn, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		g.CheckFreed()
	}
	g := fakegpu.Build(t, fakegpu.Options{Without: []string{"cuLaunchKernel"}})
	if _, err := Run(t.Context(), base(g.Open("cuda:0"), files)); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(err.Error(), "cuLaunchKernel") {
		t.Errorf("a driver without kernels: %v", err)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	files := writtenSet(t, 5000, 15)
	g := fakegpu.Build(t, fakegpu.Options{}) // a GiB
	d := g.Open("cuda:0")
	for name, c := range map[string]struct {
		change func(*Config)
		kind   errs.Kind
		text   string
	}{
		"no device":   {func(c *Config) { c.Device = nil }, errs.Invalid, "device"},
		"no files":    {func(c *Config) { c.Files = nil }, errs.Invalid, "at least one file"},
		"a nil file":  {func(c *Config) { c.Files = []*vfs.File{nil} }, errs.Invalid, "files[0]"},
		"sample":      {func(c *Config) { c.SampleBytes = 0 }, errs.Invalid, "sample_bytes=0"},
		"huge sample": {func(c *Config) { c.SampleBytes = 1 << 62 }, errs.Invalid, "sample_bytes"},
		"batch":       {func(c *Config) { c.Batch = -1 }, errs.Invalid, "batch=-1"},
		"steps":       {func(c *Config) { c.Steps = 0 }, errs.Invalid, "steps=0"},
		"warmup":      {func(c *Config) { c.Warmup = -2 }, errs.Invalid, "warmup=-2"},
		"step time":   {func(c *Config) { c.StepTime = -1 }, errs.Invalid, "step_time"},
		"workers":     {func(c *Config) { c.Workers = 5000 }, errs.Invalid, "workers=5000"},
		"prefetch":    {func(c *Config) { c.Prefetch = -1 }, errs.Invalid, "prefetch=-1"},
		"alone":       {func(c *Config) { c.Alone = -1 }, errs.Invalid, "alone=-1"},
		"memory":      {func(c *Config) { c.Memory = "cold" }, errs.Invalid, "pageable, pinned, engine or loader"},
		"route":       {func(c *Config) { c.Route = "north" }, errs.Invalid, "north"},
		"pattern":     {func(c *Config) { c.Pattern = "zigzag" }, errs.Invalid, "sequential or random"},
		"no engine":   {func(c *Config) { c.Memory = Engine }, errs.Invalid, "needs a transfer engine"},
		"small data set": {func(c *Config) { c.Batch = 16 }, errs.Invalid,
			"15 samples of 5000 bytes in 1 files, fewer than one batch"},
		"small samples": {func(c *Config) { c.SampleBytes, c.Route = 100, "direct" }, errs.Invalid,
			"samples lie 100 bytes apart"},
		"device memory": {func(c *Config) { c.Files, c.SampleBytes, c.Batch = huge(t), 200<<20, 2 }, errs.NoMemory,
			"prefetch 2 needs 3 batches of 400.00 MiB, 1.17 GiB in all; the device has 1.00 GiB"},
	} {
		cfg := base(d, files)
		c.change(&cfg)
		if ok, _ := files[0].Direct(); !ok && cfg.Route == "direct" {
			continue
		}
		if _, err := Run(t.Context(), cfg); !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g.CheckIdle()
	if g.Count("allocations") != 0 {
		t.Error("a refused run took memory")
	}
}

// huge is a data set of a gigabyte that takes no room on the disk.
func huge(t *testing.T) []*vfs.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<30); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return []*vfs.File{f}
}
