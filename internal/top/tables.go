// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/meters"
	"github.com/nebulaio/nebulaio/internal/plain"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Order is the column by which processes are sorted.
type Order string

// The orders of processes, in the order in which the key s chooses them.
const (
	ByReads  Order = "read"
	ByWrites Order = "write"
	ByCPU    Order = "cpu"
	ByWait   Order = "wait"
	ByName   Order = "name"
)

// Orders returns the names of all orders, the default first.
func Orders() []Order { return []Order{ByReads, ByWrites, ByCPU, ByWait, ByName} }

// matches reports whether one of the texts contains the filter, without regard to case.
func (v *View) matches(texts ...string) bool {
	if v.Filter == "" {
		return true
	}
	want := strings.ToLower(v.Filter)
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), want) })
}

func (v *View) diskGrid(s *meters.Sample) *grid {
	g := &grid{title: "disk", heads: []string{"read", "write", "r/s", "w/s", "read lat", "write lat", "depth", "busy",
		"of ceiling"}}
	disks := slices.Clone(s.Disks)
	if v.BySize {
		slices.SortStableFunc(disks, func(a, b meters.Disk) int {
			return cmp.Compare(b.ReadRate+b.WriteRate, a.ReadRate+a.WriteRate)
		})
	}
	for _, d := range disks {
		idle := d.ReadIOPS+d.WriteIOPS == 0 && d.InFlight == 0
		if !v.matches(append(d.Mounts, d.Name)...) || idle && !v.All && (d.Memory() || len(disks) > 4) {
			continue
		}
		name := d.Name
		if len(d.Mounts) > 0 {
			name += " " + d.Mounts[0]
		}
		g.add(plain.Text(name), rate(d.ReadRate), rate(d.WriteRate), times(d.ReadIOPS), times(d.WriteIOPS),
			delay(d.ReadLatency), delay(d.WriteLatency), fmt.Sprintf("%.1f", d.Depth), share(d.Busy),
			known(d.OfCeiling, d.ReadCeiling+d.WriteCeiling))
	}
	return g
}

func (v *View) networkGrid(s *meters.Sample) *grid {
	g := &grid{title: "network", heads: []string{"receive", "send", "of link", "drops/s", "errors/s"}}
	all := slices.Clone(s.Networks)
	if v.BySize {
		slices.SortStableFunc(all, func(a, b meters.Network) int {
			return cmp.Compare(b.ReceiveRate+b.SendRate, a.ReceiveRate+a.SendRate)
		})
	}
	for _, n := range all {
		idle := n.ReceiveRate+n.SendRate < 1e3
		if !v.matches(n.Name) || idle && !v.All && (n.Virtual || !n.Up || len(all) > 4) {
			continue
		}
		g.add(plain.Text(n.Name), rate(n.ReceiveRate), rate(n.SendRate), known(n.OfSpeed, n.Speed), times(n.DropRate),
			times(n.ErrorRate))
	}
	return g
}

func (v *View) remoteGrid(s *meters.Sample) *grid {
	g := &grid{title: "file server", heads: []string{"read", "write", "r/s", "w/s", "read trip", "read queue", "again/s"}}
	for _, m := range s.NFS {
		if v.matches(m.Mount, m.Server) {
			g.add(plain.Text("nfs "+m.Mount), rate(m.ReadRate), rate(m.WriteRate), times(m.ReadIOPS), times(m.WriteIOPS),
				delay(m.ReadTrip), delay(m.ReadQueue), times(m.RetransmissionRate))
		}
	}
	for _, l := range s.Lustre {
		if v.matches(l.Name) {
			g.add(plain.Text("lustre "+l.Name), rate(l.ReadRate), rate(l.WriteRate), times(l.ReadIOPS), times(l.WriteIOPS),
				"-", strconv.Itoa(l.Waiting)+" waiting", "-")
		}
	}
	return g
}

func (v *View) gpuGrid(s *meters.Sample) *grid {
	g := &grid{title: "gpu", heads: []string{"busy", "memory", "used", "to gpu", "from gpu", "of link", "link", "power",
		"heat", "slowed"}}
	for _, u := range s.GPUs {
		name := fmt.Sprintf("%d %s", u.Index, strings.TrimPrefix(u.Model, "NVIDIA "))
		if !v.matches(name, u.PCI) {
			continue
		}
		used, link, power, heat, slowed := "?", "?", "?", "?", "-"
		if u.MemoryTotal > 0 {
			used = fmt.Sprintf("%.1f of %.0f GiB", float64(u.MemoryUsed)/units.GiB, float64(u.MemoryTotal)/units.GiB)
		}
		if u.LinkGen > 0 {
			link = fmt.Sprintf("gen %d x%d", u.LinkGen, u.LinkWidth)
		}
		if u.Watts >= 0 {
			power = fmt.Sprintf("%.0f W", u.Watts)
		}
		if u.Celsius >= 0 {
			heat = fmt.Sprintf("%.0f °C", u.Celsius)
		}
		if len(u.Slowed) > 0 {
			slowed = strings.Join(u.Slowed, ", ")
		}
		g.add(plain.Text(name), share(u.Busy), share(u.MemoryBusy), used, rate(u.ReceiveRate), rate(u.SendRate),
			share(u.OfLink), link, power, heat, slowed)
	}
	return g
}

func (v *View) cuFileGrid(s *meters.Sample) *grid {
	g := &grid{title: "cufile", heads: []string{"read", "write", "r/s", "w/s", "errors/s"}}
	if f := s.CuFile; f != nil && f.Counted {
		g.add("nvidia-fs", rate(f.ReadRate), rate(f.WriteRate), times(f.ReadIOPS), times(f.WriteIOPS), times(f.ErrorRate))
	}
	return g
}

// groupGrid lists the control groups that were stopped by a quota or reached their memory limit.
func (v *View) groupGrid(s *meters.Sample) *grid {
	g := &grid{title: "cgroup", heads: []string{"cpu", "quota", "stopped", "memory", "of limit", "io wait"}}
	for _, c := range s.CGroups {
		if !v.matches(append(c.Processes, c.Path)...) ||
			!v.All && c.ThrottledShare == 0 && c.MemoryStallRate == 0 && c.IOLimit == "" {
			continue
		}
		quota, used, of := "-", "-", "-"
		if c.Quota > 0 {
			quota = fmt.Sprintf("%.2f", c.Quota)
		}
		if c.MemoryLimit > 0 {
			used, of = size(c.MemoryUsed), share(float64(c.MemoryUsed)/float64(c.MemoryLimit))
		}
		g.add(plain.Text(c.Path), fmt.Sprintf("%.2f", c.CPU), quota, share(c.ThrottledShare), used, of, share(c.IOFull))
	}
	return g
}

// ownGrid lists the transfers of NebulaIO: of the server, and of programs that use the library.
func (v *View) ownGrid(s *meters.Sample) *grid {
	g := &grid{title: "nebulaio", heads: []string{"in", "out", "req/s", "failed/s", "open", "by route"}}
	if n := s.Server; n != nil {
		g.add(plain.Text("server "+n.Address), rate(n.ReceiveRate), rate(n.SendRate), times(n.RequestRate), times(n.FailRate),
			fmt.Sprintf("%.0f", n.InFlight), routes(n.DoorRates))
	}
	for _, p := range s.Processes {
		if p.NebulaIO && v.matches(p.Name, p.Command) {
			g.add(plain.Text(fmt.Sprintf("%s %d", p.Name, p.PID)), rate(max(p.ReadCallsRate, p.StorageReadRate)),
				rate(max(p.WriteCallsRate, p.StorageWriteRate)), "-", "-", "-",
				"storage "+rate(p.StorageReadRate+p.StorageWriteRate))
		}
	}
	return g
}

func routes(rates map[string]float64) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		if rates[name] >= 1e3 {
			out = append(out, plain.Text(name)+" "+rate(rates[name]))
		}
	}
	if out == nil {
		return "-"
	}
	return strings.Join(out, ", ")
}

func (v *View) processGrid(s *meters.Sample) *grid {
	g := &grid{title: "process", heads: []string{"pid", "read", "from disk", "write", "cpu", "thread", "io wait",
		"gpu mem"}}
	all := slices.Clone(s.Processes)
	slices.SortStableFunc(all, v.compare)
	if v.Reverse {
		slices.Reverse(all)
	}
	for _, p := range all {
		if !v.matches(p.Name, p.Command, strconv.Itoa(p.PID)) {
			continue
		}
		name := p.Name
		if p.Command != "" {
			program, rest, _ := strings.Cut(p.Command, " ")
			name = strings.TrimSpace(program[strings.LastIndexByte(program, '/')+1:] + " " + rest)
		}
		read, disk, write := rate(p.ReadCallsRate), rate(p.StorageReadRate), rate(max(p.WriteCallsRate, p.StorageWriteRate))
		if p.Unread {
			read, disk, write = "?", "?", "?"
		}
		memory := "-"
		if p.GPUMemory > 0 {
			memory = size(p.GPUMemory)
		}
		g.add(plain.Cut(plain.Text(name), 40), strconv.Itoa(p.PID), read, disk, write, share(p.CPU), share(p.BusiestThread),
			fmt.Sprintf("%.1f", p.IOWait), memory)
	}
	return g
}

// compare orders two processes, the busier first.
func (v *View) compare(a, b meters.Process) int {
	of := func(p meters.Process) float64 {
		switch v.Order {
		case ByWrites:
			return max(p.WriteCallsRate, p.StorageWriteRate)
		case ByCPU:
			return p.CPU
		case ByWait:
			return p.IOWait
		}
		return max(p.ReadCallsRate, p.StorageReadRate)
	}
	if v.Order == ByName {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.PID, b.PID))
	}
	return cmp.Or(cmp.Compare(of(b), of(a)), cmp.Compare(a.PID, b.PID))
}
