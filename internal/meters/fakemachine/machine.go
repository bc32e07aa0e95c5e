// SPDX-License-Identifier: Apache-2.0

// Package fakemachine writes the files below /proc and /sys of a made-up machine, for tests of what reads them.
//
// A Machine has counters, as a kernel has. A test changes them and calls Write, which writes the files anew.
package fakemachine

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Machine is a made-up machine. The counters of its parts only grow, as those of a kernel.
type Machine struct {
	Root string // the directory that holds proc and sys
	Now  time.Time

	CPUs      []CPU
	Disks     map[string]*Disk
	Networks  map[string]*Network
	Processes map[int]*Process
	Groups    map[string]*Group // control groups of version 2, by path
	Memory    Memory
	// Stalls are the microseconds of pressure: cpu some, memory some, memory full, io some and io full.
	Stalls [5]uint64
	// Sent and Resent count TCP segments.
	Sent, Resent uint64
	// Files are further files, by their path.
	Files map[string]string

	tb      testing.TB
	written map[string]string // content of each file
}

// CPU has the ticks of one processor: user, nice, system, idle, iowait, irq, softirq and steal.
type CPU [8]uint64

// Disk has the counters of a disk, in the units of /proc/diskstats.
type Disk struct {
	Reads, ReadSectors, ReadMS, Writes, WriteSectors, WriteMS, InFlight, BusyMS, QueueMS uint64
	Partitions                                                                           []string
	Below                                                                                []string
}

// Network has the counters of a network interface, and its speed in Mbit/s; 0 means unknown.
type Network struct {
	Received, Sent, Dropped uint64
	Mbit                    int
	Virtual                 bool
}

// Process has the counters of a process. Ticks are clock ticks of processor time.
type Process struct {
	Name                             string
	Ticks, Delay                     uint64
	Rchar, Wchar, ReadBytes, Written uint64
	State                            byte // 0 means 'S'
	Group                            string
	Threads                          map[int]uint64 // ticks by thread; nil means one thread with all ticks
	Denied                           bool           // its I/O may not be read
	Parent                           int
}

// Group has the counters of a control group.
type Group struct {
	Max                         string // content of cpu.max
	Periods, Throttled, UsageUS uint64
	ThrottledUS                 uint64
}

// Memory has the page cache, in pages of the running machine.
type Memory struct {
	TotalKB, AvailableKB, CachedKB, DirtyKB, WritebackKB uint64
	DirtyLimit, DirtyBackground, Dirtied, Written        uint64 // pages
	PagedInKB, PagedOutKB, MajorFaults, Refaults         uint64
}

// New returns a machine with two idle processors, a disk vda, an interface eth0 and 16 GiB of memory.
func New(tb testing.TB) *Machine {
	return &Machine{tb: tb, Root: tb.TempDir(), Now: time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC),
		CPUs: make([]CPU, 2), Disks: map[string]*Disk{"vda": {Reads: 1000, ReadSectors: 80000, Partitions: []string{"vda1"}}},
		Networks:  map[string]*Network{"eth0": {Mbit: 10000}, "lo": {Virtual: true}},
		Processes: map[int]*Process{1: {Name: "init"}, 2: {Name: "kthreadd"}, 77: {Name: "kworker/0:1", Parent: 2}},
		Groups:    map[string]*Group{},
		Memory: Memory{TotalKB: 16 << 20, AvailableKB: 12 << 20, CachedKB: 4 << 20, DirtyLimit: 800_000,
			DirtyBackground: 400_000},
		Files: map[string]string{}, written: map[string]string{}}
}

// Clock returns the time of the machine, for a Collector.
func (m *Machine) Clock() time.Time { return m.Now }

// Pass lets a time pass in which each processor is busy for the given shares of it, in the order of CPU. The rest of
// the time is idle.
func (m *Machine) Pass(d time.Duration, user, system, iowait, steal float64) {
	m.Now = m.Now.Add(d)
	all := d.Seconds() * 100
	for i := range m.CPUs {
		c := &m.CPUs[i]
		c[0] += uint64(user * all)
		c[2] += uint64(system * all)
		c[4] += uint64(iowait * all)
		c[7] += uint64(steal * all)
		c[3] += uint64(max(0, 1-user-system-iowait-steal) * all)
	}
}

// Write writes all files. The files of processes that have ended are removed.
func (m *Machine) Write() {
	m.tb.Helper()
	files := maps.Clone(m.Files)
	files["/proc/sys/kernel/hostname"] = "fake\n"
	files["/proc/stat"] = m.stat()
	files["/proc/meminfo"], files["/proc/vmstat"] = m.memory()
	for i, name := range []string{"cpu", "memory", "io"} {
		some, full := m.Stalls[max(0, 2*i-1)], m.Stalls[2*i]
		files["/proc/pressure/"+name] = fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n"+
			"full avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", some, full)
	}
	m.blocks(files)
	m.networks(files)
	m.groups(files)
	entries, _ := os.ReadDir(filepath.Join(m.Root, "proc")) // missing before the first call
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && m.Processes[pid] == nil {
			dir := "/proc/" + e.Name()
			if err := os.RemoveAll(filepath.Join(m.Root, dir)); err != nil {
				m.tb.Fatal(err)
			}
			maps.DeleteFunc(m.written, func(name, _ string) bool { return strings.HasPrefix(name, dir+"/") })
		}
	}
	for pid, p := range m.Processes {
		m.process(files, pid, p)
	}
	for name, text := range files {
		m.put(name, text)
	}
}

func (m *Machine) put(name, text string) {
	if old, ok := m.written[name]; ok && old == text {
		return
	}
	m.written[name] = text
	to := filepath.Join(m.Root, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		m.tb.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
		m.tb.Fatal(err)
	}
}

func (m *Machine) stat() string {
	var all CPU
	var b strings.Builder
	for i, c := range m.CPUs {
		for k := range c {
			all[k] += c[k]
		}
		fmt.Fprintf(&b, "cpu%d %s\n", i, numbers(c[:]))
	}
	return fmt.Sprintf("cpu  %s\n%sintr 1 2 3\nprocs_running 3\nprocs_blocked 1\n", numbers(all[:]), b.String())
}

func numbers(all []uint64) string { return strings.Trim(fmt.Sprint(all), "[]") }

func (m *Machine) memory() (info, vm string) {
	c := m.Memory
	info = fmt.Sprintf("MemTotal: %d kB\nMemFree: 1 kB\nMemAvailable: %d kB\nBuffers: 0 kB\nCached: %d kB\nDirty: %d kB\n"+
		"Writeback: %d kB\nHugePages_Total: 0\n", c.TotalKB, c.AvailableKB, c.CachedKB, c.DirtyKB, c.WritebackKB)
	vm = fmt.Sprintf("pgpgin %d\npgpgout %d\nnr_dirtied %d\nnr_written %d\nnr_dirty_threshold %d\n"+
		"nr_dirty_background_threshold %d\npgmajfault %d\nworkingset_refault_file %d\npgscan_direct 0\npswpin 0\n",
		c.PagedInKB,
		c.PagedOutKB, c.Dirtied, c.Written, c.DirtyLimit, c.DirtyBackground, c.MajorFaults, c.Refaults)
	return info, vm
}

func (m *Machine) blocks(files map[string]string) {
	var stats, mounts strings.Builder
	for i, name := range slices.Sorted(maps.Keys(m.Disks)) {
		d := m.Disks[name]
		line := func(minor int, name string) {
			fmt.Fprintf(&stats, " %3d %7d %s %d 0 %d %d %d 0 %d %d %d %d %d\n", 254, minor, name, d.Reads, d.ReadSectors,
				d.ReadMS, d.Writes, d.WriteSectors, d.WriteMS, d.InFlight, d.BusyMS, d.QueueMS)
		}
		line(i*16, name)
		files["/sys/block/"+name+"/queue/rotational"] = "0\n"
		for k, part := range d.Partitions {
			line(i*16+k+1, part)
			files["/sys/block/"+name+"/"+part+"/partition"] = strconv.Itoa(k+1) + "\n"
			fmt.Fprintf(&mounts, "%d 1 254:%d / /mnt/%s rw - ext4 /dev/%s rw\n", 30+i*16+k, i*16+k+1, part, part)
		}
		for _, below := range d.Below {
			files["/sys/block/"+name+"/slaves/"+below+"/size"] = "1\n"
		}
	}
	files["/proc/diskstats"], files["/proc/self/mountinfo"] = stats.String(), mounts.String()
	files["/proc/self/mountstats"] = "device proc mounted on /proc with fstype proc\n" + m.Files["/proc/self/mountstats"]
}

func (m *Machine) networks(files map[string]string) {
	text := "Inter-|   Receive                                                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
	for _, name := range slices.Sorted(maps.Keys(m.Networks)) {
		n := m.Networks[name]
		text += fmt.Sprintf("%6s: %d 1 0 %d 0 0 0 0 %d 1 0 0 0 0 0 0\n", name, n.Received, n.Dropped, n.Sent)
		kind := "pci0000:00/0000:00:03.0"
		if n.Virtual {
			kind = "virtual"
		}
		dir := "/sys/devices/" + kind + "/net/" + name
		files[dir+"/operstate"] = "up\n"
		speed := n.Mbit
		if speed == 0 {
			speed = -1
		}
		files[dir+"/speed"] = strconv.Itoa(speed) + "\n"
		link := filepath.Join(m.Root, "/sys/class/net", name)
		if _, err := os.Lstat(link); err != nil {
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				m.tb.Fatal(err)
			}
			if err := os.Symlink("../../devices/"+kind+"/net/"+name, link); err != nil {
				m.tb.Fatal(err)
			}
		}
	}
	files["/proc/net/dev"] = text
	files["/proc/net/snmp"] = fmt.Sprintf("Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 %d %d\n",
		m.Sent,
		m.Resent)
}

func (m *Machine) groups(files map[string]string) {
	for path, g := range m.Groups {
		dir := "/sys/fs/cgroup" + path
		files[dir+"/cpu.stat"] = fmt.Sprintf(
			"usage_usec %d\nuser_usec 1\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n",
			g.UsageUS, g.Periods, g.Throttled, g.ThrottledUS)
		limit := g.Max
		if limit == "" {
			limit = "max 100000"
		}
		files[dir+"/cpu.max"] = limit + "\n"
	}
}

func (m *Machine) process(files map[string]string, pid int, p *Process) {
	dir := "/proc/" + strconv.Itoa(pid)
	state := p.State
	if state == 0 {
		state = 'S'
	}
	threads := p.Threads
	if threads == nil {
		threads = map[int]uint64{pid: p.Ticks}
	}
	stat := func(id int, ticks uint64) string {
		// pid (comm) state ppid … utime stime … threads … start … delay
		return fmt.Sprintf("%d (%s) %c %d 0 0 0 0 0 0 0 0 0 %d 0 0 0 20 0 %d 0 %d%s %d 0 0\n", id, p.Name, state, p.Parent,
			ticks, len(threads), 1000+pid, strings.Repeat(" 0", 19), p.Delay)
	}
	files[dir+"/stat"] = stat(pid, p.Ticks)
	for tid, ticks := range threads {
		files[dir+"/task/"+strconv.Itoa(tid)+"/stat"] = stat(tid, ticks)
	}
	if !p.Denied {
		files[dir+"/io"] = fmt.Sprintf("rchar: %d\nwchar: %d\nsyscr: 0\nsyscw: 0\nread_bytes: %d\nwrite_bytes: %d\n"+
			"cancelled_write_bytes: 0\n", p.Rchar, p.Wchar, p.ReadBytes, p.Written)
	}
	files[dir+"/cmdline"] = "/usr/bin/" + p.Name + "\x00--flag\x00"
	group := p.Group
	if group == "" {
		group = "/"
	}
	files[dir+"/cgroup"] = "0::" + group + "\n"
	files[dir+"/maps"] = ""
}

// Overwrite writes one file with another content than Write gave it.
func (m *Machine) Overwrite(name, text string) {
	m.tb.Helper()
	m.put(name, text)
}
