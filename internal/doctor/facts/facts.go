// SPDX-License-Identifier: Apache-2.0

// Package facts reads facts about the route from a path to a GPU; the checks in package doctor judge them.
//
// Files under /proc, /sys, /etc, /run, /dev and /boot come through a Tree: the live machine, or a capture of another
// one. Facts about a machine that are in no file are in Meta. The files of a machine are not trusted input: parsers
// are bounded and skip malformed parts.
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

// Facts describes a machine for the checks of package doctor. Gather reads GPUs, disks and mounts once; each check
// reads the single settings that it needs. Facts is safe for concurrent use only if its Tree is.
type Facts struct {
	Tree
	Meta
	DriverText string // content of /proc/driver/nvidia/version; empty without an NVIDIA driver
	Driver     [3]int // version of the NVIDIA driver; zero if it could not be read
	GPUs       []GPU  // all NVIDIA GPUs, by their PCI address
	GPU        *GPU   // the diagnosed GPU; nil if there is none
	Mounts     []Mount
	Mount      *Mount // mount that contains the target (the diagnosed path); nil without a target
	Disks      []Disk // disks at the bottom of the target's device stack, at most 64
	// Stack lists the block devices above the disks, topmost first, such as md127 and dm-0.
	Stack  []string
	CuFile CuFile
	Nodes  int // NUMA nodes
}

// GPU is one NVIDIA GPU as the kernel shows it.
type GPU struct {
	Index int    `json:"index"` // CUDA's index; -1 if CUDA does not see the GPU
	Model string `json:"model"`
	PCI   string `json:"pci"`
	NUMA  int    `json:"numa"` // NUMA node; -1 if unknown
}

// Gather reads GPUs, mounts, disks and the cuFile configuration of a machine. The parameter gpu is the CUDA index of
// the diagnosed GPU, or -1 for the first GPU. Gather never fails: fields of Facts that cannot be read stay empty.
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

// There, Missing and Denied are the outcomes of reading a file. Denied means that the file exists but could not be
// read.
const (
	There State = iota
	Missing
	Denied
)

// Text returns the content of a file without white space at both ends. The text is empty unless the returned State is
// There.
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

// Integer returns the number that a file contains, and false if the file does not contain exactly one number.
func (f *Facts) Integer(name string) (int64, bool) {
	s, _ := f.Text(name)
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// Glob returns the sorted paths in dir with a last element that matches pattern.
func (f *Facts) Glob(dir, pattern string) []string { return glob(f.Tree, dir, pattern) }

// X86 reports whether the machine is an x86-64 host, so that the x86 rules for IOMMU, ACS and BAR1 apply.
func (f *Facts) X86() bool { return f.Arch == "x86_64" || f.Arch == "amd64" }

// Grace reports whether the machine is an Arm host. For hosts with NVIDIA GPUs, the rules for the IOMMU on Arm are
// the reverse of those on x86.
func (f *Facts) Grace() bool { return f.Arch == "aarch64" || f.Arch == "arm64" }

// Pair reports whether both a GPU and the mount of a path are known, so that the route between the two can be judged.
func (f *Facts) Pair() bool { return f.GPU != nil && f.Mount != nil }

// Container returns the evidence that this process runs in a container, or "" if there is none. The files /.dockerenv
// and /run/.containerenv count as evidence of a container only if the root is not a whole file system on a block
// device. A container image that was unpacked onto a disk keeps the file /.dockerenv, but is no longer a container.
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

// Virtual describes the virtual machine in which this process runs, or "" if no hypervisor is seen.
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

// gatherGPUs lists the GPUs that the driver lists, else those on the PCI bus, so that a GPU without a driver is found
// too.
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

// surveyed returns what CUDA and NVML reported about the GPU at an address. It is nil if they were not queried or do
// not see the GPU.
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

// GPUFact returns a property of the diagnosed GPU from the driver's libraries, such as persistence_mode, and false if
// it is not known.
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

// GPUMemory returns the memory of the diagnosed GPU in bytes, or 0 if it is not known.
func (f *Facts) GPUMemory() int64 {
	if f.GPU == nil {
		return 0
	}
	if d := f.surveyed(f.GPU.PCI); d != nil {
		return d.TotalMemory
	}
	return 0
}

// NVFS reports whether the kernel module nvidia-fs is loaded.
func (f *Facts) NVFS() bool {
	return f.Exists("/proc/driver/nvidia-fs/version") || f.Exists("/sys/module/nvidia_fs")
}

// NVFSVersion returns the version that nvidia-fs reports, or "" if it cannot be read.
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
