// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// procfs reads files of processes below a folder such as /proc. A file of a process that has ended is as if it were
// empty, because processes end at any time.
type procfs struct{ root string }

// mostBytes bounds a file that procfs reads. A machine with 20,000 sockets has a list of about 3 MB.
const mostBytes = 8 << 20

func (p procfs) read(parts ...string) []byte {
	f, err := os.Open(filepath.Join(append([]string{p.root}, parts...)...))
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, mostBytes)) // what was read before an error is still true
	return b
}

// numbers returns the entries of a folder whose names are numbers, at most limit of them.
func (p procfs) numbers(limit int, parts ...string) (all []int) {
	f, err := os.Open(filepath.Join(append([]string{p.root}, parts...)...))
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(limit) // a process that ends meanwhile has no more names
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// children returns the processes that a process has started and that still run.
func (p procfs) children(pid int) (all []int) {
	id := strconv.Itoa(pid)
	for _, tid := range p.numbers(mostThreads, id, "task") {
		for field := range strings.FieldsSeq(string(p.read(id, "task", strconv.Itoa(tid), "children"))) {
			if n, err := strconv.Atoi(field); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// threadState is what the kernel says about a thread in the file stat.
type threadState struct {
	state  byte   // such as 'R' (runs), 'S' (sleeps), 'D' (waits for I/O) or 'Z' (has ended)
	parent int    // of the process
	user   uint64 // processor time in programs, in ticks, with that of children that have ended
	system uint64 // the same in the kernel
}

// parseStat reads the file stat of a process or thread. The name in parentheses may hold any character.
func parseStat(text []byte) (s threadState, ok bool) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return s, false
	}
	f := bytes.Fields(text[end+1:])
	if len(f) < 15 || len(f[0]) != 1 {
		return s, false
	}
	s.state = f[0][0]
	var values [5]uint64
	for i, field := range []int{1, 11, 12, 13, 14} {
		v, err := strconv.ParseInt(string(f[field]), 10, 64)
		if err != nil || v < 0 {
			return s, false
		}
		values[i] = uint64(v)
	}
	s.parent, s.user, s.system = int(values[0]), values[1]+values[3], values[2]+values[4]
	return s, true
}

// parseSchedstat reads the file schedstat of a thread.
func parseSchedstat(text []byte) (s spent, ok bool) {
	f := bytes.Fields(text)
	if len(f) < 2 {
		return s, false
	}
	ran, err1 := strconv.ParseInt(string(f[0]), 10, 64)
	ready, err2 := strconv.ParseInt(string(f[1]), 10, 64)
	return spent{time.Duration(ran), time.Duration(ready)}, err1 == nil && err2 == nil && ran >= 0 && ready >= 0
}

// transferred has the bytes of the file io of a process, with those of children that have ended.
type transferred struct{ calls, read, written uint64 }

func parseIO(text []byte) (t transferred) {
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
		if err != nil {
			continue
		}
		switch string(key) {
		case "rchar":
			t.calls = n
		case "read_bytes":
			t.read = n
		case "write_bytes":
			t.written = n
		}
	}
	return t
}

// received returns the bytes that came in over the interfaces of a file such as /proc/net/dev, without loopback.
func received(text []byte) (sum uint64) {
	for line := range bytes.Lines(text) {
		name, rest, found := bytes.Cut(line, []byte(":"))
		f := bytes.Fields(rest)
		if !found || len(f) < 16 || string(bytes.TrimSpace(name)) == "lo" {
			continue
		}
		if n, err := strconv.ParseUint(string(f[0]), 10, 64); err == nil {
			sum += n
		}
	}
	return sum
}

// groupsOf returns the paths of the control groups that limit a process's processors, with their parents.
func groupsOf(text []byte) (paths []string) {
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) < 3 || f[0] != "0" && !strings.Contains(","+f[1]+",", ",cpu,") {
			continue
		}
		for dir := filepath.Clean(f[2]); strings.HasPrefix(dir, "/") && dir != "/"; dir = filepath.Dir(dir) {
			paths = append(paths, dir)
		}
	}
	return paths
}
