// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/report"
)

// Ptr is an address in a device's memory. On host it is a virtual address of this process.
type Ptr uint64

// DeviceMode says whether a System uses GPUs.
type DeviceMode string

const (
	// DevicesAuto uses a GPU if one works, else host memory. It is the default.
	DevicesAuto DeviceMode = "auto"
	// DevicesRequire fails if no GPU works.
	DevicesRequire DeviceMode = "require"
	// DevicesOff does not look for a GPU.
	DevicesOff DeviceMode = "off"
)

// DeviceKind is a family of devices.
type DeviceKind = report.DeviceKind

const (
	// HostDevice is host memory. No GPU takes part.
	HostDevice = report.HostDevice
	// CUDADevice is an NVIDIA GPU.
	CUDADevice = report.CUDADevice
)

// DeviceInfo describes a device. Unknown facts are zero.
type DeviceInfo struct {
	ID          string     `json:"id"` // "host", "cuda:0"
	Kind        DeviceKind `json:"kind"`
	Model       string     `json:"model"` // "NVIDIA H200", "host memory"
	UUID        string     `json:"uuid,omitempty"`
	PCI         string     `json:"pci,omitempty"`
	NUMANode    int        `json:"numa_node"` // -1 if unknown
	TotalMemory int64      `json:"total_memory"`
	Driver      string     `json:"driver,omitempty"`
	// Facts are further properties by name, as the driver gave them, such as the PCIe generation and the BAR1 size.
	Facts map[string]string `json:"facts,omitempty"`
}

// Finding is one thing that a survey looked for.
type Finding struct {
	Name   string `json:"name"` // such as "libcuda.so.1" or "driver version"
	Found  bool   `json:"found"`
	Detail string `json:"detail"`           // what was seen, in the library's own words
	Fix    string `json:"fix,omitempty"`    // what to do if it is missing
	Needed bool   `json:"needed,omitempty"` // without it there is no GPU
}

// Survey says which devices and libraries were looked for and found on this machine.
type Survey struct {
	Mode     DeviceMode   `json:"mode"`
	Devices  []DeviceInfo `json:"devices"` // usable devices; host is always the last
	Findings []Finding    `json:"findings"`
	// NoGPU says why no GPU is usable. It is empty if one is.
	NoGPU string `json:"no_gpu,omitempty"`
	Fix   string `json:"fix,omitempty"` // what makes a GPU usable
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
