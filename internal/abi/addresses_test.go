// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// An address that the bytes cannot begin at is refused, and not a panic: NULL, and what is left of a failed mmap.
func TestAddressesThatCannotHoldTheBytes(t *testing.T) {
	var table abi.Table
	c := &caller{T: t}
	system, err := table.OpenSystem(`{"devices":"off"}`)
	c.must(err)
	path := tiny(t)
	model, err := table.OpenModel(system, path, `{"device":"host"}`)
	c.must(err)
	file, err := table.OpenFile(system, path, "r+", `{"device":"host"}`)
	c.must(err)
	const size = 64 << 20
	for _, at := range []nebulaio.Ptr{0, ^nebulaio.Ptr(0) &^ 4095, ^nebulaio.Ptr(0) - 7} {
		starts := map[string]func() (uint64, error){
			"load": func() (uint64, error) {
				return table.StartLoad(model, []nebulaio.Destination{{Ptr: at, Size: size}}, 0, "")
			},
			"save": func() (uint64, error) {
				tensors := []nebulaio.SaveTensor{{Name: "t", DType: "U8", Shape: []int64{size}, Device: "host", Ptr: at,
					Size: size}}
				return table.StartSave(system, filepath.Join(t.TempDir(), "s"), tensors, 0, "")
			},
			"read":  func() (uint64, error) { return table.StartMove(file, false, at, size, 0, 0, "") },
			"write": func() (uint64, error) { return table.StartMove(file, true, at, size, 0, 0, "") },
		}
		for name, start := range starts {
			job, err := start()
			if err == nil {
				_, _, _, err = table.Wait(job, -1)
				c.must(table.Release(job))
			}
			if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "address") {
				t.Errorf("%s at 0x%x: %v", name, uint64(at), err)
			}
		}
	}
	for _, h := range []uint64{file, model, system} {
		c.must(table.Release(h))
	}
}

// A system that no job uses is released before what was opened from it, which then says so and can still be released.
func TestASystemIsReleasedBeforeItsHandles(t *testing.T) {
	var table abi.Table
	c := &caller{T: t}
	system, err := table.OpenSystem(`{"devices":"off"}`)
	c.must(err)
	path := tiny(t)
	model, err := table.OpenModel(system, path, `{"device":"host"}`)
	c.must(err)
	file, err := table.OpenFile(system, path, "r", `{"device":"host"}`)
	c.must(err)
	c.must(table.Release(system))
	mem := make([]byte, 16<<20)
	at := address(t, mem)
	if _, err := table.StartLoad(model, []nebulaio.Destination{{Ptr: at, Size: 8 << 20}}, 0, ""); !errs.Is(err,
		errs.Closed) {
		t.Errorf("load: %v", err)
	}
	if _, err := table.StartMove(file, false, at, 16, 0, 0, ""); !errs.Is(err, errs.Closed) {
		t.Errorf("read: %v", err)
	}
	if _, err := table.OpenModel(system, path, ""); !errs.Is(err, errs.Closed) {
		t.Errorf("open: %v", err)
	}
	c.must(table.Release(model))
	c.must(table.Release(file))
}

// address pins memory for as long as the test runs.
func address(t *testing.T, mem []byte) nebulaio.Ptr {
	var pin runtime.Pinner
	pin.Pin(&mem[0])
	t.Cleanup(pin.Unpin)
	return nebulaio.Ptr((uintptr(unsafe.Pointer(&mem[0])) + 4095) &^ 4095)
}
