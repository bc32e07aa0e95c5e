// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// readGPUs reads all GPUs.
func (c *Collector) readGPUs(s *Sample) {
	if c.gauge == nil {
		if c.noGPU != nil {
			s.missText("gpu", errs.MessageOf(c.noGPU), errs.FixOf(c.noGPU))
		}
		return
	}
	before, at := c.gpus, c.now()
	passed := at.Sub(c.gpusAt).Seconds()
	if c.reads == 0 {
		passed = 0
	}
	c.gpus, c.gpusAt = map[int]device.GPUReading{}, at
	for _, r := range c.gauge.Read() {
		c.gpus[r.Index] = r
		g := GPU{Index: r.Index, Model: r.Model, PCI: r.PCI, Busy: r.Busy, MemoryBusy: r.MemoryBusy,
			MemoryUsed: r.MemoryUsed, MemoryTotal: r.MemoryTotal, Watts: r.Watts, Celsius: r.Celsius, SMClock: r.SMClock,
			Slowed: r.Slowed, Received: r.Received, Sent: r.Sent, LinkGen: r.LinkGen, LinkWidth: r.LinkWidth,
			LinkGenMax: r.LinkGenMax, LinkWidthMax: r.LinkWidthMax}
		g.LinkRate = pcieRate(g.LinkGenMax, g.LinkWidth)
		g.ReceiveCeiling, g.SendCeiling = c.ceilings.gpu(r.Index)
		old, ok := before[r.Index]
		g.rates(r, old, ok, passed)
		s.GPUs = append(s.GPUs, g)
		for pid, size := range r.Processes {
			c.gpuMemory[pid] += size
		}
	}
	for i := range s.Processes {
		s.Processes[i].GPUMemory = c.gpuMemory[s.Processes[i].PID]
	}
	clear(c.gpuMemory)
}

// rates sets the rates of the PCIe link: from counters, where NVML has them, else from the rate that NVML measures over
// 20 ms.
func (g *GPU) rates(now, before device.GPUReading, known bool, seconds float64) {
	switch {
	case now.Counted && known && before.Counted && seconds > 0:
		// The driver says when it read its counters; they may be older than this call.
		if d := now.CountedAt.Sub(before.CountedAt).Seconds(); d > seconds/2 && d < 2*seconds {
			seconds = d
		}
		g.ReceiveRate, g.SendRate = per(now.Received, before.Received, seconds), per(now.Sent, before.Sent, seconds)
	case now.Counted:
		g.ReceiveRate, g.SendRate = 0, 0
	default:
		g.ReceiveRate, g.SendRate = now.ReceiveRate, now.SendRate
	}
	g.OfLink = -1
	of := func(rate, ceiling float64) {
		if ceiling <= 0 {
			ceiling = g.LinkRate
		}
		if ceiling > 0 && rate >= 0 {
			g.OfLink = max(g.OfLink, rate/ceiling)
		}
	}
	of(g.ReceiveRate, g.ReceiveCeiling)
	of(g.SendRate, g.SendCeiling)
}

// pcieRate returns the rate of a PCIe link in one direction, in bytes per second, before the headers of packets. It is
// 0 for a generation that it does not know.
func pcieRate(gen, width int) float64 {
	lane := map[int]float64{1: 0.25e9, 2: 0.5e9, 3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8, 5: 32e9 * 128 / 130 / 8,
		6: 64e9 * 242 / 256 / 8}[gen]
	if width <= 0 || width > 32 {
		return 0
	}
	return lane * float64(width)
}

// ceilings are measured limits of this machine; nil if none were measured.
type ceilings struct{ *record.Ceilings }

// disk enters the limits of the storage behind a mount source, such as /dev/nvme0n1p2.
func (c ceilings) disk(sh *shape, name, source string) {
	if l, ok := c.Find(record.StorageRead, source); ok {
		sh.readCeiling[name] = max(sh.readCeiling[name], l.GBps*1e9)
	}
	if l, ok := c.Find(record.StorageWrite, source); ok {
		sh.writeCeiling[name] = max(sh.writeCeiling[name], l.GBps*1e9)
	}
}

// gpu returns the limits of copies from pinned memory to a GPU and back. CUDA and NVML count GPUs in the same order
// unless CUDA_DEVICE_ORDER says otherwise.
func (c ceilings) gpu(index int) (receive, send float64) {
	id := fmt.Sprintf("cuda:%d", index)
	in, _ := c.Find(record.H2DPinned, id)
	out, _ := c.Find(record.D2HPinned, id)
	return in.GBps * 1e9, out.GBps * 1e9
}
