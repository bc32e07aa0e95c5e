// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/synth"
	"github.com/nebulaio/nebulaio/test/closing"
)

func tiny(t *testing.T) string {
	t.Helper()
	shapes, err := synth.Shapes("tiny")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if _, err := synth.Write(context.Background(), path, synth.Options{Shapes: shapes, Seed: 5}); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, o nebulaio.Options) *nebulaio.System {
	t.Helper()
	s, err := nebulaio.NewSystem(o)
	return closing.AtEnd(t, s, err)
}

// same fails the test unless every tensor reads back as it is in the file.
func same(t *testing.T, m *nebulaio.Model, path string) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range m.Names() {
		got, err := m.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(file, got) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestLoadToAGPU(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	path := tiny(t)
	s := open(t, nebulaio.Options{Devices: "require", CUDALibrary: g.CUDA, NVMLLibrary: g.NVML})
	for _, c := range [][2]string{{"auto", "cuda:0"}, {"cuda:1", "cuda:1"}, {"host", "host"}} {
		var calls atomic.Int64
		m, err := s.Load(context.Background(), path, nebulaio.LoadOptions{Device: c[0],
			Progress: func(done, total int64) { calls.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		same(t, m, path)
		if r := m.Report(); r.Device.ID != c[1] || r.Path != path || r.Tensors != len(m.Names()) || r.Bytes == 0 ||
			r.Error != "" {
			t.Errorf("%s: report %+v", c[0], r)
		}
		if calls.Load() == 0 {
			t.Error("no progress was told")
		}
		if _, ok := m.Tensor("nobody"); ok {
			t.Error("found a tensor that is not there")
		}
		if _, err := m.Read("nobody"); nebulaio.KindOf(err) != errs.NotFound {
			t.Errorf("got %v", err)
		}
		if err := m.Free(); err != nil {
			t.Error(err)
		}
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	g.CheckFreed()
}

// Each reason for having no GPU has a survey that says so, and the load's
// report does not claim one.
func TestWithoutAGPUTheDeviceIsCalledHost(t *testing.T) {
	path := tiny(t)
	for name, c := range map[string]struct {
		o   fakegpu.Options
		why string
	}{
		"no device":      {fakegpu.Options{InitResult: fakegpu.NoDevice}, "CUDA_ERROR_NO_DEVICE"},
		"missing symbol": {fakegpu.Options{Without: []string{"cuMemcpyHtoDAsync_v2"}}, "cuMemcpyHtoDAsync_v2"},
		"old driver":     {fakegpu.Options{DriverVersion: 11010}, "CUDA 11.1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := fakegpu.Build(t, c.o)
			s := open(t, nebulaio.Options{CUDALibrary: g.CUDA, NVMLLibrary: g.NVML})
			if v := s.Survey(); !strings.Contains(v.NoGPU, c.why) || v.Fix == "" {
				t.Errorf("survey: %+v", v)
			}
			m, err := s.Load(context.Background(), path, nebulaio.LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Free()
			same(t, m, path)
			if r := m.Report(); r.Device.ID != "host" || !strings.Contains(strings.Join(r.Notes, "\n"), "no GPU took part") {
				t.Errorf("report: %+v %q", r.Device, r.Notes)
			}
			if _, err := s.Load(context.Background(), path,
				nebulaio.LoadOptions{Device: "cuda:0"}); nebulaio.KindOf(err) != errs.NotFound ||
				!strings.Contains(err.Error(), c.why) {
				t.Errorf("a device asked for by name: %v", err)
			}
			if _, err := nebulaio.NewSystem(nebulaio.Options{Devices: "require",
				CUDALibrary: g.CUDA}); nebulaio.KindOf(err) != errs.Unsupported || !strings.Contains(err.Error(), c.why) {
				t.Errorf("require: %v", err)
			}
		})
	}
}

func TestAFailedLoadLeavesNothingBehind(t *testing.T) {
	path := tiny(t)
	for name, spoil := range map[string]func(g *fakegpu.GPU){
		"no memory": fakegpu.FailingCall("cuMemAlloc_v2", 0, fakegpu.OutOfMemory),
		// A copy that fails once in a batch goes again.
		"a bad copy": func(g *fakegpu.GPU) { g.Fail(fakegpu.CopyToDevice, 0, 1000, fakegpu.LaunchFailed) },
		"later":      fakegpu.FailingCopy(1, fakegpu.LaunchFailed, false),
		"no stream":  func(g *fakegpu.GPU) { g.Fail("cuStreamCreate", 0, 2, fakegpu.LaunchFailed) },
		"no context": fakegpu.FailingCall("cuDevicePrimaryCtxRetain", 0, fakegpu.OutOfMemory),
		"no event":   fakegpu.FailingCall("cuEventCreate", 0, fakegpu.LaunchFailed),
		// which is no failure
		"not pinned":  func(g *fakegpu.GPU) { g.Fail("cuMemHostRegister_v2", 0, 100, fakegpu.OutOfMemory) },
		"no recorder": fakegpu.FailingCall("cuEventRecord", 0, fakegpu.LaunchFailed),
	} {
		t.Run(name, func(t *testing.T) {
			g := fakegpu.Build(t, fakegpu.Options{})
			s := open(t, nebulaio.Options{Devices: "require", CUDALibrary: g.CUDA, NVMLLibrary: g.NVML})
			spoil(g)
			m, err := s.Load(context.Background(), path, nebulaio.LoadOptions{Device: "cuda:0"})
			if (err == nil) != (name == "not pinned") {
				t.Errorf("got %v", err)
			}
			if err == nil {
				if err := m.Free(); err != nil {
					t.Error(err)
				}
			}
			if n := g.Count("allocations"); n != 0 {
				t.Errorf("%d allocations are left", n)
			}
			g.Heal()
			m, err = s.Load(context.Background(), path, nebulaio.LoadOptions{Device: "cuda:0"})
			if err != nil {
				t.Fatalf("a second load: %v", err)
			}
			same(t, m, path)
			if err := m.Free(); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			g.CheckFreed()
		})
	}
}

func TestCancelledBeforeItBegins(t *testing.T) {
	s := open(t, nebulaio.Options{Devices: "off"})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Load(ctx, tiny(t), nebulaio.LoadOptions{}); nebulaio.KindOf(err) != errs.Cancelled {
		t.Errorf("got %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []nebulaio.Options{{Devices: "perhaps"}, {BufferPoolSize: 1}, {MaxTransferSize: 1}, {Workers: -1},
		{QueueDepth: -1}, {IO: "magic"}} {
		if _, err := nebulaio.NewSystem(o); nebulaio.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
	s := open(t, nebulaio.Options{Devices: "off"})
	path := tiny(t)
	for _, o := range []nebulaio.LoadOptions{{Route: "scenic"}, {Cache: "sometimes"}, {Device: "gpu"},
		{Tensors: []string{"["}}} {
		if _, err := s.Load(context.Background(), path, o); nebulaio.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestVersion(t *testing.T) {
	if v := nebulaio.Version(); v == "" || strings.TrimSpace(v) != v {
		t.Errorf("%q", v)
	}
}
