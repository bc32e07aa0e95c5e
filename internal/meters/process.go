// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// mostProcesses bounds the processes that a Collector looks at, and keptProcesses those in a Sample.
	mostProcesses = 1 << 16
	keptProcesses = 32
	// mostCommand bounds the bytes of a command line in a Sample.
	mostCommand = 256
	// restEvery is how often processes that do nothing are looked at: at every restEvery-th sample. Without this, a
	// machine with thousands of processes would cost more than the view may.
	restEvery = 4
	// watchedThreads is the number of processes whose threads are read, and mostThreads bounds the threads of each.
	watchedThreads = 4
	mostThreads    = 512
)

// pidStat has the used columns of /proc/PID/stat.
type pidStat struct {
	name    string
	state   byte
	parent  int
	cpu     uint64 // ticks
	threads int
	started uint64 // ticks since boot; tells a process from an older one with the same number
	delay   uint64 // ticks of waiting for block I/O
}

// parsePIDStat parses /proc/PID/stat. The name in it is in parentheses and may hold anything, also parentheses. It
// returns false if columns are missing.
func parsePIDStat(b []byte) (pidStat, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return pidStat{}, false
	}
	s := pidStat{name: string(b[open+1 : min(end, open+65)])}
	i := 2 // the column behind the name is the third
	for w := range bytes.FieldsSeq(b[end+1:]) {
		i++
		n, isCount := parseCount(w)
		switch i {
		case 3:
			s.state = w[0]
			continue
		case 4:
			s.parent = int(min(n, 1<<31))
		case 14, 15:
			s.cpu += n
		case 20:
			s.threads = int(min(n, 1<<31))
		case 22:
			s.started = n
		case 42:
			s.delay = n
		default:
			continue
		}
		if !isCount {
			return pidStat{}, false
		}
	}
	return s, i >= 22
}

// parsePIDIO parses /proc/PID/io into p. It returns false if a counter is missing.
func parsePIDIO(b []byte, p *Process) bool {
	found := 0
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		n, isCount := parseCount(bytes.TrimSpace(rest))
		if !ok || !isCount {
			continue
		}
		found++
		switch string(name) {
		case "rchar":
			p.ReadCalls = n
		case "wchar":
			p.WriteCalls = n
		case "read_bytes":
			p.StorageRead = n
		case "write_bytes":
			p.StorageWrite = n
		default:
			found--
		}
	}
	return found == 4
}

// watched is a process between two samples.
type watched struct {
	Process
	started uint64
	at      float64 // seconds since the Collector was opened, at the last look
	resting bool    // did nothing between the last two looks
	kernel  bool    // a thread of the kernel, which is not looked at again
	seen    uint64  // the number of the sample that saw it last
	known   bool    // the command line was read
	threads map[int]uint64
}

// readProcesses looks at all processes, and puts the busiest into the sample.
func (c *Collector) readProcesses(s *Sample) {
	s.Processes = []Process{}
	names, err := c.files.names("/proc")
	if err != nil {
		s.miss("processes", err)
		return
	}
	calls, storage, unread, looked := 0.0, 0.0, 0, 0
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 0 || len(c.watched) >= mostProcesses {
			continue
		}
		w := c.watched[pid]
		if w != nil && (w.kernel && c.reads%64 != 0 || w.resting && (uint64(pid)+c.reads)%restEvery != 0) {
			w.seen = c.reads
			continue
		}
		if w = c.look(pid, w); w == nil {
			continue
		}
		looked++
		if w.Unread {
			unread++
		}
		calls, storage = calls+w.ReadCallsRate, storage+w.StorageReadRate
	}
	for pid, w := range c.watched {
		if w.seen != c.reads {
			delete(c.watched, pid)
		}
	}
	s.Memory.setHits(calls, storage)
	if unread > 0 && unread*2 > looked {
		s.missText("processes", "the I/O of "+strconv.Itoa(unread)+" processes may not be read by this user",
			"run as root")
	}
	c.choose(s)
}

// look reads a process. The parameter w is nil for a process that was not seen before. look returns nil for a process
// that has ended and for a thread of the kernel.
func (c *Collector) look(pid int, w *watched) *watched {
	dir := "/proc/" + strconv.Itoa(pid)
	b, err := c.files.read(dir + "/stat")
	if err != nil {
		return nil
	}
	st, ok := parsePIDStat(b)
	if !ok {
		return nil
	}
	if w == nil || w.started != st.started {
		w = &watched{started: st.started}
		c.watched[pid] = w
	}
	w.seen = c.reads
	if w.kernel = pid == 2 || st.parent == 2; w.kernel {
		return nil
	}
	before, passed := w.Process, c.clock-w.at
	first := w.at == 0
	w.at = c.clock
	p := &w.Process
	p.PID, p.Name, p.State, p.Threads = pid, st.name, string(st.state), st.threads
	p.CPUSeconds, p.IODelay = float64(st.cpu)/ticks, float64(st.delay)/ticks
	p.BusiestThread = -1
	b, err = c.files.read(dir + "/io")
	p.Unread = err != nil || !parsePIDIO(b, p)
	if first {
		// A process that was not there at the last sample has done everything since.
		before, passed = Process{}, c.passed
	}
	if passed <= 0 {
		return w
	}
	p.CPU, p.IOWait = ago(p.CPUSeconds, before.CPUSeconds, passed), ago(p.IODelay, before.IODelay, passed)
	p.ReadCallsRate, p.WriteCallsRate = per(p.ReadCalls, before.ReadCalls, passed), per(p.WriteCalls, before.WriteCalls,
		passed)
	p.StorageReadRate = per(p.StorageRead, before.StorageRead, passed)
	p.StorageWriteRate = per(p.StorageWrite, before.StorageWrite, passed)
	w.resting = p.CPU == 0 && p.ReadCallsRate+p.WriteCallsRate+p.StorageReadRate+p.StorageWriteRate == 0 && p.State != "D"
	return w
}

// weight orders processes by how much they do: bytes first, and a whole processor counts as much as 100 MB per second.
func (p *Process) weight() float64 {
	return max(p.StorageReadRate, p.ReadCallsRate) + max(p.StorageWriteRate, p.WriteCallsRate) + p.CPU*1e8
}

// choose puts the busiest processes into the sample, and reads more about them: command line, owner, threads and
// control group.
func (c *Collector) choose(s *Sample) {
	busy := make([]*watched, 0, len(c.watched))
	for _, w := range c.watched {
		if !w.kernel && w.PID != 0 && (!w.resting || s.Seconds == 0) {
			busy = append(busy, w)
		}
	}
	slices.SortFunc(busy, func(a, b *watched) int {
		return cmp.Or(cmp.Compare(b.weight(), a.weight()), cmp.Compare(a.PID, b.PID))
	})
	busy = busy[:min(len(busy), keptProcesses)]
	for i, w := range busy {
		c.describe(w)
		if i < watchedThreads {
			c.readThreads(w, s.Seconds)
		} else {
			w.threads = nil
		}
		s.Processes = append(s.Processes, w.Process)
	}
}

// describe reads what seldom changes about a process.
func (c *Collector) describe(w *watched) {
	if w.known && c.reads%shapeEvery != 0 {
		return
	}
	w.known = true
	dir := "/proc/" + strconv.Itoa(w.PID)
	w.UID = -1
	var st unix.Stat_t
	if unix.Stat(c.files.root+dir, &st) == nil {
		w.UID = int(st.Uid)
	}
	if b, err := c.files.read(dir + "/cmdline"); err == nil {
		w.Command = strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(string(b[:min(len(b), mostCommand)]), "\x00",
			" "), "?"))
	}
	if b, err := c.files.read(dir + "/cgroup"); err == nil {
		w.CGroup = strings.Join(parsePIDCGroup(b), " ")
	}
	if w.PID == c.self {
		return // what watches is no transfer
	}
	w.NebulaIO = strings.HasPrefix(w.Name, "nebulaio")
	if !w.NebulaIO {
		b, err := c.files.read(dir + "/maps")
		w.NebulaIO = err == nil && bytes.Contains(b, []byte("libnebulaio.so"))
	}
}

// readThreads finds the busiest thread of a process.
func (c *Collector) readThreads(w *watched, seconds float64) {
	dir := "/proc/" + strconv.Itoa(w.PID) + "/task"
	names, err := c.files.names(dir)
	if err != nil {
		return
	}
	before := w.threads
	w.threads = make(map[int]uint64, min(len(names), mostThreads))
	most := -1.0
	for _, name := range names[:min(len(names), mostThreads)] {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := c.files.read(dir + "/" + name + "/stat")
		if err != nil {
			continue
		}
		st, ok := parsePIDStat(b)
		if !ok {
			continue
		}
		w.threads[tid] = st.cpu
		if old, ok := before[tid]; ok && seconds > 0 {
			most = max(most, per(st.cpu, old, seconds)/ticks)
		}
	}
	if len(names) == 1 {
		most = w.CPU // a process with one thread is its thread
	}
	w.BusiestThread = min(most, 1)
}
