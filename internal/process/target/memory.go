// SPDX-License-Identifier: Apache-2.0

package target

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// FreeMemory returns how many bytes of host memory the process can still take, and what limits it.
func FreeMemory(t Tree, pid int) (free int64, by string, err error) {
	t = t.filled()
	text, err := readFile(filepath.Join(t.Proc, "meminfo"))
	if err != nil {
		return 0, "", errs.Wrap("read", "meminfo", err)
	}
	free = -1
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			free = kibibytes(strings.TrimSpace(value))
		}
	}
	if free < 0 {
		return 0, "", errs.New(errs.Unsupported, "read", "meminfo", "has no line MemAvailable")
	}
	by = "the memory of the machine"
	group, err := readFile(filepath.Join(t.Proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return free, by, nil // the machine is the only limit that can be seen
	}
	for dir := unifiedGroup(group); dir != "" && dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		room, ok := groupRoom(filepath.Join(t.Sys, "fs/cgroup", dir))
		if ok && room < free {
			free, by = room, "the memory limit of the cgroup "+dir
		}
	}
	return free, by, nil
}

// unifiedGroup returns the path of a process in the unified cgroup hierarchy.
func unifiedGroup(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && strings.HasPrefix(dir, "/") {
			return filepath.Clean(dir)
		}
	}
	return ""
}

// groupRoom returns how much memory a cgroup may still take. Cached files do not count: they give way.
func groupRoom(dir string) (int64, bool) {
	limit, ok1 := groupNumber(dir, "memory.max")
	used, ok2 := groupNumber(dir, "memory.current")
	if !ok1 || !ok2 {
		return 0, false
	}
	if stat, err := readFile(filepath.Join(dir, "memory.stat")); err == nil {
		for line := range strings.Lines(string(stat)) {
			if value, ok := strings.CutPrefix(line, "inactive_file "); ok {
				cached, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				used -= max(0, cached)
			}
		}
	}
	return max(0, limit-used), true
}

func groupNumber(dir, name string) (int64, bool) {
	text, err := readFile(filepath.Join(dir, name))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n >= 0 // "max" is no limit
}
