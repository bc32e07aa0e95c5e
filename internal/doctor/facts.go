// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// facts is a machine as the checks ask about it. Structure is gathered once;
// single settings are read where they are judged.
type facts struct {
	Meta
	t       Tree
	opt     Options
	version string // of the driver, as it calls itself; empty without one
	driver  [3]int
	gpus    []GPU
	gpu     *GPU // the one of the pair, nil without
	mounts  []mount
	mount   *mount // of the target, nil without
	disks   []disk
	stack   []string // block devices from the top to before the disks: md127, dm-0
	cufile  cufile
	nodes   int // NUMA nodes
}

// cufile is the configuration that libcufile would take.
type cufile struct {
	path   string // empty where there is none
	values map[string]any
	err    error
}

func (c *cufile) boolean(name string) (v, set bool) {
	x, ok := lookup(c.values, name)
	b, isBool := x.(bool)
	return b, ok && isBool
}

func (c *cufile) number(name string) (float64, bool) {
	x, _ := lookup(c.values, name)
	n, ok := x.(float64)
	return n, ok
}

func gather(t Tree, m Meta, o Options) *facts {
	f := &facts{Meta: m, t: t, opt: o}
	f.version, _ = f.text("/proc/driver/nvidia/version")
	f.driver = parseVersion(driverVersion(f.version))
	f.nodes = len(glob(t, "/sys/devices/system/node", "node[0-9]*"))
	f.gatherGPUs()
	info, _ := f.text("/proc/self/mountinfo")
	f.mounts = parseMountinfo(info)
	if m.Target != nil {
		f.mount = mountOf(f.mounts, m.Target.Path)
		f.gatherDisks()
	}
	f.gatherCuFile()
	return f
}

// state says how reading a file went.
type state int

const (
	there state = iota
	missing
	denied
)

// text reads a file without surrounding blanks.
func (f *facts) text(name string) (string, state) {
	b, err := f.t.ReadFile(name)
	switch {
	case err == nil:
		return strings.TrimSpace(string(b)), there
	case errors.Is(err, fs.ErrNotExist):
		return "", missing
	}
	return "", denied
}

// integer reads a file that holds one number.
func (f *facts) integer(name string) (int64, bool) {
	s, _ := f.text(name)
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func (f *facts) x86() bool { return f.Arch == "x86_64" || f.Arch == "amd64" }

// grace is an Arm host with NVIDIA GPUs, whose rules about the IOMMU are the
// reverse of those for x86.
func (f *facts) grace() bool { return f.Arch == "aarch64" || f.Arch == "arm64" }

// pair says that there is a way to judge: a GPU and a path.
func (f *facts) pair() bool { return f.gpu != nil && f.mount != nil }

const noPair = "needs a path and a GPU"

func (f *facts) container() bool {
	if f.t.Exists("/.dockerenv") || f.t.Exists("/run/.containerenv") {
		return true
	}
	root := mountOf(f.mounts, "/")
	return root != nil && root.fstype == "overlay"
}

func (f *facts) virtual() string {
	if cpu, _ := f.text("/proc/cpuinfo"); strings.Contains(cpu, " hypervisor") {
		if name, s := f.text("/sys/class/dmi/id/sys_vendor"); s == there && name != "" {
			return "virtual machine (" + name + ")"
		}
		return "virtual machine"
	}
	if name, _ := f.text("/sys/class/dmi/id/product_name"); strings.Contains(name, "KVM") || strings.Contains(name, "Virtual") {
		return "virtual machine (" + name + ")"
	}
	if f.t.Exists("/sys/hypervisor/type") {
		return "virtual machine (Xen)"
	}
	return ""
}

func (f *facts) machine() Machine {
	v := f.virtual()
	if v == "" {
		v = "none seen"
	}
	if f.container() {
		v += ", in a container"
	}
	return Machine{Kernel: f.Kernel, Arch: f.Arch, CPUs: f.CPUs, Virtualisation: v, Driver: driverVersion(f.version), Root: f.UID == 0}
}

func (f *facts) pathInfo() PathInfo {
	if f.Target == nil {
		return PathInfo{}
	}
	p := PathInfo{Path: f.Target.Path}
	if f.mount != nil {
		p.Mount, p.FSType, p.Source = f.mount.point, f.mount.fstype, f.mount.source
	}
	for _, d := range f.disks {
		p.Disks = append(p.Disks, d.Disk)
	}
	return p
}

// gatherGPUs lists GPUs as the driver does, else as PCI does, so that one
// without a driver is seen too.
func (f *facts) gatherGPUs() {
	for _, dir := range glob(f.t, "/proc/driver/nvidia/gpus", "*") {
		if !isBDF(strings.ToLower(path.Base(dir))) {
			continue
		}
		info, _ := f.text(path.Join(dir, "information"))
		f.gpus = append(f.gpus, GPU{Model: parseParams(info)["Model"], PCI: strings.ToLower(path.Base(dir))})
	}
	if len(f.gpus) == 0 {
		for _, dir := range glob(f.t, "/sys/bus/pci/devices", "*") {
			if !isBDF(path.Base(dir)) {
				continue
			}
			class, _ := f.text(path.Join(dir, "class"))
			vendor, _ := f.text(path.Join(dir, "vendor"))
			if vendor == "0x10de" && (strings.HasPrefix(class, "0x0302") || strings.HasPrefix(class, "0x0300")) {
				f.gpus = append(f.gpus, GPU{PCI: path.Base(dir)})
			}
		}
	}
	slices.SortFunc(f.gpus, func(a, b GPU) int { return strings.Compare(a.PCI, b.PCI) })
	seen := map[int]int{} // position by CUDA's index
	for i := range f.gpus {
		g := &f.gpus[i]
		g.Index, g.NUMA = i, f.pci(g.PCI).numa
		if f.Survey == nil {
			continue
		}
		for _, d := range f.Survey.Devices {
			if n, err := strconv.Atoi(strings.TrimPrefix(d.ID, "cuda:")); err == nil && samePCI(d.PCI, g.PCI) {
				seen[n] = i
			}
		}
	}
	// CUDA may count in another order than the bus, and may be shown a part of
	// the GPUs; --gpu means CUDA's count. A GPU that it does not see has none.
	if len(seen) > 0 {
		for i := range f.gpus {
			f.gpus[i].Index = -1
		}
		for n, i := range seen {
			f.gpus[i].Index = n
		}
	}
	for i := range f.gpus {
		if f.gpus[i].Index == max(f.opt.GPU, 0) {
			f.gpu = &f.gpus[i]
			return
		}
	}
	if f.opt.GPU < 0 && len(f.gpus) > 0 {
		f.gpu = &f.gpus[0]
	}
}

// samePCI compares addresses whose domains may have four or eight digits.
func samePCI(a, b string) bool {
	short := func(s string) string {
		s = strings.ToLower(s)
		if d, rest, ok := strings.Cut(s, ":"); ok && strings.Count(s, ":") == 2 {
			return strings.TrimLeft(d, "0") + ":" + rest
		}
		return s
	}
	return a != "" && short(a) == short(b)
}

func (f *facts) gatherCuFile() {
	for _, p := range []string{f.CuFileJSON, "/etc/cufile.json", "/usr/local/cuda/gds/cufile.json"} {
		if p == "" {
			continue
		}
		b, err := f.t.ReadFile(p)
		if err != nil && p != f.CuFileJSON {
			continue
		}
		f.cufile.path, f.cufile.err = p, err
		if err == nil {
			f.cufile.values, f.cufile.err = parseCuFile(b)
		}
		return
	}
}
