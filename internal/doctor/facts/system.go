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

// MemInfo returns one value of /proc/meminfo in bytes, or 0 if it is missing.
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

// KernelConfig returns the build configuration of the running kernel, from /boot or from the kernel itself. The
// second result of KernelConfig is false if neither source is available.
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

// unzip bounds the size of the decompressed text.
func unzip(b []byte) (string, bool) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return "", false
	}
	text, err := io.ReadAll(io.LimitReader(z, maxRead))
	return string(text), err == nil
}

// MayLock reports whether the process may exceed the limit of locked memory (CAP_IPC_LOCK). Root in a container often
// lacks CAP_IPC_LOCK.
func (f *Facts) MayLock() bool {
	const ipcLock = 14
	s, _ := f.Text("/proc/self/status")
	caps, err := strconv.ParseUint(ParseParams(s)["CapEff"], 16, 64)
	return err == nil && caps>>ipcLock&1 == 1
}

// AllowedCPUs returns the CPUs that this process may run on, or nil if they are not known.
func (f *Facts) AllowedCPUs() []int {
	s, _ := f.Text("/proc/self/status")
	return ParseList(ParseParams(s)["Cpus_allowed_list"])
}

// NodeCPUs returns the CPUs of a NUMA node, or nil if they are not known.
func (f *Facts) NodeCPUs(node int) []int {
	s, _ := f.Text("/sys/devices/system/node/node" + strconv.Itoa(node) + "/cpulist")
	return ParseList(s)
}

// CGroups returns the cgroup v2 directories from the cgroup of this process up to the root. The list is nil if the
// process is in no cgroup v2.
func (f *Facts) CGroups() []string {
	s, _ := f.Text("/proc/self/cgroup")
	for line := range strings.Lines(s) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return upward("/sys/fs/cgroup", own)
		}
	}
	return nil
}

// CGroups1 returns the directories of a cgroup v1 controller, from the cgroup of this process up to the controller's
// root. The list is nil if the machine has no such controller.
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
