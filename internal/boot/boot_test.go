// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// begin opens a system on the fake GPU and starts to load a small file.
func begin(t *testing.T, g *fakegpu.GPU) (*boot.System, *transfer.Load, device.Buffer) {
	t.Helper()
	s, err := boot.New(boot.Options{Devices: g.Options(device.Require)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Devices.Open(context.Background(), "cuda:0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b, err := d.Alloc(f.Size())
	if err != nil {
		t.Fatal(err)
	}
	tr, err := s.Engine.Start(context.Background(), transfer.Request{Device: d, Files: []*vfs.File{f},
		Segments: []transfer.Segment{{Len: f.Size(), Dst: b.Ptr()}}})
	if err != nil {
		t.Fatal(err)
	}
	return s, tr, b
}

func TestNothingIsTakenBeforeTheFirstLoad(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	s, err := boot.New(boot.Options{Devices: g.Options(device.Require)})
	if err != nil {
		t.Fatal(err)
	}
	if g.Retains(0) != 0 || g.Count("registered_ranges") != 0 || g.Count("streams") != 0 {
		t.Error("a context, pinned memory or a stream was taken")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	g.CheckFreed()
}

func TestCloseFailsWhileALoadRunsAndWorksAfter(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	g.Hold(0)
	s, tr, b := begin(t, g)
	g.Await("copies_held", 1)
	if err := s.Close(); !errs.Is(err, errs.Invalid) {
		t.Errorf("got %v", err)
	}
	if g.Retained(0) != 1 {
		t.Error("the device was closed under a running load")
	}
	g.Release()
	if err := tr.Err(); err != nil {
		t.Error(err)
	}
	if err := b.Free(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	g.CheckFreed()
}

// A GPU that has failed makes Close fail too, and is still given back.
func TestCloseGivesABrokenDeviceBack(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	g.FailCopy(1, fakegpu.LaunchFailed, true)
	s, tr, b := begin(t, g)
	if err := tr.Err(); !errs.Is(err, errs.Device) {
		t.Errorf("got %v", err)
	}
	if err := b.Free(); !errs.Is(err, errs.Device) {
		t.Errorf("free: %v", err)
	}
	if err := s.Close(); !errs.Is(err, errs.Device) {
		t.Errorf("close: %v", err)
	}
	g.CheckFreed()
}

func TestOptionsThatCannotWork(t *testing.T) {
	if _, err := boot.New(boot.Options{Engine: transfer.Options{Workers: -1}}); !errs.Is(err, errs.Invalid) {
		t.Errorf("got %v", err)
	}
	if _, err := boot.New(boot.Options{Devices: open.Options{Mode: device.Require,
		CUDALibraries: []string{"no-such-library.so.9"}}}); !errs.Is(err, errs.Unsupported) {
		t.Errorf("got %v", err)
	}
}

// A process without descriptors gets an error: the Go runtime ends a process that has none for its poller.
func TestNoDescriptorsAreAnError(t *testing.T) {
	next, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(next)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = uint64(next) + 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err = boot.New(boot.Options{Devices: open.Options{Mode: device.Off}})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errs.Is(err, errs.IO) || !strings.Contains(errs.FixOf(err), "ulimit -n") {
		t.Errorf("%v", err)
	}
}

func TestOwnRuntimeRaisesParallelism(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	boot.OwnRuntime()
	if n := runtime.GOMAXPROCS(0); n < 16 {
		t.Errorf("%d", n)
	}
	runtime.GOMAXPROCS(64)
	boot.OwnRuntime()
	if n := runtime.GOMAXPROCS(0); n != 64 {
		t.Errorf("a larger setting was lowered to %d", n)
	}
}

// A pool size that is given is for all GPUs together; each has its part.
func TestSeveralGPUsShareTheGivenStaging(t *testing.T) {
	for _, c := range []struct {
		gpus  int
		ids   []int
		pool  int64
		share int64 // what one may have at most
		least int64
	}{
		{gpus: 1, pool: 16 << 20, share: 16 << 20, least: 5 << 20},
		{gpus: 4, pool: 16 << 20, share: 4 << 20, least: 1 << 20},
		{gpus: 4, ids: []int{1, 2}, pool: 16 << 20, share: 8 << 20, least: 5 << 20},
		{gpus: 2, share: transfer.DefaultPoolSize, least: 32 << 20},
	} {
		g := fakegpu.Build(t, fakegpu.Options{Devices: c.gpus})
		s, err := boot.New(boot.Options{Devices: g.Options(device.Require), DeviceIDs: c.ids,
			Engine: transfer.Options{PoolSize: c.pool}})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, make([]byte, 5000), 0o600); err != nil {
			t.Fatal(err)
		}
		for n := range min(2, c.gpus) {
			d, err := s.Devices.Open(context.Background(), fmt.Sprintf("cuda:%d", n))
			if err != nil {
				t.Fatal(err)
			}
			f, err := vfs.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b, err := d.Alloc(f.Size())
			if err != nil {
				t.Fatal(err)
			}
			tr, err := s.Engine.Start(context.Background(),
				transfer.Request{Device: d, Files: []*vfs.File{f}, Segments: []transfer.Segment{{Len: f.Size(), Dst: b.Ptr()}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.Err(); err != nil {
				t.Fatal(err)
			}
			if got := tr.Report().Engine.StagingSize; got > c.share || got < c.least {
				t.Errorf("%d GPUs, %v used, pool %d: %s has %d bytes, expected %d to %d", c.gpus, c.ids, c.pool, d.Info().ID, got,
					c.least, c.share)
			}
			if err := b.Free(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		g.CheckFreed()
	}
}
