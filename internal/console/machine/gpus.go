// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/nebulaio/nebulaio/internal/console/rates"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
)

// GPU is the state of one GPU. A field is null if the driver does not tell.
type GPU struct {
	Index       int      `json:"index"`
	Name        string   `json:"name"`
	PCI         string   `json:"pci"`
	MemoryTotal *int64   `json:"memory_total"`
	MemoryUsed  *int64   `json:"memory_used"`
	Busy        *float64 `json:"busy"`
	Temperature *float64 `json:"temperature"` // degrees Celsius
	Power       *float64 `json:"power"`       // watts
	Clock       *float64 `json:"clock"`       // MHz
	Generation  int      `json:"pcie_generation"`
	Width       int      `json:"pcie_width"`
	MaxGen      int      `json:"pcie_generation_max"`
	MaxWidth    int      `json:"pcie_width_max"`
	Slowed      []string `json:"slowed"` // why the driver lowers the clocks now
}

// readings reads the GPUs by NVML. The first call loads the library.
func (m *Machine) readings() ([]device.GPUReading, error) {
	m.gpus.Lock()
	defer m.gpus.Unlock()
	if m.gauge == nil && m.noGPU == nil {
		m.gauge, m.noGPU = open.Gauge(m.o.Devices)
	}
	if m.noGPU != nil {
		return nil, m.noGPU
	}
	return m.gauge.Read(), nil
}

// GPUs returns the state of all GPUs, and an error if NVML cannot be used.
func (m *Machine) GPUs() ([]GPU, error) {
	all := []GPU{}
	readings, err := m.readings()
	for _, r := range readings {
		all = append(all, GPU{Index: r.Index, Name: r.Model, PCI: r.PCI, MemoryTotal: known(r.MemoryTotal),
			MemoryUsed: known(r.MemoryUsed), Busy: known(r.Busy), Temperature: known(r.Celsius), Power: known(r.Watts),
			Clock: known(r.SMClock), Generation: r.LinkGen, Width: r.LinkWidth, MaxGen: r.LinkGenMax,
			MaxWidth: r.LinkWidthMax, Slowed: append([]string{}, r.Slowed...)})
	}
	return all, err
}

func known[T int64 | float64](v T) *T {
	if v < 0 {
		return nil
	}
	return &v
}

// Counters reads the counters of disks and GPUs for the live charts. Counters are not safe for concurrent use.
type Counters struct {
	m    *Machine
	gpus map[int]device.GPUReading // of the last call
}

// Counters returns a reader of the counters.
func (m *Machine) Counters() *Counters { return &Counters{m: m} }

// Disks returns the counters of all disks since boot.
func (c *Counters) Disks() []rates.Disk { return diskCounters(c.m.o.Tree) }

// GPUs returns the state of all GPUs, or nothing if NVML cannot be used. If the driver counts the bytes of PCIe links,
// their rates are those since the last call.
func (c *Counters) GPUs() []rates.GPU {
	readings, err := c.m.readings()
	if err != nil {
		return nil
	}
	var all []rates.GPU
	now := map[int]device.GPUReading{}
	for _, r := range readings {
		now[r.Index] = r
		g := rates.GPU{Index: r.Index, Busy: r.Busy, MemoryUsed: r.MemoryUsed, Received: r.ReceiveRate, Sent: r.SendRate}
		if r.Counted {
			g.Received, g.Sent = linkRates(c.gpus[r.Index], r)
		}
		all = append(all, g)
	}
	c.gpus = now
	return all
}

// linkRates returns the rates of a PCIe link between two readings, or -1 if they do not tell.
func linkRates(before, now device.GPUReading) (received, sent float64) {
	span := now.CountedAt.Sub(before.CountedAt).Seconds()
	if !before.Counted || span <= 0 || now.Received < before.Received || now.Sent < before.Sent {
		return -1, -1
	}
	return float64(now.Received-before.Received) / span, float64(now.Sent-before.Sent) / span
}
