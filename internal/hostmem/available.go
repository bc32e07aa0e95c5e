// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Available is the amount of memory that this process can still allocate without being killed by the kernel.
type Available struct {
	Bytes int64
	// Limit names the source of the limit: "this machine", or a cgroup and its control files.
	Limit string
	// Known is false if the kernel does not report the available memory; Bytes is then 0.
	Known bool
}

// FindAvailable returns the memory that is available to this process, from the files of /proc and cgroups below root.
// The parameter `root` is "/" except in tests. The result is the smallest of the limits of the machine and of the
// memory cgroups. The limit of the machine is MemAvailable plus free swap. The limit of each memory cgroup that
// contains this process is the cgroup's maximum minus its usage. Page cache counts as available, because the kernel
// reclaims it first.
func FindAvailable(root string) Available {
	swap, least := int64(0), Available{Limit: "this machine"}
	if text, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		fields := numbers(string(text))
		if n, ok := fields["MemAvailable:"]; ok {
			swap = fields["SwapFree:"] << 10
			least.Bytes, least.Known = plus(n<<10, swap), true
		}
	}
	for _, g := range memoryGroups(root) {
		if room, ok := g.room(swap); ok && (!least.Known || room < least.Bytes) {
			least = Available{Bytes: room, Limit: g.name, Known: true}
		}
	}
	return least
}

// unlimited is the smallest number that means "no limit". Version 1 of cgroups writes the largest number of whole
// pages for no limit.
const unlimited = int64(1) << 60

// most is the largest value of a sum, so that no file content causes an overflow.
const most = int64(1) << 62

func plus(a, b int64) int64 { return min(max(a, 0), most) + min(max(b, 0), most-min(max(a, 0), most)) }

// memoryGroup is one memory cgroup: its directory and the names of its files,
// which differ between the two versions.
type memoryGroup struct {
	dir, name            string
	limits               []string
	used, stat           string
	file                 []string // lines of stat that count reclaimable page cache
	swapLimit, swapUsage string
	swapWithMemory       bool // the swap files count memory too
}

// room returns the memory that a group still allows, or false if the group has no limit.
func (g memoryGroup) room(freeSwap int64) (int64, bool) {
	limit := unlimited
	for _, name := range g.limits {
		if n, ok := g.number(name); ok {
			limit = min(limit, n)
		}
	}
	used, ok := g.number(g.used)
	if limit >= unlimited || !ok {
		return 0, false
	}
	room := limit - used
	if text, err := os.ReadFile(filepath.Join(g.dir, g.stat)); err == nil {
		fields := numbers(string(text))
		for _, name := range g.file {
			room = min(room+min(max(fields[name], 0), most), limit)
		}
	}
	swap := freeSwap
	if n, ok := g.number(g.swapLimit); ok {
		taken, _ := g.number(g.swapUsage)
		left := max(n-taken, 0)
		if g.swapWithMemory {
			left = max(left-max(limit-used, 0), 0)
		}
		swap = min(swap, left)
	}
	return max(plus(max(room, 0), swap), 0), true
}

// number reads a file that holds one number; "max" is no limit.
func (g memoryGroup) number(name string) (int64, bool) {
	text, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		return 0, false
	}
	s := strings.TrimSpace(string(text))
	if s == "max" {
		return unlimited, true
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0
}

// memoryGroups lists the memory cgroups of this process, from its own up to the root
// of the mount.
func memoryGroups(root string) []memoryGroup {
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	var out []memoryGroup
	for line := range strings.Lines(string(own)) {
		w := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(w) != 3 {
			continue
		}
		two := w[0] == "0" && w[1] == ""
		if !two && !hasWord(w[1], "memory") {
			continue
		}
		point, top, ok := groupMount(string(mounts), two)
		if !ok {
			continue
		}
		for _, dir := range upTo(w[2], top) {
			out = append(out, newGroup(root, point, dir, two))
		}
	}
	return out
}

// deepest bounds the levels of cgroups that are looked at.
const deepest = 64

// upTo lists the directories from own to the root of the mount, relative to the
// mount. top is the cgroup that the mount shows as its root.
func upTo(own, top string) []string {
	rel, inside := strings.CutPrefix(path.Clean("/"+own), strings.TrimSuffix(top, "/"))
	if !inside || strings.Contains(own, "..") {
		rel = "/" // the cgroup is outside of the mount: at least the limits of the root hold
	}
	var out []string
	for p := path.Clean("/" + rel); len(out) < deepest; p = path.Dir(p) {
		if out = append(out, p); p == "/" {
			break
		}
	}
	return out
}

// groupMount returns the mount point of memory cgroups of a version, and the cgroup at the root of the mount.
func groupMount(mountinfo string, two bool) (point, top string, ok bool) {
	for line := range strings.Lines(mountinfo) {
		left, right, found := strings.Cut(line, " - ")
		a, b := strings.Fields(left), strings.Fields(right)
		if !found || len(a) < 5 || len(b) < 3 {
			continue
		}
		if two && b[0] == "cgroup2" || !two && b[0] == "cgroup" && hasWord(b[2], "memory") {
			return a[4], a[3], true
		}
	}
	return "", "", false
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

func newGroup(root, point, dir string, two bool) memoryGroup {
	g := memoryGroup{dir: filepath.Join(root, point, dir)}
	if two {
		g.name = fmt.Sprintf("cgroup %s (memory.max, memory.high)", dir)
		g.limits, g.used, g.stat = []string{"memory.max", "memory.high"}, "memory.current", "memory.stat"
		g.file = []string{"inactive_file", "active_file"}
		g.swapLimit, g.swapUsage = "memory.swap.max", "memory.swap.current"
		return g
	}
	g.name = fmt.Sprintf("cgroup %s (memory.limit_in_bytes)", dir)
	g.limits, g.used, g.stat = []string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "memory.stat"
	g.file = []string{"total_inactive_file", "total_active_file"}
	g.swapLimit, g.swapUsage, g.swapWithMemory = "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes", true
	return g
}

// numbers reads lines of a name and a number, as in /proc/meminfo and memory.stat.
func numbers(text string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) < 2 {
			continue
		}
		if n, err := strconv.ParseInt(w[1], 10, 64); err == nil && n >= 0 && n < 1<<52 {
			out[w[0]] = n
		}
	}
	return out
}
