// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// withFile is a caller on the host that has also opened the file of its model.
func withFile(t *testing.T, mode string) (c *caller, file uint64) {
	t.Helper()
	c = newCaller(t, `{"devices":"off"}`, `{"device":"host"}`)
	file, err := c.OpenFile(c.system, c.desc.Files[0].Path, mode, `{"device":"host"}`)
	c.must(err)
	return c, file
}

// An address that the bytes cannot begin at is refused, and not a panic: NULL, and what is left of a failed mmap.
func TestAddressesThatCannotHoldTheBytes(t *testing.T) {
	c, file := withFile(t, "r+")
	const size = 64 << 20
	for _, at := range []nebulaio.Ptr{0, ^nebulaio.Ptr(0) &^ 4095, ^nebulaio.Ptr(0) - 7} {
		starts := map[string]func() (uint64, error){
			"load": func() (uint64, error) {
				return c.StartLoad(c.model, []nebulaio.Destination{{Ptr: at, Size: size}}, 0, "")
			},
			"save": func() (uint64, error) {
				tensors := []nebulaio.SaveTensor{{Name: "t", DType: "U8", Shape: []int64{size}, Device: "host", Ptr: at,
					Size: size}}
				return c.StartSave(c.system, filepath.Join(t.TempDir(), "s"), tensors, 0, "")
			},
			"read":  func() (uint64, error) { return c.StartMove(file, false, at, size, 0, 0, "") },
			"write": func() (uint64, error) { return c.StartMove(file, true, at, size, 0, 0, "") },
		}
		for name, start := range starts {
			job, err := start()
			if err == nil {
				_, _, _, err = c.Wait(job, -1)
				c.must(c.Release(job))
			}
			if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "address") {
				t.Errorf("%s at 0x%x: %v", name, uint64(at), err)
			}
		}
	}
	c.release(file, c.model, c.system)
}

// A system that no job uses is released before what was opened from it, which then says so and can still be released.
func TestASystemIsReleasedBeforeItsHandles(t *testing.T) {
	c, file := withFile(t, "r")
	c.must(c.Release(c.system))
	mem := make([]byte, 16<<20)
	at := address(t, mem)
	if _, err := c.StartLoad(c.model, []nebulaio.Destination{{Ptr: at, Size: 8 << 20}}, 0, ""); !errs.Is(err,
		errs.Closed) {
		t.Errorf("load: %v", err)
	}
	if _, err := c.StartMove(file, false, at, 16, 0, 0, ""); !errs.Is(err, errs.Closed) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.OpenModel(c.system, c.desc.Files[0].Path, ""); !errs.Is(err, errs.Closed) {
		t.Errorf("open: %v", err)
	}
	c.must(c.Release(c.model))
	c.must(c.Release(file))
}

// address pins memory for as long as the test runs.
func address(t *testing.T, mem []byte) nebulaio.Ptr {
	var pin runtime.Pinner
	pin.Pin(&mem[0])
	t.Cleanup(pin.Unpin)
	return nebulaio.Ptr((uintptr(unsafe.Pointer(&mem[0])) + 4095) &^ 4095)
}
