// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
)

// giga converts bytes per second to GB/s.
const giga = 1e9

// shortStop is the number of stopped seconds per second below which a quota does not matter.
const shortStop = 0.05

// Window returns the rates of the sample in the form that package bottleneck judges. The Window describes the whole
// machine, so that its Waits are nil.
func (s *Sample) Window() bottleneck.Window {
	w := bottleneck.Window{Seconds: s.Seconds, CPU: s.processors(), Memory: s.pageCache(), Missing: map[string]string{}}
	for _, g := range s.GPUs {
		w.GPUs = append(w.GPUs, g.judged())
	}
	for _, n := range s.Networks {
		// Loopback moves bytes in memory, which is no network. The speed of other virtual interfaces is made up.
		if n.Up && n.Name != "lo" {
			i := bottleneck.Interface{Name: n.Name, GBps: max(n.ReceiveRate, n.SendRate) / giga, Queued: bottleneck.Unknown}
			if !n.Virtual {
				i.LinkGBps = n.Speed / giga
			}
			w.Network = append(w.Network, i)
		}
	}
	for _, d := range s.Disks {
		// A device that is made of other disks is as busy as the busiest of them, which are listed too.
		if len(d.Below) == 0 && !d.Memory() {
			w.Disks = append(w.Disks, d.judged())
		}
	}
	w.Servers = s.fileServers()
	figures := map[string]string{"gpu": bottleneck.FigureGPU, "network": bottleneck.FigureNetwork,
		"disks": bottleneck.FigureStorage, "cpu": bottleneck.FigureCPU}
	for _, m := range s.Missing {
		if figure, ok := figures[m.Meter]; ok {
			w.Missing[figure] = m.Reason
		}
	}
	return w
}

func (s *Sample) processors() bottleneck.Processors {
	p := bottleneck.Processors{Used: s.CPU.Busy() * float64(s.CPU.Count), Usable: float64(s.CPU.Count),
		Kernel:  (s.CPU.SystemShare + s.CPU.IRQShare) * float64(s.CPU.Count),
		Busiest: bottleneck.Unknown, Throttled: bottleneck.Unknown, Pressure: s.Pressure.CPUSome}
	for _, each := range s.Processes {
		p.Busiest = max(p.Busiest, each.BusiestThread)
	}
	for _, group := range s.CGroups {
		// A group that is stopped for a moment of each period hardly waits.
		if group.Quota > 0 && group.ThrottledRate >= shortStop && group.ThrottledShare > p.Throttled {
			p.Throttled, p.Group = group.ThrottledShare, group.Path
		}
	}
	return p
}

func (s *Sample) pageCache() bottleneck.PageCacheState {
	m := s.Memory
	c := bottleneck.PageCacheState{HitGBps: m.CallsRate * max(m.HitShare, 0) / giga, WriteGBps: m.WrittenRate / giga,
		IOPressure: s.Pressure.IOSome}
	// The kernel makes writers wait from the middle between its two limits on.
	if limit := float64(m.DirtyBackground+m.DirtyLimit) / 2; limit > 0 {
		c.DirtyShare = float64(m.Dirty+m.Writeback) / limit
	}
	return c
}

func (g GPU) judged() bottleneck.GPU {
	out := bottleneck.GPU{Name: fmt.Sprintf("GPU %d", g.Index), Busy: g.Busy, Active: bottleneck.Unknown,
		PCIeGBps: max(g.ReceiveRate, g.SendRate) / giga, LinkGBps: g.LinkRate / giga}
	ceiling := g.ReceiveCeiling
	if g.SendRate > g.ReceiveRate {
		ceiling = g.SendCeiling
	}
	if ceiling > 0 {
		out.LinkGBps = ceiling / giga
	}
	return out
}

func (d Disk) judged() bottleneck.Device {
	out := bottleneck.Device{Name: d.Name, GBps: (d.ReadRate + d.WriteRate) / giga, Reads: d.ReadIOPS, Writes: d.WriteIOPS,
		Busy: d.Busy, Depth: d.Depth}
	if all := d.ReadIOPS + d.WriteIOPS; all > 0 {
		out.Latency = (d.ReadLatency*d.ReadIOPS + d.WriteLatency*d.WriteIOPS) / all
	}
	// Reads and writes have their own ceilings; the share of the one that is nearer counts.
	if d.OfCeiling > 0 {
		out.LimitGBps = out.GBps / d.OfCeiling
	}
	return out
}

// fileServers returns the mounts of network file systems. By Little's law, rate times latency is the number of requests
// in flight.
func (s *Sample) fileServers() (all []bottleneck.Device) {
	for _, n := range s.NFS {
		d := bottleneck.Device{Name: n.Mount, GBps: (n.ReadRate + n.WriteRate) / giga, Reads: n.ReadIOPS,
			Writes: n.WriteIOPS, Depth: n.ReadIOPS*(n.ReadTrip+n.ReadQueue) + n.WriteIOPS*n.WriteTrip}
		if sum := n.ReadIOPS + n.WriteIOPS; sum > 0 {
			d.Latency = d.Depth / sum
		}
		d.Busy = min(d.Depth, 1)
		all = append(all, d)
	}
	for _, l := range s.Lustre {
		all = append(all, bottleneck.Device{Name: l.Name, GBps: (l.ReadRate + l.WriteRate) / giga, Reads: l.ReadIOPS,
			Writes: l.WriteIOPS, Depth: float64(l.Waiting), Busy: min(float64(l.Waiting), 1)})
	}
	return all
}
