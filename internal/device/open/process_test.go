// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/test/effort"
)

func newProcesses(t *testing.T, g *fakegpu.GPU) device.Processes {
	t.Helper()
	p, err := open.Processes(g.Options(device.Auto))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n := g.Sessions(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
	return p
}

func wantState(t *testing.T, p device.Processes, pid int, want device.ProcessState) {
	t.Helper()
	if s, err := p.State(pid); s != want || err != nil {
		t.Errorf("state %q, %v; expected %q", s, err, want)
	}
}

func TestAProcessGoesOutAndComesBack(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	mem := g.Process(77, 1, 1<<20)
	copy(mem, "content")
	p := newProcesses(t, g)
	if p.Driver() != "999.1.2 (CUDA 13.0)" {
		t.Errorf("driver %q", p.Driver())
	}
	used := func() int64 {
		t.Helper()
		m, err := p.Memory(77)
		if err != nil || len(m) != 2 || m[1].GPU != "cuda:1" || m[1].Total != 1<<30 || m[1].UUID == "" {
			t.Fatalf("%+v, %v", m, err)
		}
		if m[1].Used != 4<<20+m[1].Bytes {
			t.Errorf("%+v", m[1])
		}
		return m[1].Bytes
	}
	if used() != 1<<20 {
		t.Errorf("%d bytes", used())
	}
	wantState(t, p, 77, device.ProcessRunning)
	if err := p.Checkpoint(77); !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), "ILLEGAL_STATE") {
		t.Errorf("a running process: %v", err)
	}
	if err := p.Lock(77, time.Second); err != nil {
		t.Fatal(err)
	}
	wantState(t, p, 77, device.ProcessLocked)
	if err := p.Checkpoint(77); err != nil {
		t.Fatal(err)
	}
	wantState(t, p, 77, device.ProcessSuspended)
	if used() != 0 {
		t.Errorf("%d bytes while suspended", used())
	}
	if tid, err := p.RestoreThread(77); tid != 78 || err != nil {
		t.Errorf("%d, %v", tid, err)
	}
	if err := p.Restore(77, nil); err != nil {
		t.Fatal(err)
	}
	wantState(t, p, 77, device.ProcessLocked)
	if err := p.Unlock(77); err != nil {
		t.Fatal(err)
	}
	wantState(t, p, 77, device.ProcessRunning)
	if used() != 1<<20 || !bytes.HasPrefix(g.ProcessMemory(77, 1), []byte("content")) {
		t.Errorf("%d bytes", used())
	}
}

func TestPairsOfGPUs(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	g.Process(77, 0, 4096)
	p := newProcesses(t, g)
	for _, step := range []error{p.Lock(77, time.Second), p.Checkpoint(77)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	uuid := func(n byte) (u [16]byte) {
		for i := range u {
			u[i] = 0x10 + n
		}
		return u
	}
	if err := p.Restore(77, []device.GPUPair{{Old: uuid(1), New: uuid(0)}}); !errs.Is(err, errs.Device) {
		t.Errorf("a GPU is missing: %v", err)
	}
	wantState(t, p, 77, device.ProcessSuspended)
	if err := p.Restore(77, []device.GPUPair{{Old: uuid(0), New: uuid(1)}, {Old: uuid(1), New: uuid(0)}}); err != nil {
		t.Fatal(err)
	}
	if g.ProcessMemory(77, 0) != nil || len(g.ProcessMemory(77, 1)) != 4096 {
		t.Error("the memory is not on the other GPU")
	}
}

func TestDriversThatCannotSuspend(t *testing.T) {
	effort.Slow(t)
	for _, name := range []string{"cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore",
		"cuCheckpointProcessUnlock", "cuCheckpointProcessGetState", "cuCheckpointProcessGetRestoreThreadId"} {
		g := fakegpu.Build(t, fakegpu.Options{Without: []string{name}, DriverVersion: 12040})
		_, err := open.Processes(g.Options(device.Auto))
		if !errs.Is(err, errs.Unsupported) || !containsAll(err.Error(), name, "CUDA 12.4") ||
			!strings.Contains(errs.FixOf(err), "570") {
			t.Errorf("%v", err)
		}
	}
	none := open.Options{CUDALibraries: []string{"no-such-library.so.9"}}
	if _, err := open.Processes(none); !errs.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
}

func TestErrorsOfProcessCalls(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	g.Process(77, 0, 4096)
	p := newProcesses(t, g)
	if _, err := p.State(78); !errs.Is(err, errs.Device) || !containsAll(err.Error(), "78", "INVALID_VALUE") ||
		errs.FixOf(err) == "" {
		t.Errorf("an unknown process: %v", err)
	}
	g.Busy(77, 1)
	if err := p.Lock(77, time.Millisecond); !p.IsTimeout(err) {
		t.Errorf("a busy process: %v", err)
	}
	wantState(t, p, 77, device.ProcessRunning)
	if err := p.Lock(77, 0); err != nil {
		t.Error(err)
	}
	g.Fail("cuCheckpointProcessCheckpoint", 0, 1, fakegpu.NotSupported)
	if err := p.Checkpoint(77); !errs.Is(err, errs.Unsupported) || !strings.Contains(errs.FixOf(err), "IPC") {
		t.Errorf("a process that cannot be suspended: %v", err)
	}
	g.Fail("cuCheckpointProcessUnlock", 0, 1, fakegpu.IllegalState)
	if err := p.Unlock(77); !errs.Is(err, errs.Device) {
		t.Errorf("a failed unlock: %v", err)
	}
	g.HideMemory()
	if m, err := p.Memory(77); err != nil || len(m) != 1 || m[0].Bytes != -1 || m[0].Used <= 4096 {
		t.Errorf("hidden memory: %+v, %v", m, err)
	}
	without := fakegpu.Build(t, fakegpu.Options{NVMLInit: 9})
	q, err := open.Processes(without.Options(device.Auto))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Memory(77); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "Driver Not Loaded") {
		t.Errorf("no NVML: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

func TestMemoryIsHandedToTheCaller(t *testing.T) {
	old := newProcesses(t, fakegpu.Build(t, fakegpu.Options{}))
	if err := old.Storage(); !errs.Is(err, errs.Unsupported) || !containsAll(err.Error(), "13.0", "13.4") {
		t.Errorf("an old driver: %v", err)
	}
	if _, err := old.CheckpointOut(77); !errs.Is(err, errs.Unsupported) {
		t.Errorf("an old driver: %v", err)
	}
	if _, err := old.RestoreIn(77, nil); !errs.Is(err, errs.Unsupported) {
		t.Errorf("an old driver: %v", err)
	}
	no := newProcesses(t, fakegpu.Build(t, fakegpu.Options{DriverVersion: 13040,
		Without: []string{"cuGetProcAddress_v2"}}))
	if err := no.Storage(); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "cuGetProcAddress_v2") {
		t.Errorf("a driver without the symbol: %v", err)
	}

	g := fakegpu.Build(t, fakegpu.Options{Devices: 2, DriverVersion: 13040})
	for n := range 2 {
		copy(g.Process(77, n, 8192), []string{"first", "second"}[n])
	}
	p := newProcesses(t, g)
	if err := p.Storage(); err != nil {
		t.Fatal(err)
	}
	if err := p.Lock(77, time.Second); err != nil {
		t.Fatal(err)
	}
	out, err := p.CheckpointOut(77)
	if err != nil {
		t.Fatal(err)
	}
	var saved [2][]byte
	for i, r := range out.Regions() {
		if r.GPU != i || r.Size != 8192 || r.Stream == 0 {
			t.Errorf("%+v", r)
		}
		saved[i] = bytes.Clone(g.Bytes(r.Ptr, r.Size))
	}
	if err := out.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := out.Complete(); !errs.Is(err, errs.Device) {
		t.Errorf("completed twice: %v", err)
	}
	wantState(t, p, 77, device.ProcessSuspended)
	if err := p.Restore(77, nil); !errs.Is(err, errs.Device) {
		t.Errorf("the content is not in host memory: %v", err)
	}
	in, err := p.RestoreIn(77, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range in.Regions() {
		copy(g.Bytes(r.Ptr, r.Size), saved[i])
	}
	if err := in.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := p.Unlock(77); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(g.ProcessMemory(77, 1), []byte("second")) {
		t.Error("the content is wrong")
	}
	if g.Retained(0) != 0 {
		t.Error("a context is left")
	}
}
