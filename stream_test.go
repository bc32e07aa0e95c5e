// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestTensorsAreUsedWhileOthersArrive is the loop of a consumer: wait for more,
// use it, and ask for the load's last word at the end.
func TestTensorsAreUsedWhileOthersArrive(t *testing.T) {
	path := tiny(t)
	sys := open(t, nebulaio.Options{Devices: "off"})
	ctx := context.Background()
	src, err := sys.OpenSource(ctx, path, nebulaio.SourceOptions{Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	mem := make([]uint64, src.Files()[0].DestSize/8+1)
	l, err := src.StartLoad(ctx, []nebulaio.Destination{{Ptr: nebulaio.Ptr(uintptr(unsafe.Pointer(&mem[0]))),
		Size: int64(8 * len(mem))}}, nebulaio.StartLoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := src.Tensors()
	for known := 0; known < len(all); {
		n, err := l.Ready(ctx, known)
		if err != nil || n <= known {
			t.Fatalf("%d after %d of %d: %v", n, known, len(all), err)
		}
		known = n
	}
	if n, err := l.Ready(ctx, len(all)); err != nil || n != len(all) {
		t.Errorf("%d of %d: %v", n, len(all), err)
	}
	if err := l.Wait(); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(mem)
}

func TestChecksumsOfASource(t *testing.T) {
	path := tiny(t)
	sys := open(t, nebulaio.Options{Devices: "off"})
	ctx, cancel := context.WithCancel(context.Background())
	src, err := sys.OpenSource(ctx, path, nebulaio.SourceOptions{Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	c := src.StartChecksums(ctx)
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if r := c.Report(); len(r.Files) != 1 || r.Files[0].Path != checksum.Path(path) || r.Bytes != src.Files()[0].Size ||
		r.Error != "" {
		t.Errorf("%+v", r)
	}
	m, err := sys.Load(ctx, path, nebulaio.LoadOptions{Device: "host", Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Free(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(checksum.Path(path)); err != nil {
		t.Fatal(err)
	}
	cancel()
	c = src.StartChecksums(ctx)
	if err := c.Wait(); !errs.Is(err, errs.Cancelled) || c.Report().Error == "" {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := os.Stat(checksum.Path(path)); err == nil {
		t.Error("a cancelled job left checksums behind")
	}
}
