// SPDX-License-Identifier: Apache-2.0

package transfer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Memory that the caller brings has no pages before the load writes them. A load
// of more than the machine has is refused before it begins, as Python and C see it.
func TestALoadLargerThanMemoryIsRefused(t *testing.T) {
	const size = 2 << 40
	if have := hostmem.FindAvailable("/"); !have.Known || have.Bytes > size/2 {
		t.Skip("the machine has that much memory, or does not tell")
	}
	path := filepath.Join(t.TempDir(), "sparse")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Skipf("no sparse file of 2 TiB: %v", err)
	}
	f, err := vfs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Skipf("no address space of 2 TiB: %v", err)
	}
	defer unix.Munmap(mem)
	e, err := transfer.New(transfer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	at := device.Ptr(uintptr(unsafe.Pointer(&mem[0])))
	for _, dev := range []device.Device{host.New(), host.Staged()} {
		tr, err := e.Start(t.Context(), transfer.Request{Device: dev, Files: []*vfs.File{f},
			Segments: []transfer.Segment{{Len: size, Dst: at}}})
		if tr != nil {
			t.Fatal("a load of 2 TiB to host memory has begun") // and would end the process
		}
		if !errs.Is(err, errs.NoMemory) || !strings.Contains(err.Error(), "2.00 TiB are needed") || errs.FixOf(err) == "" {
			t.Errorf("%v", err)
		}
		// A part of the same memory that fits is loaded.
		tr, err = e.Start(t.Context(), transfer.Request{Device: dev, Files: []*vfs.File{f},
			Segments: []transfer.Segment{{Len: 8 << 20, Dst: at}}})
		if err == nil {
			err = tr.Err()
		}
		if err != nil {
			t.Errorf("8 MiB: %v", err)
		}
	}
}
