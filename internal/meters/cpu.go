// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bytes"
)

// ticks is the number of clock ticks per second in which Linux shows processor times. The kernel converts to this
// value on every architecture, whatever its own clock is.
const ticks = 100

// cpuLine has the columns of one line "cpu" of /proc/stat: user, nice, system, idle, iowait, irq, softirq and steal.
type cpuLine [8]uint64

func (l cpuLine) sum() (all uint64) {
	for _, n := range l {
		all += n
	}
	return all
}

// since returns the growth of each column. Idle and iowait may shrink by a tick; that counts as no growth.
func (l cpuLine) since(before cpuLine) cpuLine {
	for i := range l {
		l[i] = grown(l[i], before[i])
	}
	return l
}

// busy returns the share of the columns that are neither idle nor iowait.
func (l cpuLine) busy() float64 { return part(float64(l.sum()-l[3]-l[4]), float64(l.sum())) }

// procStat is /proc/stat.
type procStat struct {
	all              cpuLine
	each             []cpuLine // by position of the processor in the file
	running, blocked int
}

// parseStat parses /proc/stat. Lines that it does not know are skipped. It returns false if there is no line "cpu".
func parseStat(b []byte) (procStat, bool) {
	var s procStat
	found := false
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(" "))
		if !ok {
			continue
		}
		switch {
		case string(name) == "cpu":
			found = counts(rest, s.all[:]) >= 4
		case bytes.HasPrefix(name, []byte("cpu")):
			var l cpuLine
			if counts(rest, l[:]) >= 4 && len(s.each) < 1<<14 {
				s.each = append(s.each, l)
			}
		case string(name) == "procs_running":
			s.running = small(rest)
		case string(name) == "procs_blocked":
			s.blocked = small(rest)
		}
	}
	return s, found
}

// small parses a number that is not large, such as a number of threads.
func small(b []byte) int {
	n, ok := parseCount(bytes.TrimSpace(b))
	if !ok || n > 1<<31 {
		return 0
	}
	return int(n)
}

// readCPU reads the processor times and computes the shares since the last call.
func (c *Collector) readCPU(s *Sample) {
	b, err := c.files.read("/proc/stat")
	if err != nil {
		s.miss("cpu", err)
		return
	}
	now, ok := parseStat(b)
	if !ok {
		s.missText("cpu", "/proc/stat has no line cpu", "")
		return
	}
	sec := func(n ...uint64) (all float64) {
		for _, v := range n {
			all += float64(v) / ticks
		}
		return all
	}
	a := now.all
	s.CPU = CPU{Count: len(now.each), User: sec(a[0], a[1]), System: sec(a[2]), Idle: sec(a[3]), IOWait: sec(a[4]),
		IRQ: sec(a[5], a[6]), Steal: sec(a[7]), Running: now.running, Blocked: now.blocked}
	if d := now.all.since(c.stat.all); s.Seconds > 0 && d.sum() > 0 {
		share := func(n ...int) (all float64) {
			for _, i := range n {
				all += float64(d[i]) / float64(d.sum())
			}
			return all
		}
		s.CPU.UserShare, s.CPU.SystemShare, s.CPU.IdleShare = share(0, 1), share(2), share(3)
		s.CPU.IOWaitShare, s.CPU.IRQShare, s.CPU.StealShare = share(4), share(5, 6), share(7)
		for i := range min(len(now.each), len(c.stat.each)) {
			s.CPU.Busiest = max(s.CPU.Busiest, now.each[i].since(c.stat.each[i]).busy())
		}
	}
	c.stat = now
}

// stalls has the totals of /proc/pressure in microseconds: cpu some, memory some, memory full, io some and io full. A
// total is -1 if the kernel does not count it.
type stalls [5]int64

// parsePressure parses one file of pressure stall information. A missing line gives -1.
func parsePressure(b []byte) (some, full int64) {
	some, full = -1, -1
	for line := range bytes.Lines(b) {
		kind, _, _ := bytes.Cut(line, []byte(" "))
		_, total, ok := bytes.Cut(line, []byte("total="))
		n, isCount := parseCount(bytes.TrimSpace(total))
		if !ok || !isCount || n > 1<<62 {
			continue
		}
		switch string(kind) {
		case "some":
			some = int64(n)
		case "full":
			full = int64(n)
		}
	}
	return some, full
}

func (c *Collector) readPressure(s *Sample) {
	now := stalls{-1, -1, -1, -1, -1}
	var err error
	read := func(name string) (some, full int64) {
		b, e := c.files.read("/proc/pressure/" + name)
		if e != nil {
			err = e
			return -1, -1
		}
		return parsePressure(b)
	}
	now[0], _ = read("cpu")
	now[1], now[2] = read("memory")
	now[3], now[4] = read("io")
	share := func(i int) float64 { return stalled(now[i], c.stalls[i], s.Seconds) }
	s.Pressure = Pressure{CPUSome: share(0), MemorySome: share(1), MemoryFull: share(2), IOSome: share(3),
		IOFull: share(4)}
	if err != nil {
		s.missText("pressure", "the kernel counts no pressure: "+err.Error(),
			"boot with psi=1, or use a kernel with CONFIG_PSI")
	}
	c.stalls = now
}

// stalled returns the share of the time by which a total of stalled microseconds has grown, or -1 if it is unknown.
func stalled(now, before int64, seconds float64) float64 {
	if now < 0 || before < 0 {
		return -1
	}
	if seconds <= 0 || now < before {
		return 0
	}
	return min(float64(now-before)/1e6/seconds, 1)
}
