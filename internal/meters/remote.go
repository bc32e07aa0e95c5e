// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bytes"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// mostMounts bounds the mounts of network file systems that are read.
const mostMounts = 1024

// parseMountstats parses the NFS mounts of /proc/self/mountstats.
func parseMountstats(b []byte) (out []NFS) {
	var m *NFS
	for line := range bytes.Lines(b) {
		w := bytes.Fields(line)
		switch {
		case len(w) >= 8 && string(w[0]) == "device":
			m = nil
			// device SERVER mounted on POINT with fstype nfs4 statvers=1.1
			if kind := string(w[7]); (kind == "nfs" || kind == "nfs4") && len(out) < mostMounts {
				out = append(out, NFS{Server: vfs.UnescapeMount(string(w[1])), Mount: vfs.UnescapeMount(string(w[4]))})
				m = &out[len(out)-1]
			}
		case m == nil || len(w) < 2:
		case string(w[0]) == "READ:":
			ops := operation(w[1:])
			m.Reads, m.ReadBytes, m.ReadQueueMS, m.ReadTripMS = ops[0], ops[4], ops[5], ops[6]
			m.Retransmissions += grown(ops[1], ops[0])
		case string(w[0]) == "WRITE:":
			ops := operation(w[1:])
			m.Writes, m.WriteBytes, m.WriteTripMS = ops[0], ops[3], ops[6]
			m.Retransmissions += grown(ops[1], ops[0])
		}
	}
	return out
}

// operation parses the counters of one NFS operation: requests, transmissions, timeouts, bytes sent, bytes received,
// and milliseconds queued, on the way, and in total.
func operation(w [][]byte) (n [8]uint64) {
	for i := range min(len(w), len(n)) {
		n[i], _ = parseCount(w[i])
	}
	return n
}

// since computes the rates of the mount from its counters before.
func (m *NFS) since(before NFS, seconds float64) {
	if seconds <= 0 {
		return
	}
	reads, writes := float64(grown(m.Reads, before.Reads)), float64(grown(m.Writes, before.Writes))
	m.ReadRate, m.WriteRate = per(m.ReadBytes, before.ReadBytes, seconds), per(m.WriteBytes, before.WriteBytes, seconds)
	m.ReadIOPS, m.WriteIOPS = reads/seconds, writes/seconds
	m.ReadQueue = part(float64(grown(m.ReadQueueMS, before.ReadQueueMS))/1e3, reads)
	m.ReadTrip = part(float64(grown(m.ReadTripMS, before.ReadTripMS))/1e3, reads)
	m.WriteTrip = part(float64(grown(m.WriteTripMS, before.WriteTripMS))/1e3, writes)
	m.RetransmissionRate = per(m.Retransmissions, before.Retransmissions, seconds)
}

func (c *Collector) readNFS(s *Sample) {
	b, err := c.files.read("/proc/self/mountstats")
	if err != nil {
		s.miss("nfs", err)
		return
	}
	before := c.nfs
	c.nfs = map[string]NFS{}
	for _, m := range parseMountstats(b) {
		if old, ok := before[m.Mount]; ok {
			m.since(old, s.Seconds)
		}
		c.nfs[m.Mount] = m
		s.NFS = append(s.NFS, m)
	}
}

// parseLustreStats parses the file stats of a Lustre client into l. A line is: NAME COUNT samples [UNIT] MIN MAX SUM.
func parseLustreStats(b []byte, l *Lustre) {
	for line := range bytes.Lines(b) {
		w := bytes.Fields(line)
		if len(w) < 7 || string(w[2]) != "samples" || string(w[3]) != "[bytes]" {
			continue
		}
		n, ok1 := parseCount(w[1])
		sum, ok2 := parseCount(w[6])
		if !ok1 || !ok2 {
			continue
		}
		switch string(w[0]) {
		case "read_bytes":
			l.Reads, l.ReadBytes = n, sum
		case "write_bytes":
			l.Writes, l.WriteBytes = n, sum
		}
	}
}

// parseInFlight returns the requests in flight of a file rpc_stats of Lustre.
func parseInFlight(b []byte) (n int) {
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		switch string(bytes.TrimSpace(name)) {
		case "read RPCs in flight", "write RPCs in flight":
			n += small(rest)
		}
	}
	return min(n, 1<<20)
}

// since computes the rates of the file system from its counters before.
func (l *Lustre) since(before Lustre, seconds float64) {
	l.ReadRate, l.WriteRate = per(l.ReadBytes, before.ReadBytes, seconds), per(l.WriteBytes, before.WriteBytes, seconds)
	l.ReadIOPS, l.WriteIOPS = per(l.Reads, before.Reads, seconds), per(l.Writes, before.Writes, seconds)
}

// lustreRoots are the places of the counters of Lustre clients: newer ones in debugfs, older ones in /proc.
func lustreRoots() []string { return []string{"/sys/kernel/debug/lustre", "/proc/fs/lustre"} }

func (c *Collector) readLustre(s *Sample) {
	// A mount is listed in sysfs for everybody; its counters may be for root only.
	mounts, err := c.files.names("/sys/fs/lustre/llite")
	if err != nil {
		if mounts, err = c.files.names("/proc/fs/lustre/llite"); err != nil {
			return // no Lustre here
		}
	}
	slices.Sort(mounts)
	before := c.lustre
	c.lustre = map[string]Lustre{}
	for _, name := range mounts[:min(len(mounts), 64)] {
		l := Lustre{Name: name}
		if !c.readLustreMount(&l) {
			s.missText("lustre", "the counters of "+name+" cannot be read", "run as root")
			continue
		}
		if old, ok := before[name]; ok {
			l.since(old, s.Seconds)
		}
		c.lustre[name] = l
		s.Lustre = append(s.Lustre, l)
	}
}

func (c *Collector) readLustreMount(l *Lustre) bool {
	for _, root := range lustreRoots() {
		b, err := c.files.read(root + "/llite/" + l.Name + "/stats")
		if err != nil {
			continue
		}
		parseLustreStats(b, l)
		system, _, _ := strings.Cut(l.Name, "-")
		targets, _ := c.files.names(root + "/osc")
		for _, t := range targets[:min(len(targets), 512)] {
			if strings.HasPrefix(t, system+"-OST") {
				if b, err := c.files.read(root + "/osc/" + t + "/rpc_stats"); err == nil {
					l.Waiting += parseInFlight(b)
				}
			}
		}
		return true
	}
	return false
}

// parseNVFS parses /proc/driver/nvidia-fs/stats into f. The lines that count transfers look like
//
//	Reads                : n=12 ok=12 err=0 readMiB=3 io_state_err=0
//	Writes               : n=0 ok=0 err=0 writeMiB=0 io_state_err=0 pg-cache=0 …
func parseNVFS(b []byte, f *CuFile) {
	f.Counted = true
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		switch string(bytes.TrimSpace(name)) {
		case "IO stats":
			f.Counted = !bytes.HasPrefix(bytes.TrimSpace(rest), []byte("Disabled"))
		case "Reads":
			if !bytes.Contains(rest, []byte("n=")) {
				continue // a second line has the bandwidth
			}
			f.Reads, f.ReadBytes = named(rest, "n="), min(named(rest, "readMiB="), 1<<43)<<20
			f.Errors += named(rest, "err=")
		case "Writes":
			if !bytes.Contains(rest, []byte("n=")) {
				continue
			}
			f.Writes, f.WriteBytes = named(rest, "n="), min(named(rest, "writeMiB="), 1<<43)<<20
			f.Errors += named(rest, "err=")
		}
	}
}

// named returns the number behind a word such as "n=", or 0.
func named(b []byte, word string) uint64 {
	for w := range bytes.FieldsSeq(b) {
		if rest, ok := bytes.CutPrefix(w, []byte(word)); ok {
			n, _ := parseCount(rest)
			return n
		}
	}
	return 0
}

func (c *Collector) readCuFile(s *Sample) {
	b, err := c.files.read("/proc/driver/nvidia-fs/stats")
	if err != nil {
		return // the module nvidia-fs is not loaded; GPUs have a line of their own in Missing
	}
	f := &CuFile{}
	parseNVFS(b, f)
	if !f.Counted {
		s.missText("cufile", "nvidia-fs does not count transfers",
			"echo 1 > /sys/module/nvidia_fs/parameters/rw_stats_enabled")
	}
	if old := c.cufile; old != nil {
		f.ReadRate, f.WriteRate = per(f.ReadBytes, old.ReadBytes, s.Seconds), per(f.WriteBytes, old.WriteBytes, s.Seconds)
		f.ReadIOPS, f.WriteIOPS = per(f.Reads, old.Reads, s.Seconds), per(f.Writes, old.Writes, s.Seconds)
		f.ErrorRate = per(f.Errors, old.Errors, s.Seconds)
	}
	c.cufile, s.CuFile = f, f
}
