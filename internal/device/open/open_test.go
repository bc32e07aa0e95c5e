// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/test/closing"
	"github.com/nebulaio/nebulaio/test/effort"
)

func newSet(t *testing.T, o open.Options) device.Set {
	t.Helper()
	s, err := open.New(o)
	return closing.AtEnd(t, s, err)
}

func openDevice(t *testing.T, s device.Set, id string) device.Device {
	t.Helper()
	d, err := s.Open(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// broken lists the ways in which a machine has no usable GPU, the words that
// the reason must have, and those that the remedy must have.
func broken(t *testing.T) []struct {
	name    string
	options func(device.Mode) open.Options
	why     []string
	fix     []string
} {
	build := func(o fakegpu.Options) func(device.Mode) open.Options { return fakegpu.Build(t, o).Options }
	absent := filepath.Join(t.TempDir(), "libcuda.so.1")
	return []struct {
		name    string
		options func(device.Mode) open.Options
		why     []string
		fix     []string
	}{
		{"library absent", func(m device.Mode) open.Options { return open.Options{Mode: m, CUDALibraries: []string{absent}} },
			[]string{absent, "cannot open shared object file"}, []string{"install the NVIDIA driver", "--gpus all"}},
		{"symbol missing", build(fakegpu.Options{Without: []string{"cuMemcpyHtoDAsync_v2"}}),
			[]string{"missing cuMemcpyHtoDAsync_v2"}, []string{"reinstall the driver", "stub"}},
		{"several symbols missing", build(fakegpu.Options{Without: []string{"cuEventQuery", "cuMemAlloc_v2"}}),
			[]string{"cuMemAlloc_v2", "cuEventQuery"}, []string{"11.4"}},
		{"driver too old", build(fakegpu.Options{DriverVersion: 11020}),
			[]string{"11.2", "11.4"}, []string{"driver 470 or newer"}},
		{"old driver explains its missing symbols", build(fakegpu.Options{DriverVersion: 10020,
			Without: []string{"cuDeviceGetUuid_v2", "cuMemcpyDtoHAsync_v2"}}),
			[]string{"10.2", "11.4"}, []string{"driver 470 or newer"}},
		{"no device", build(fakegpu.Options{InitResult: fakegpu.NoDevice}),
			[]string{"cuInit", "CUDA_ERROR_NO_DEVICE", "100"}, []string{"CUDA_VISIBLE_DEVICES", "container"}},
		{"forked after CUDA", build(fakegpu.Options{InitResult: fakegpu.NotInitialized}),
			[]string{"cuInit", "CUDA_ERROR_NOT_INITIALIZED"}, []string{"spawn"}},
		{"driver mismatch", build(fakegpu.Options{InitResult: fakegpu.DriverMismatch}),
			[]string{"cuInit", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, []string{"reboot"}},
		{"driver starting", build(fakegpu.Options{InitResult: 802}),
			[]string{"cuInit", "CUDA_ERROR_SYSTEM_NOT_READY"}, []string{"nvidia-fabricmanager"}},
		{"unknown failure", build(fakegpu.Options{InitResult: 4711}),
			[]string{"cuInit", "4711", "unknown CUDA error"}, []string{"nvidia-smi"}},
		{"zero devices", build(fakegpu.Options{Devices: -1}),
			[]string{"shows no GPU"}, []string{"CUDA_VISIBLE_DEVICES"}},
	}
}

func TestAutoFallsToHostAndSaysWhy(t *testing.T) {
	effort.Slow(t)
	seen := map[string]string{}
	for _, b := range broken(t) {
		t.Run(b.name, func(t *testing.T) {
			s := newSet(t, b.options(device.Auto))
			v := s.Survey()
			if v.Mode != device.Auto {
				t.Errorf("mode %q", v.Mode)
			}
			if !containsAll(v.NoGPU, b.why...) {
				t.Errorf("the reason %q does not have %q", v.NoGPU, b.why)
			}
			if !containsAll(v.Fix, b.fix...) {
				t.Errorf("the fix %q does not have %q", v.Fix, b.fix)
			}
			if strings.Contains(v.NoGPU, "fix:") {
				t.Errorf("the reason repeats the fix: %q", v.NoGPU)
			}
			if other, ok := seen[v.NoGPU]; ok {
				t.Errorf("the reason is the same as for %q: %q", other, v.NoGPU)
			}
			seen[v.NoGPU] = b.name
			if len(v.Devices) != 1 || v.Devices[0].ID != "host" {
				t.Errorf("devices: %+v", v.Devices)
			}
			for _, id := range []string{"", "auto", "host", "cpu"} {
				if d := openDevice(t, s, id); d.Info().Kind != device.Host {
					t.Errorf("%q opened %q", id, d.Info().ID)
				}
			}
			for _, id := range []string{"cuda", "cuda:0"} {
				_, err := s.Open(context.Background(), id)
				if !errs.Is(err, errs.NotFound) || !containsAll(err.Error(), b.why...) || !containsAll(errs.FixOf(err), b.fix...) {
					t.Errorf("opening %q without a GPU: %v", id, err)
				}
			}
		})
	}
}

func TestRequireFailsAndSaysWhy(t *testing.T) {
	for _, b := range broken(t) {
		t.Run(b.name, func(t *testing.T) {
			s, err := open.New(b.options(device.Require))
			if err == nil {
				s.Close()
				t.Fatal("a GPU was required, there is none, and no error came")
			}
			if !errs.Is(err, errs.Unsupported) || !containsAll(err.Error(), b.why...) ||
				!containsAll(errs.FixOf(err), b.fix...) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestFindingsEndAtTheFirstThingMissing(t *testing.T) {
	for _, b := range broken(t) {
		t.Run(b.name, func(t *testing.T) {
			v := newSet(t, b.options(device.Auto)).Survey()
			for i, f := range v.Findings {
				last := i == len(v.Findings)-1
				if b.name == "zero devices" {
					last = false // the driver itself works
				}
				if f.Found == last || !f.Needed || f.Name == "" || f.Detail == "" || (f.Fix == "") == last {
					t.Errorf("finding %d of %d: %+v", i+1, len(v.Findings), f)
				}
			}
		})
	}
}

func TestOffDoesNotLook(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	s := newSet(t, g.Options(device.Off))
	v := s.Survey()
	if len(v.Findings) != 0 || len(v.Devices) != 1 || !containsAll(v.NoGPU, "not looked for", "off") || v.Fix == "" {
		t.Fatalf("%+v", v)
	}
	if g.Sessions() != 0 {
		t.Fatal("libnvidia-ml was initialised")
	}
	if _, err := s.Open(context.Background(), "cuda:0"); !errs.Is(err, errs.NotFound) ||
		!strings.Contains(err.Error(), "not looked for") {
		t.Fatalf("got %v", err)
	}
}

func TestUnknownModeIsRefused(t *testing.T) {
	_, err := open.New(open.Options{Mode: "maybe"})
	if !errs.Is(err, errs.Invalid) || !containsAll(err.Error(), `"maybe"`, "auto, require or off") {
		t.Fatalf("got %v", err)
	}
}

func TestSurveyDescribesEveryGPUAndTakesNone(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	v := newSet(t, g.BuildCuFile(fakegpu.CuFileOptions{}).Options(device.Auto)).Survey()
	if v.NoGPU != "" || v.Fix != "" || len(v.Devices) != 3 {
		t.Fatalf("%+v", v)
	}
	for i, id := range []string{"cuda:0", "cuda:1", "host"} {
		if v.Devices[i].ID != id {
			t.Errorf("device %d is %q, expected %q", i, v.Devices[i].ID, id)
		}
	}
	d := v.Devices[1]
	want := device.Info{ID: "cuda:1", Kind: device.CUDA, Model: "Fake GPU 1",
		UUID: "GPU-11111111-1111-1111-1111-111111111111",
		PCI:  "0000ffff:a1:00.0", NUMANode: -1, TotalMemory: 1 << 30, Driver: "999.1.2 (CUDA 13.0)"}
	if facts := d.Facts; facts["copy_engines"] != "2" || facts["pcie_link"] != "gen 1 x16" ||
		facts["pcie_link_max"] != "gen 5 x16" || facts["bar1_total"] != "274877906944" {
		t.Errorf("facts: %v", facts)
	}
	d.Facts = nil
	if got, exp := toJSON(t, d), toJSON(t, want); got != exp {
		t.Errorf("got  %s\nwant %s", got, exp)
	}
	for _, f := range v.Findings {
		if !f.Found {
			t.Errorf("not found: %+v", f)
		}
	}
	for n := range 2 {
		if g.Retains(n) != 0 {
			t.Errorf("the survey took the context of device %d", n)
		}
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOpeningOneGPUTouchesNoOther(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	s := newSet(t, g.Options(device.Require))
	a, b := openDevice(t, s, "cuda:1"), openDevice(t, s, "cuda:1")
	if a != b {
		t.Error("opening an id again gave another device")
	}
	if g.Retains(0) != 0 || g.Retained(1) != 1 {
		t.Errorf("contexts taken: device 0 %d times, device 1 %d times; expected 0 and 1", g.Retains(0), g.Retained(1))
	}
	if d := openDevice(t, s, "cuda"); d.Info().ID != "cuda:0" {
		t.Errorf("cuda opened %q", d.Info().ID)
	}
	if d := openDevice(t, s, "auto"); d.Info().ID != "cuda:0" {
		t.Errorf("auto opened %q", d.Info().ID)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	g.CheckFreed()
	if _, err := s.Open(context.Background(), "cuda:1"); !errs.Is(err, errs.Closed) {
		t.Errorf("opening from a closed set: %v", err)
	}
}

func TestUnknownIDs(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	s := newSet(t, g.Options(device.Auto))
	for _, id := range []string{"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:01", "cuda:+1", "CUDA:0", "host:0", " cuda"} {
		_, err := s.Open(context.Background(), id)
		if !errs.Is(err, errs.Invalid) || !containsAll(err.Error(), `"`+id+`"`, "expected auto, host, cuda or cuda:N") {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"cuda:2", "cuda:99"} {
		_, err := s.Open(context.Background(), id)
		if !errs.Is(err, errs.NotFound) || !containsAll(err.Error(), id, "there are 2 GPUs, cuda:0 to cuda:1") {
			t.Errorf("%q: %v", id, err)
		}
	}
	if g.Retains(0)+g.Retains(1) != 0 {
		t.Error("a refused id took a context")
	}
}

func TestACancelledContextOpensNothing(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	s := newSet(t, g.Options(device.Auto))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Open(ctx, "cuda:0"); !errs.Is(err, errs.Cancelled) {
		t.Fatalf("got %v", err)
	}
	if g.Retains(0) != 0 {
		t.Fatal("a context was taken")
	}
}

func TestADriverThatRefusesAContextIsADeviceError(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	s := newSet(t, g.Options(device.Require))
	g.Fail("cuDevicePrimaryCtxRetain", 0, 1, 46)
	if _, err := s.Open(context.Background(), "cuda:0"); !errs.Is(err, errs.Device) ||
		!containsAll(err.Error(), "cuda:0", "cuDevicePrimaryCtxRetain", "46") {
		t.Fatalf("got %v", err)
	}
	if d := openDevice(t, s, "cuda:0"); d.Info().ID != "cuda:0" {
		t.Fatal("a second try does not work")
	}
}

func TestNVMLIsNotNeeded(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	all := []string{"nvmlDeviceGetHandleByPciBusId_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion",
		"nvmlDeviceGetBAR1MemoryInfo"}
	for _, c := range []struct {
		name    string
		options fakegpu.Options
		absent  bool
		found   bool
		detail  string
	}{
		{name: "library absent", absent: true, detail: "cannot open shared object file"},
		{name: "without nvmlInit_v2", options: fakegpu.Options{NVMLWithout: []string{"nvmlInit_v2"}},
			detail: "nvmlInit_v2 is missing"},
		{name: "driver not loaded", options: fakegpu.Options{NVMLInit: 9}, detail: "Driver Not Loaded (9)"},
		{name: "failure without words", options: fakegpu.Options{NVMLInit: 9, NVMLWithout: []string{"nvmlErrorString"}},
			detail: "error 9"},
		{name: "without anything else", options: fakegpu.Options{NVMLWithout: all}, found: true, detail: "driver"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := fakegpu.Build(t, c.options)
			o := g.Options(device.Require)
			if c.absent {
				o.NVMLLibraries = []string{absent}
			}
			s := newSet(t, o)
			v := s.Survey()
			f := v.Findings[len(v.Findings)-1]
			if f.Found != c.found || f.Needed || !strings.Contains(f.Detail, c.detail) || (!c.found && f.Fix == "") {
				t.Errorf("finding: %+v", f)
			}
			if again := s.Survey(); len(again.Findings) != len(v.Findings) {
				t.Error("a second survey looked again")
			}
			if v.NoGPU != "" || openDevice(t, s, "cuda:0").Info().Model != "Fake GPU 0" {
				t.Errorf("the GPU is not usable: %q", v.NoGPU)
			}
		})
	}
}

// A survey may be asked for while a device opened before is being described:
// the library's survey command and a load do that.
func TestSurveyAndInfoFromSeveralGoroutines(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	s := newSet(t, g.Options(device.Require))
	d := openDevice(t, s, "cuda:0")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { toJSON(t, d.Info()) })
		wg.Go(func() { toJSON(t, s.Survey()) })
	}
	wg.Wait()
}

func TestStagedHostHidesItsMapping(t *testing.T) {
	for _, staged := range []bool{false, true} {
		s := newSet(t, open.Options{Mode: device.Off, StagedHost: staged})
		if _, ok := openDevice(t, s, "host").(device.Mapper); ok == staged {
			t.Errorf("staged %v: addressable %v", staged, ok)
		}
	}
}
