// SPDX-License-Identifier: Apache-2.0

package fakegpu

import (
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
)

// IllegalState, NotReady and NotSupported are the CUresult codes of the functions for processes.
const (
	IllegalState = 401
	NotReady     = 600
	NotSupported = 801
)

// Process makes the fake driver believe that a process holds size bytes of GPU n, and returns that memory. A process
// may hold memory of several GPUs. The fake libnvidia-ml reports the memory of processes too.
func (g *GPU) Process(pid, n int, size int64) []byte {
	g.tb.Helper()
	hook := g.nvml.Lookup("fake_process_bytes")
	if hook == 0 {
		g.tb.Fatal("the fake libnvidia-ml has no fake_process_bytes")
	}
	g.fn("fake_memory_hook").Call(uintptr(hook))
	return g.Bytes(device.Ptr(g.fn("fake_process").Call(pid, n, int(size))), size)
}

// ProcessMemory returns the memory that a process holds on GPU n now.
func (g *GPU) ProcessMemory(pid, n int) []byte {
	var size uint64
	p := g.fn("fake_process_memory").Call(pid, n, unsafe.Pointer(&size))
	if p == 0 {
		return nil
	}
	return g.Bytes(device.Ptr(p), int64(size))
}

// Busy makes the next locks of a process reach their timeout.
func (g *GPU) Busy(pid, locks int) { g.fn("fake_process_trouble").Call(pid, locks, 0) }

// Breaks makes the state of a process "failed" when a call about it fails.
func (g *GPU) Breaks(pid int) { g.fn("fake_process_trouble").Call(pid, 0, 1) }

// HoldCall holds calls of one function for processes back until ReleaseCall is called, at the latest when the test
// ends.
func (g *GPU) HoldCall(fn string) {
	g.tb.Cleanup(g.ReleaseCall)
	g.fn("fake_hold_call").Call(cstring(fn))
}

// ReleaseCall lets the calls that HoldCall has held back run.
func (g *GPU) ReleaseCall() { g.fn("fake_hold_call").Call(cstring("")) }

// AwaitHeld waits until HoldCall holds a call back.
func (g *GPU) AwaitHeld() { g.fn("fake_await_held").Call() }

// HideMemory makes the fake libnvidia-ml tell no memory of processes, as in some containers.
func (g *GPU) HideMemory() { g.nvml.Lookup("fake_hide_bytes").Call(1) }
