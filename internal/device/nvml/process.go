// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// processInfo is an entry of nvmlDeviceGetComputeRunningProcesses_v3.
type processInfo struct {
	pid      uint32
	used     uint64
	instance [2]uint32
}

// unknownMemory is the used memory of a process whose memory the driver does not tell.
const unknownMemory = 1<<64 - 1

// mostProcesses limits how many processes of one GPU are listed.
const mostProcesses = 1 << 16

// invalidSize is the result of a list that is longer than the memory that was given for it.
const invalidSize = 7

// Memory returns the used and total memory of the GPU at a PCI address, and the memory that a process uses on it. The
// field Bytes is 0 if the process is not on the GPU's list, and -1 if the list or its entry cannot be read.
func (l *Library) Memory(pci string, pid int) (device.ProcessMemory, error) {
	m := device.ProcessMemory{Bytes: -1}
	info := l.lib.Lookup("nvmlDeviceGetMemoryInfo")
	if l.handleByPCI == 0 || info == 0 {
		return m, errs.New(errs.Unsupported, "read the memory of", pci, l.lib.Name()+
			" lacks nvmlDeviceGetHandleByPciBusId_v2 or nvmlDeviceGetMemoryInfo").WithFix("reinstall the NVIDIA driver")
	}
	bus := append([]byte(pci), 0)
	var h uintptr
	if r := l.handleByPCI.Call(unsafe.Pointer(&bus[0]), unsafe.Pointer(&h)); r != 0 {
		return m, errs.New(errs.Device, "look for GPU", pci, l.errText(r))
	}
	var mem [3]uint64 // total, free, used
	if r := info.Call(h, unsafe.Pointer(&mem)); r != 0 {
		return m, errs.New(errs.Device, "read the memory of GPU", pci, l.errText(r))
	}
	m.Total, m.Used = int64(mem[0]), int64(mem[2])
	if now, _, ok := numbers(l.mig, h); ok {
		m.MIG = now != 0
	}
	m.Bytes = l.usedBy(h, pid)
	return m, nil
}

// usedBy returns the memory that a process uses on a GPU, or -1 if NVML does not tell.
func (l *Library) usedBy(h uintptr, pid int) int64 {
	list := l.lib.Lookup("nvmlDeviceGetComputeRunningProcesses_v3")
	if list == 0 {
		return -1
	}
	for n := uint32(64); n <= mostProcesses; n *= 2 {
		all := make([]processInfo, n)
		count := n
		switch list.Call(h, unsafe.Pointer(&count), unsafe.Pointer(&all[0])) {
		case 0:
		case invalidSize:
			continue // the list has grown
		default:
			return -1
		}
		for _, p := range all[:min(count, n)] {
			if int(p.pid) != pid {
				continue
			}
			if p.used == unknownMemory {
				return -1
			}
			return int64(p.used)
		}
		return 0
	}
	return -1
}
