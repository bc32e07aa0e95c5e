// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"
)

// mostCGroups bounds the control groups that are read.
const mostCGroups = 64

// parsePIDCGroup parses /proc/PID/cgroup. The result has the path in version 2, then the path of the processor
// controller of version 1, as "v2:/path" and "cpu:/path". Paths of controllers that are not mounted are the root.
func parsePIDCGroup(b []byte) (out []string) {
	for line := range bytes.Lines(b) {
		w := bytes.SplitN(bytes.TrimSpace(line), []byte(":"), 3)
		if len(w) != 3 || len(w[2]) == 0 || w[2][0] != '/' || len(w[2]) > 4096 || bytes.Contains(w[2], []byte(" ")) {
			continue
		}
		switch controllers := string(w[1]); {
		case controllers == "" && string(w[0]) == "0":
			out = append(out, "v2:"+path.Clean(string(w[2])))
		case slices.Contains(strings.Split(controllers, ","), "cpu"):
			out = append(out, "cpu:"+path.Clean(string(w[2])))
		}
	}
	slices.Sort(out) // "cpu:" before "v2:"
	return out
}

// keyed parses lines of a name and a number, such as those of cpu.stat.
func keyed(b []byte, want map[string]*uint64) {
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if to := want[string(name)]; ok && to != nil {
			*to, _ = parseCount(bytes.TrimSpace(rest))
		}
	}
}

// parseCPUMax parses cpu.max, which is "QUOTA PERIOD" or "max PERIOD", into processors. 0 means no limit.
func parseCPUMax(b []byte) float64 {
	var n [2]uint64
	if counts(b, n[:]) != 2 || n[1] == 0 {
		return 0
	}
	return float64(n[0]) / float64(n[1])
}

// readCGroups reads the control groups of the sample's processes and the groups above them.
func (c *Collector) readCGroups(s *Sample) {
	members := map[string][]string{}
	for _, p := range s.Processes {
		for id := range strings.FieldsSeq(p.CGroup) {
			for ; !strings.HasSuffix(id, ":/"); id = parentGroup(id) {
				if len(members) >= mostCGroups && members[id] == nil {
					break
				}
				if list := members[id]; len(list) < 8 && !slices.Contains(list, p.Name) {
					members[id] = append(list, p.Name)
				}
			}
		}
	}
	before := c.groups
	c.groups = map[string]groupState{}
	for id, names := range members {
		g, ok := c.readCGroup(id)
		if !ok {
			continue
		}
		g.Processes = names
		if old, ok := before[id]; ok {
			g.since(old, s.Seconds)
		}
		c.groups[id] = g
		s.CGroups = append(s.CGroups, g.CGroup)
	}
	slices.SortFunc(s.CGroups, func(a, b CGroup) int {
		return cmp.Or(cmp.Compare(b.ThrottledRate, a.ThrottledRate), cmp.Compare(b.CPU, a.CPU), strings.Compare(a.Path,
			b.Path))
	})
}

// parentGroup returns the group above, such as "v2:/a" for "v2:/a/b".
func parentGroup(id string) string {
	kind, p, _ := strings.Cut(id, ":")
	return kind + ":" + path.Dir(p)
}

// groupState is a CGroup with the counters that a Sample does not show.
type groupState struct {
	CGroup
	full int64 // microseconds in which all threads waited for I/O; -1 if unknown
}

func (g *groupState) since(before groupState, seconds float64) {
	g.IOFull = stalled(g.full, before.full, seconds)
	if seconds <= 0 {
		return
	}
	g.ThrottledShare = part(float64(grown(g.Throttled, before.Throttled)), float64(grown(g.Periods, before.Periods)))
	g.ThrottledRate = ago(g.ThrottledSeconds, before.ThrottledSeconds, seconds)
	g.CPU = ago(g.CPUSeconds, before.CPUSeconds, seconds)
	g.MemoryStallRate = per(g.MemoryStalls, before.MemoryStalls, seconds)
}

// readCGroup reads one group, and returns false if the group is not there.
func (c *Collector) readCGroup(id string) (groupState, bool) {
	kind, p, _ := strings.Cut(id, ":")
	g := groupState{CGroup: CGroup{Path: p, IOFull: -1}, full: -1}
	if kind == "cpu" {
		return g, c.readCGroup1(&g)
	}
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		dir := root + p
		b, err := c.files.read(dir + "/cpu.stat")
		if err != nil {
			continue
		}
		var used, stopped uint64
		keyed(b, map[string]*uint64{"usage_usec": &used, "nr_periods": &g.Periods, "nr_throttled": &g.Throttled,
			"throttled_usec": &stopped})
		g.CPUSeconds, g.ThrottledSeconds = float64(used)/1e6, float64(stopped)/1e6
		if b, err := c.files.read(dir + "/cpu.max"); err == nil {
			g.Quota = parseCPUMax(b)
		}
		if b, err := c.files.read(dir + "/io.max"); err == nil {
			g.IOLimit = strings.ReplaceAll(strings.TrimSpace(string(b[:min(len(b), mostCommand)])), "\n", "; ")
		}
		if n, ok := c.files.number(dir + "/memory.max"); ok {
			g.MemoryLimit = n
			g.MemoryUsed, _ = c.files.number(dir + "/memory.current")
		}
		if b, err := c.files.read(dir + "/memory.events"); err == nil {
			var high, most uint64
			keyed(b, map[string]*uint64{"high": &high, "max": &most})
			g.MemoryStalls = high + most
		}
		if b, err := c.files.read(dir + "/io.pressure"); err == nil {
			_, g.full = parsePressure(b)
		}
		return g, true
	}
	return g, false
}

// readCGroup1 reads the processor controller of version 1.
func (c *Collector) readCGroup1(g *groupState) bool {
	dir := "/sys/fs/cgroup/cpu" + g.Path
	b, err := c.files.read(dir + "/cpu.stat")
	if err != nil {
		return false
	}
	var stopped uint64 // nanoseconds
	keyed(b, map[string]*uint64{"nr_periods": &g.Periods, "nr_throttled": &g.Throttled, "throttled_time": &stopped})
	g.ThrottledSeconds = float64(stopped) / 1e9
	quota, ok := c.files.number(dir + "/cpu.cfs_quota_us") // -1, which is no count, means no limit
	period, _ := c.files.number(dir + "/cpu.cfs_period_us")
	if ok && period > 0 {
		g.Quota = float64(quota) / float64(period)
	}
	for _, name := range []string{dir, "/sys/fs/cgroup/cpuacct" + g.Path} {
		if n, ok := c.files.number(name + "/cpuacct.usage"); ok {
			g.CPUSeconds = float64(n) / 1e9
			break
		}
	}
	return true
}
