// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"compress/gzip"
	"io"
	"path"
	"strconv"
	"strings"
)

// MemInfo reads one line of /proc/meminfo in bytes, 0 if it is missing.
func (f *Facts) MemInfo(name string) int64 {
	s, _ := f.Text("/proc/meminfo")
	v := strings.Fields(ParseParams(s)[name])
	if len(v) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(v[0], 10, 64)
	if err != nil || n < 0 || n > 1<<50 {
		return 0
	}
	return n << 10
}

// KernelConfig is the configuration that the running kernel was built with, from
// /boot or from the kernel itself; false if neither has it.
func (f *Facts) KernelConfig() (string, bool) {
	if s, st := f.Text("/boot/config-" + f.Kernel); st == There {
		return s, true
	}
	b, err := f.ReadFile("/proc/config.gz")
	if err != nil {
		return "", false
	}
	return unzip(b)
}

// unzip bounds what a few bytes may become.
func unzip(b []byte) (string, bool) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return "", false
	}
	text, err := io.ReadAll(io.LimitReader(z, maxRead))
	return string(text), err == nil
}

// MayLock reports whether the process is above the limit of locked memory; root in a
// container often is not.
func (f *Facts) MayLock() bool {
	const ipcLock = 14
	s, _ := f.Text("/proc/self/status")
	caps, err := strconv.ParseUint(ParseParams(s)["CapEff"], 16, 64)
	return err == nil && caps>>ipcLock&1 == 1
}

// AllowedCPUs are the CPUs that this process may run on, nil unknown.
func (f *Facts) AllowedCPUs() []int {
	s, _ := f.Text("/proc/self/status")
	return ParseList(ParseParams(s)["Cpus_allowed_list"])
}

// NodeCPUs are the CPUs of a NUMA node, nil unknown.
func (f *Facts) NodeCPUs(node int) []int {
	s, _ := f.Text("/sys/devices/system/node/node" + strconv.Itoa(node) + "/cpulist")
	return ParseList(s)
}

// CGroups lists the cgroup v2 directories from this process's to the root, nil
// where it is in none.
func (f *Facts) CGroups() []string {
	s, _ := f.Text("/proc/self/cgroup")
	for line := range strings.Lines(s) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return upward("/sys/fs/cgroup", own)
		}
	}
	return nil
}

// CGroups1 lists the directories of a cgroup v1 controller from this process's
// to the controller's root, nil if the machine has no v1 for it.
func (f *Facts) CGroups1(controller string) []string {
	s, _ := f.Text("/proc/self/cgroup")
	for line := range strings.Lines(s) {
		w := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(w) != 3 || w[1] == "" {
			continue
		}
		for c := range strings.SplitSeq(w[1], ",") {
			if c != controller {
				continue
			}
			// cpu and cpuacct are one hierarchy, reachable by either name.
			return upward("/sys/fs/cgroup/"+controller, w[2])
		}
	}
	return nil
}

func upward(base, own string) []string {
	var out []string
	for p := path.Clean("/" + own); len(out) < 64; p = path.Dir(p) {
		out = append(out, path.Join(base, p))
		if p == "/" {
			break
		}
	}
	return out
}
