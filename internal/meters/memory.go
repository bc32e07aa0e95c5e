// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bytes"
	"os"
)

// parseMeminfo parses /proc/meminfo into m. The sizes there are KiB.
func parseMeminfo(b []byte, m *Memory) {
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		var n [1]uint64
		if !ok || counts(rest, n[:]) != 1 || n[0] > 1<<53 {
			continue
		}
		size := n[0] << 10
		switch string(name) {
		case "MemTotal":
			m.Total = size
		case "MemAvailable":
			m.Available = size
		case "Cached", "Buffers":
			m.Cached += size
		case "Dirty":
			m.Dirty = size
		case "Writeback":
			m.Writeback = size
		}
	}
}

// parseVmstat parses /proc/vmstat into m. Most counters there are pages of the given size; pgpgin and pgpgout are KiB.
func parseVmstat(b []byte, page uint64, m *Memory) {
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(" "))
		n, isCount := parseCount(bytes.TrimSpace(rest))
		if !ok || !isCount || n > 1<<48 {
			continue
		}
		switch string(name) {
		case "pgpgin":
			m.PagedIn = n << 10
		case "pgpgout":
			m.PagedOut = n << 10
		case "nr_dirtied":
			m.Dirtied = n * page
		case "nr_written":
			m.Written = n * page
		case "nr_dirty_threshold":
			m.DirtyLimit = n * page
		case "nr_dirty_background_threshold":
			m.DirtyBackground = n * page
		case "pgmajfault":
			m.MajorFaults = n
		case "workingset_refault_file", "workingset_refault":
			m.Refaults = n * page
		case "pgscan_direct":
			m.DirectScans = n
		case "pswpin":
			m.SwappedIn = n * page
		}
	}
}

func (c *Collector) readMemory(s *Sample) {
	m, before := &s.Memory, c.memory
	m.HitShare = -1
	b, err := c.files.read("/proc/meminfo")
	if err != nil {
		s.miss("memory", err)
		return
	}
	parseMeminfo(b, m)
	if b, err = c.files.read("/proc/vmstat"); err != nil {
		s.miss("page cache", err)
		return
	}
	parseVmstat(b, uint64(os.Getpagesize()), m)
	if s.Seconds > 0 {
		m.PagedInRate = per(m.PagedIn, before.PagedIn, s.Seconds)
		m.PagedOutRate = per(m.PagedOut, before.PagedOut, s.Seconds)
		m.DirtiedRate = per(m.Dirtied, before.Dirtied, s.Seconds)
		m.WrittenRate = per(m.Written, before.Written, s.Seconds)
		m.MajorFaultRate = per(m.MajorFaults, before.MajorFaults, s.Seconds)
		m.RefaultRate = per(m.Refaults, before.Refaults, s.Seconds)
		m.DirectScanRate = per(m.DirectScans, before.DirectScans, s.Seconds)
		m.SwappedInRate = per(m.SwappedIn, before.SwappedIn, s.Seconds)
	}
	c.memory = *m
}

// leastRead is the rate of read calls, in bytes per second, below which their hits are noise.
const leastRead = 1e6

// setHits computes the share of read calls that storage did not serve, from the processes that were seen.
func (m *Memory) setHits(calls, storage float64) {
	m.CallsRate, m.FromStorageRate, m.HitShare = calls, storage, -1
	if calls >= leastRead {
		m.HitShare = max(0, 1-storage/calls)
	}
}
