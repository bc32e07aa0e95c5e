// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/bench/dataset"
	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// counters holds the kernel's counts for this process and for the disks below a set.
type counters struct {
	user, system time.Duration
	fetched      int64 // bytes this process made storage deliver, -1 unknown
	devices      map[string]diskCount
}

type diskCount struct{ read, written int64 }

func readCounters(s *dataset.Set) counters {
	c := counters{fetched: fetched(), devices: map[string]diskCount{}}
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) == nil {
		c.user, c.system = time.Duration(ru.Utime.Nano()), time.Duration(ru.Stime.Nano())
	}
	for _, g := range s.Groups {
		if name, dir := blockDevice(g.Dir); name != "" {
			c.devices[name] = diskStat(dir)
		}
	}
	return c
}

func (c counters) since(b counters) counters {
	d := counters{user: c.user - b.user, system: c.system - b.system, fetched: -1, devices: map[string]diskCount{}}
	if c.fetched >= 0 && b.fetched >= 0 {
		d.fetched = c.fetched - b.fetched
	}
	for name, n := range c.devices {
		if o, ok := b.devices[name]; ok {
			d.devices[name] = diskCount{n.read - o.read, n.written - o.written}
		}
	}
	return d
}

// disk returns the disks' counts, or nil if there is no block device below the set.
func (c counters) disk() *record.Disk {
	if len(c.devices) == 0 {
		return nil
	}
	d := &record.Disk{Devices: slices.Sorted(maps.Keys(c.devices))}
	for _, n := range c.devices {
		d.Read += n.read
		d.Written += n.written
	}
	return d
}

// fetched reads read_bytes of /proc/self/io.
func fetched() int64 {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "read_bytes: "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// blockDevice returns the name of the block device below path, which may be a partition, and its sysfs directory.
// Both are empty if there is none.
func blockDevice(path string) (name, dir string) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return "", ""
	}
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	dir, err := filepath.EvalSymlinks(link)
	if err != nil {
		return "", ""
	}
	return filepath.Base(dir), dir
}

// sector is the unit of the kernel's disk counters in bytes, regardless of the disk's own sector size.
const sector = 512

func diskStat(dir string) diskCount {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return diskCount{}
	}
	f := strings.Fields(string(b))
	at := func(i int) int64 {
		if i >= len(f) {
			return 0
		}
		n, _ := strconv.ParseInt(f[i], 10, 64)
		return n * sector
	}
	return diskCount{read: at(2), written: at(6)}
}

// routes splits the bytes by the route that they took. Lanes know the bytes that they read past the page cache. For
// reads through the page cache, the kernel's count of bytes fetched for this process tells how many were not cached.
func (m *meter) routes(s *dataset.Set, spent counters) ([]record.Route, string) {
	direct, through := m.byRoute[Direct], m.byRoute[Buffered]
	var out []record.Route
	add := func(name string, n int64) {
		if n > 0 {
			out = append(out, record.Route{Route: name, Bytes: n})
		}
	}
	below, unproven := s.Files()[0].Storage(), ""
	proof := "each O_DIRECT call that succeeded"
	if !below.Proves() {
		unproven = "_unproven"
		proof += ", which proves nothing here: " + cmp.Or(below.Hidden, below.FS.Name+" may go through the page cache")
	}
	add("direct"+unproven, direct)
	if m.spec.Op == Write {
		add("buffered", through)
		return out, "each call that succeeded, with or without O_DIRECT"
	}
	if through == 0 {
		return out, proof
	}
	fs := s.Files()[0].FS()
	switch {
	case fs.Memory:
		add("page_cache", through)
		return out, "the file system keeps its files in memory"
	case spent.fetched < 0 || !countsFetches(fs.Name):
		add("unknown", through)
		return out, "the kernel does not count what " + fs.Name + " fetches for this process"
	}
	missed := min(through, max(0, spent.fetched-direct))
	if below.Hidden == "" {
		unproven = ""
	}
	add("buffered"+unproven, missed)
	add("page_cache", through-missed)
	return out, "the kernel's count of bytes that this process made storage deliver (/proc/self/io)"
}

// countsFetches lists the file systems whose reads are charged to the reader.
func countsFetches(name string) bool {
	return slices.Contains([]string{"ext4", "xfs", "btrfs", "f2fs", "nfs", "overlayfs", "overlay"}, name)
}
