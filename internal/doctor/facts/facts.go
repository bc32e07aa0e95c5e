// SPDX-License-Identifier: Apache-2.0

// Package facts reads the facts of a machine about the route from a path to a GPU.
// It does not judge them.
//
// Files under /proc, /sys, /etc, /run, /dev and /boot come through a Tree: the live
// machine, or a capture of another one. Facts that are in no file are in Meta. The
// input is not trusted: parsers are bounded and skip malformed parts.
package facts

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/device"
)

// Facts describes a machine for the checks. The structure is gathered once; single
// settings are read by the check that needs them. It is safe for concurrent use only
// if its Tree is.
type Facts struct {
	Tree
	Meta
	DriverText string // /proc/driver/nvidia/version; empty without a driver
	Driver     [3]int // its version, zero if it could not be read
	GPUs       []GPU  // by their address on the bus
	GPU        *GPU   // the one of the pair, nil without
	Mounts     []Mount
	Mount      *Mount // of the target, nil without
	Disks      []Disk // at the bottom of the target's stack, 64 at most
	// Stack are the block devices from the top to before the disks: md127, dm-0.
	Stack  []string
	CuFile CuFile
	Nodes  int // NUMA nodes
}

// GPU is one NVIDIA GPU as the kernel shows it.
type GPU struct {
	Index int    `json:"index"` // as CUDA counts; -1 where CUDA does not see it
	Model string `json:"model"`
	PCI   string `json:"pci"`
	NUMA  int    `json:"numa"` // -1 unknown
}

// Gather reads the structure of a machine. gpu is the index of the GPU of the
// pair as CUDA counts, -1 for the first one. It never fails: what cannot be
// read is absent.
func Gather(t Tree, m Meta, gpu int) *Facts {
	f := &Facts{Meta: m, Tree: t}
	f.DriverText, _ = f.Text("/proc/driver/nvidia/version")
	f.Driver = ParseVersion(DriverVersion(f.DriverText))
	f.Nodes = len(f.Glob("/sys/devices/system/node", "node[0-9]*"))
	f.gatherGPUs(gpu)
	info, _ := f.Text("/proc/self/mountinfo")
	f.Mounts = ParseMountinfo(info)
	if m.Target != nil {
		f.Mount = MountOf(f.Mounts, m.Target.Path)
		f.gatherDisks()
	}
	f.gatherCuFile()
	return f
}

// State is the outcome of reading a file.
type State int

// The states. A file that may not be read is never taken for one that is not
// there.
const (
	There State = iota
	Missing
	Denied
)

// Text reads a file without surrounding blanks; empty if it is not There.
func (f *Facts) Text(name string) (string, State) {
	b, err := f.ReadFile(name)
	switch {
	case err == nil:
		return strings.TrimSpace(string(b)), There
	case errors.Is(err, fs.ErrNotExist):
		return "", Missing
	}
	return "", Denied
}

// Integer reads a file that holds one number; false if it does not.
func (f *Facts) Integer(name string) (int64, bool) {
	s, _ := f.Text(name)
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// Glob lists the paths under dir whose last element matches pattern, sorted.
func (f *Facts) Glob(dir, pattern string) []string { return glob(f.Tree, dir, pattern) }

// X86 reports whether the rules of x86 about IOMMU, ACS and BAR1 apply.
func (f *Facts) X86() bool { return f.Arch == "x86_64" || f.Arch == "amd64" }

// Grace is an Arm host with NVIDIA GPUs, whose rules about the IOMMU are the
// reverse of those for x86.
func (f *Facts) Grace() bool { return f.Arch == "aarch64" || f.Arch == "arm64" }

// Pair reports whether there is a way to judge: a GPU and a path.
func (f *Facts) Pair() bool { return f.GPU != nil && f.Mount != nil }

// Container names the sign by which this process is in a container; empty where
// there is none. The marker that container engines leave in the root directory
// counts only where the root is not the whole file system of a block device:
// an image unpacked onto a disk keeps the file and is no container any more.
func (f *Facts) Container() string {
	root := MountOf(f.Mounts, "/")
	if root != nil && (root.FSType == "overlay" || root.FSType == "fuse.fuse-overlayfs" || root.FSType == "aufs") {
		return "the root is " + root.FSType
	}
	own := root != nil && root.Root == "/" && strings.HasPrefix(root.Source, "/dev/")
	for _, name := range []string{"/run/.containerenv", "/.dockerenv"} {
		if !own && f.Exists(name) {
			return name
		}
	}
	s, _ := f.Text("/proc/self/cgroup")
	for _, word := range []string{"/docker/", "/docker-", "/kubepods", "/libpod-", "/lxc/", "/crio-"} {
		if strings.Contains(s, word) {
			return "the cgroup " + strings.Trim(word, "/-")
		}
	}
	return ""
}

// Virtual names the hypervisor's guest that this is; empty if none is seen.
func (f *Facts) Virtual() string {
	if cpu, _ := f.Text("/proc/cpuinfo"); strings.Contains(cpu, " hypervisor") {
		if name, s := f.Text("/sys/class/dmi/id/sys_vendor"); s == There && name != "" {
			return "virtual machine (" + name + ")"
		}
		return "virtual machine"
	}
	if name, _ := f.Text("/sys/class/dmi/id/product_name"); strings.Contains(name, "KVM") ||
		strings.Contains(name, "Virtual") {
		return "virtual machine (" + name + ")"
	}
	if f.Exists("/sys/hypervisor/type") {
		return "virtual machine (Xen)"
	}
	return ""
}

// gatherGPUs lists GPUs as the driver does, else as PCI does, so that one
// without a driver is seen too.
func (f *Facts) gatherGPUs(want int) {
	for _, dir := range f.Glob("/proc/driver/nvidia/gpus", "*") {
		if !IsBDF(strings.ToLower(path.Base(dir))) {
			continue
		}
		info, _ := f.Text(path.Join(dir, "information"))
		f.GPUs = append(f.GPUs, GPU{Model: ParseParams(info)["Model"], PCI: strings.ToLower(path.Base(dir))})
	}
	if len(f.GPUs) == 0 {
		for _, dir := range f.Glob("/sys/bus/pci/devices", "*") {
			if !IsBDF(path.Base(dir)) {
				continue
			}
			class, _ := f.Text(path.Join(dir, "class"))
			vendor, _ := f.Text(path.Join(dir, "vendor"))
			if vendor == "0x10de" && (strings.HasPrefix(class, "0x0302") || strings.HasPrefix(class, "0x0300")) {
				f.GPUs = append(f.GPUs, GPU{PCI: path.Base(dir)})
			}
		}
	}
	slices.SortFunc(f.GPUs, func(a, b GPU) int { return strings.Compare(a.PCI, b.PCI) })
	seen := map[int]int{} // position by CUDA's index
	for i := range f.GPUs {
		g := &f.GPUs[i]
		g.Index, g.NUMA = i, f.PCI(g.PCI).NUMA
		if d := f.surveyed(g.PCI); d != nil {
			if n, err := strconv.Atoi(strings.TrimPrefix(d.ID, "cuda:")); err == nil {
				seen[n] = i
			}
		}
	}
	// CUDA may count in another order than the bus, and may be shown a part of
	// the GPUs; --gpu means CUDA's count. A GPU that it does not see has none.
	if len(seen) > 0 {
		for i := range f.GPUs {
			f.GPUs[i].Index = -1
		}
		for n, i := range seen {
			f.GPUs[i].Index = n
		}
	}
	for i := range f.GPUs {
		if f.GPUs[i].Index == max(want, 0) {
			f.GPU = &f.GPUs[i]
			return
		}
	}
	if want < 0 && len(f.GPUs) > 0 {
		f.GPU = &f.GPUs[0]
	}
}

// surveyed is what CUDA and NVML told about the GPU at an address, nil where
// they were not asked or do not see it.
func (f *Facts) surveyed(bdf string) *device.Info {
	if f.Survey == nil {
		return nil
	}
	for i := range f.Survey.Devices {
		if SamePCI(f.Survey.Devices[i].PCI, bdf) {
			return &f.Survey.Devices[i]
		}
	}
	return nil
}

// GPUFact is a property of the pair's GPU as the driver's libraries gave it,
// such as persistence_mode; false if it is not known.
func (f *Facts) GPUFact(name string) (string, bool) {
	if f.GPU == nil {
		return "", false
	}
	d := f.surveyed(f.GPU.PCI)
	if d == nil {
		return "", false
	}
	v, ok := d.Facts[name]
	return v, ok && v != ""
}

// GPUMemory is the memory of the pair's GPU in bytes, 0 unknown.
func (f *Facts) GPUMemory() int64 {
	if f.GPU == nil {
		return 0
	}
	if d := f.surveyed(f.GPU.PCI); d != nil {
		return d.TotalMemory
	}
	return 0
}

// NVFS reports whether nvidia-fs is loaded.
func (f *Facts) NVFS() bool {
	return f.Exists("/proc/driver/nvidia-fs/version") || f.Exists("/sys/module/nvidia_fs")
}

// NVFSVersion is the version of nvidia-fs as it calls itself, empty if it
// cannot be read.
func (f *Facts) NVFSVersion() string {
	s, _ := f.Text("/proc/driver/nvidia-fs/version")
	if _, v, ok := strings.Cut(s, ":"); ok {
		return strings.TrimSpace(v)
	}
	if s == "" {
		s, _ = f.Text("/sys/module/nvidia_fs/version")
	}
	return s
}
