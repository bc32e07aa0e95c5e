// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/report"
)

// Ptr is an address in the memory of a device. For the device "host", a Ptr is a virtual address of this process.
type Ptr uint64

// DeviceMode chooses whether a System uses GPUs.
type DeviceMode string

const (
	// DevicesAuto, the default, uses a GPU if one works, else host memory.
	DevicesAuto DeviceMode = "auto"
	// DevicesRequire makes NewSystem fail if no GPU works.
	DevicesRequire DeviceMode = "require"
	// DevicesOff makes the System use host memory only, without a search for GPUs.
	DevicesOff DeviceMode = "off"
)

// DeviceKind is the kind of a device: host memory or an NVIDIA GPU.
type DeviceKind = report.DeviceKind

const (
	// HostDevice is the kind of the device "host": ordinary memory of this machine, without a GPU.
	HostDevice = report.HostDevice
	// CUDADevice is the kind of an NVIDIA GPU.
	CUDADevice = report.CUDADevice
)

// DeviceInfo describes a device. A field with an unknown value is empty or 0, but an unknown NUMANode is -1.
type DeviceInfo struct {
	ID          string     `json:"id"` // name of the device, such as "host" or "cuda:0"
	Kind        DeviceKind `json:"kind"`
	Model       string     `json:"model"` // product name of the device, such as "NVIDIA H200"
	UUID        string     `json:"uuid,omitempty"`
	PCI         string     `json:"pci,omitempty"`
	NUMANode    int        `json:"numa_node"` // -1 if unknown
	TotalMemory int64      `json:"total_memory"`
	Driver      string     `json:"driver,omitempty"`
	// Facts holds further properties of the device by name, such as the PCIe generation and the BAR1 size.
	Facts map[string]string `json:"facts,omitempty"`
}

// Finding is one library, device or property that a survey of this machine looked for, with the result of the search.
type Finding struct {
	Name   string `json:"name"` // name of the library, device or property, such as "libcuda.so.1"
	Found  bool   `json:"found"`
	Detail string `json:"detail"`           // text from the driver or library about this finding
	Fix    string `json:"fix,omitempty"`    // what the user can do if Found is false
	Needed bool   `json:"needed,omitempty"` // true if no GPU can be used while Found is false
}

// Survey lists the devices and libraries that were found or are missing on this machine.
type Survey struct {
	Mode     DeviceMode   `json:"mode"`
	Devices  []DeviceInfo `json:"devices"` // usable devices; the last one is always "host"
	Findings []Finding    `json:"findings"`
	// NoGPU is the reason why no GPU is usable, or empty if a GPU is usable.
	NoGPU string `json:"no_gpu,omitempty"`
	Fix   string `json:"fix,omitempty"` // what the user can do to make a GPU usable
}

func infoOf(d device.Info) DeviceInfo {
	return DeviceInfo{ID: d.ID, Kind: DeviceKind(d.Kind), Model: d.Model, UUID: d.UUID, PCI: d.PCI, NUMANode: d.NUMANode,
		TotalMemory: d.TotalMemory, Driver: d.Driver, Facts: d.Facts}
}

func surveyOf(s device.Survey) Survey {
	return Survey{Mode: DeviceMode(s.Mode), Devices: convert(s.Devices, infoOf), NoGPU: s.NoGPU, Fix: s.Fix,
		Findings: convert(s.Findings, func(f device.Finding) Finding { return Finding(f) })}
}

// convert converts each element of a list. A nil list stays nil, so that its JSON stays the same.
func convert[From, To any](in []From, each func(From) To) []To {
	if in == nil {
		return nil
	}
	out := make([]To, len(in))
	for i, x := range in {
		out[i] = each(x)
	}
	return out
}
