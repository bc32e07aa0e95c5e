// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/units"
)

func gpuChecks() []check {
	return []check{
		{"gpu.present", gpuPresent}, {"gpu.arch", gpuArch}, {"gpu.rebar", gpuRebar}, {"gpu.persist", gpuPersist},
		{"gpu.mig_mps", gpuMIG}, {"gpu.ecc_replay", busErrors},
		{"drv.open", drvOpen}, {"drv.p2pdma_min", drvMin}, {"drv.cuda", drvCUDA},
		{"nvfs.loaded", nvfsLoaded}, {"nvfs.version", nvfsVersion}, {"nvfs.modules", nvfsModules},
		{"nvfs.devnodes", nvfsNodes}, {"nvfs.stats", nvfsStats},
		{"p2p.kernel", p2pKernel}, {"p2p.multipath", p2pMultipath}, {"p2p.regkeys", p2pRegkeys}, {"p2p.topology", p2pTopology},
	}
}

func (g *GPU) String() string {
	if g.Model == "" {
		return fmt.Sprintf("GPU %d (%s)", g.Index, g.PCI)
	}
	return fmt.Sprintf("GPU %d (%s, %s)", g.Index, g.Model, g.PCI)
}

func gpuPresent(f *facts) []answer {
	switch {
	case f.gpu != nil && f.version == "":
		return one(Fail, f.gpu.String(), "on the bus, but no driver is loaded")
	case f.gpu != nil:
		return one(Pass, f.gpu.String(), fmt.Sprintf("%d on this machine, driver %s", len(f.gpus), driverVersion(f.version)))
	case f.opt.GPU >= 0 && len(f.gpus) > 0:
		return one(Fail, fmt.Sprintf("GPU %d", f.opt.GPU), fmt.Sprintf("not there; %d found", len(f.gpus)))
	case f.opt.GPU >= 0:
		return one(Fail, fmt.Sprintf("GPU %d", f.opt.GPU), "no NVIDIA GPU on the bus or in the driver")
	}
	return one(Info, "", "no NVIDIA GPU on the bus or in the driver")
}

// p2pModels are the GPUs that the vendor lists for P2PDMA.
func p2pModel(model string) bool {
	for w := range strings.FieldsSeq(strings.NewReplacer("-", " ", "_", " ").Replace(model)) {
		switch w {
		case "A100", "A800", "A40", "L4", "L40S", "H100", "H200", "B100", "B200", "B300", "GH200", "GB200", "GB300":
			return true
		}
	}
	return false
}

func gpuArch(f *facts) []answer {
	if f.gpu == nil {
		return skip("no GPU")
	}
	s := f.gpu.String()
	switch m := f.gpu.Model; {
	case m == "":
		return []answer{answer{level: Unknown, subject: s, observed: "the driver does not name the model"}.with("run", "nvidia-smi -L")}
	case strings.Contains(m, "GeForce") || strings.Contains(m, "GB10"):
		return one(Fail, s, m+": has no direct route, compatibility mode only")
	case p2pModel(m):
		return one(Pass, s, m)
	case f.nvfs():
		return one(Info, s, m+": not in the list for P2PDMA; nvidia-fs needs compute capability 6.0")
	default:
		return one(Warn, s, m+": not in the list for P2PDMA, and nvidia-fs is not loaded")
	}
}

func gpuRebar(f *facts) []answer {
	if f.gpu == nil {
		return skip("no GPU")
	}
	if f.grace() {
		return skip("memory is reached over C2C")
	}
	bar, total := f.barSize(f.gpu.PCI, 1), int64(0)
	if f.Survey != nil {
		for _, d := range f.Survey.Devices {
			if samePCI(d.PCI, f.gpu.PCI) {
				total = d.TotalMemory
				if n, err := strconv.ParseInt(d.Facts["bar1_total"], 10, 64); err == nil && n > 0 {
					bar = n
				}
			}
		}
	}
	switch {
	case bar == 0:
		return []answer{answer{level: Unknown, subject: f.gpu.String(), observed: "the size of BAR1 is not shown"}.with("run", "nvidia-smi -q -d MEMORY")}
	case bar < 256<<20:
		return one(Warn, f.gpu.String(), "BAR1 is "+units.Bytes(bar))
	case total > 0 && bar < total:
		return one(Info, f.gpu.String(), fmt.Sprintf("BAR1 is %s of %s memory: larger buffers cannot be registered whole", units.Bytes(bar), units.Bytes(total)))
	}
	return one(Pass, f.gpu.String(), "BAR1 is "+units.Bytes(bar))
}

func gpuPersist(f *facts) []answer {
	switch {
	case f.gpu == nil:
		return skip("no GPU")
	case f.t.Exists("/run/nvidia-persistenced/socket") || f.t.Exists("/var/run/nvidia-persistenced/socket"):
		return one(Pass, f.gpu.String(), "nvidia-persistenced runs")
	}
	return []answer{answer{level: Unknown, subject: f.gpu.String(), observed: "nvidia-persistenced is not seen; the mode itself is not in a file"}.
		with("run", "nvidia-smi --query-gpu=persistence_mode --format=csv; if Disabled: nvidia-smi -pm 1")}
}

func gpuMIG(f *facts) []answer {
	if f.gpu == nil {
		return skip("no GPU")
	}
	for _, dir := range glob(f.t, "/proc/driver/nvidia/capabilities", "gpu*") {
		if n := len(glob(f.t, dir+"/mig", "gi*")); n > 0 {
			return one(Info, path.Base(dir), fmt.Sprintf("%d MIG instances", n))
		}
	}
	if f.t.Exists("/tmp/nvidia-mps/control") {
		return one(Info, f.gpu.String(), "an MPS daemon's pipe is there")
	}
	return one(Pass, f.gpu.String(), "no MIG instance, no MPS")
}

// busErrors looks at the error counters of every device of the pair.
func busErrors(f *facts) []answer {
	var out []answer
	for _, bdf := range f.pairDevices() {
		fatal, known := f.aer(bdf, "fatal")
		corr, _ := f.aer(bdf, "correctable")
		switch {
		case !known:
		case fatal > 0:
			out = append(out, answer{level: Fail, subject: bdf, observed: fmt.Sprintf("%d fatal PCIe errors since boot", fatal)})
		case corr > 0:
			out = append(out, answer{level: Info, subject: bdf, observed: fmt.Sprintf("%d corrected PCIe errors since boot; look whether they grow under load", corr)})
		default:
			out = append(out, answer{level: Pass, subject: bdf, observed: "no PCIe errors since boot"})
		}
	}
	if out == nil {
		return skip("no error counters for the devices of this pair")
	}
	return out
}

// pairDevices are the PCI functions of disks and GPU.
func (f *facts) pairDevices() []string {
	var out []string
	for _, d := range f.disks {
		if d.PCI != "" {
			out = append(out, d.PCI)
		}
	}
	if f.gpu != nil {
		out = append(out, f.gpu.PCI)
	}
	return out
}

func (f *facts) aer(bdf, kind string) (int64, bool) {
	s, st := f.text(pciDir(bdf) + "/aer_dev_" + kind)
	if st != there {
		return 0, false
	}
	for line := range strings.Lines(s) {
		if w := strings.Fields(line); len(w) == 2 && strings.HasPrefix(w[0], "TOTAL_ERR") {
			n, err := strconv.ParseInt(w[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

func drvOpen(f *facts) []answer {
	switch {
	case f.version == "":
		return skip("no NVIDIA driver")
	case strings.Contains(f.version, "Open Kernel Module"):
		return one(Pass, "nvidia.ko", "open kernel module "+driverVersion(f.version))
	}
	return one(Warn, "nvidia.ko", "proprietary kernel module "+driverVersion(f.version))
}

func drvMin(f *facts) []answer {
	switch {
	case f.version == "":
		return skip("no NVIDIA driver")
	case older(f.driver, [3]int{565, 47}):
		return one(Fail, "nvidia.ko", driverVersion(f.version))
	}
	return one(Pass, "nvidia.ko", driverVersion(f.version))
}

func drvCUDA(f *facts) []answer {
	if f.Survey == nil || f.gpu == nil {
		return skip("the CUDA driver was not asked")
	}
	for _, d := range f.Survey.Devices {
		if d.Driver != "" {
			return one(Info, d.ID, d.Driver)
		}
	}
	return one(Info, "", "no usable CUDA device: "+f.Survey.NoGPU)
}

// nvfs says that nvidia-fs is loaded.
func (f *facts) nvfs() bool {
	return f.t.Exists("/proc/driver/nvidia-fs/version") || f.t.Exists("/sys/module/nvidia_fs")
}

func (f *facts) nvfsVersion() string {
	s, _ := f.text("/proc/driver/nvidia-fs/version")
	if _, v, ok := strings.Cut(s, ":"); ok {
		return strings.TrimSpace(v)
	}
	if s == "" {
		s, _ = f.text("/sys/module/nvidia_fs/version")
	}
	return s
}

func nvfsLoaded(f *facts) []answer {
	switch {
	case f.gpu == nil:
		return skip("no GPU")
	case f.nvfs():
		return one(Pass, "nvidia-fs", "loaded, version "+f.nvfsVersion())
	}
	return one(Fail, "nvidia-fs", "not loaded")
}

func nvfsVersion(f *facts) []answer {
	if !f.nvfs() {
		return skip("nvidia-fs is not loaded")
	}
	v, k := parseVersion(f.nvfsVersion()), parseVersion(f.Kernel)
	text := f.nvfsVersion() + " on kernel " + f.Kernel
	switch {
	case v == [3]int{}:
		return []answer{answer{level: Unknown, subject: "nvidia-fs", observed: "its version cannot be read"}.with("run", "cat /proc/driver/nvidia-fs/version")}
	case !older(k, [3]int{6, 17}) && older(v, [3]int{2, 28, 2}):
		return one(Warn, "nvidia-fs", text+": 2.28.2 is the first for kernel 6.17")
	case !older(k, [3]int{6, 11}) && older(v, [3]int{2, 26, 6}):
		return one(Warn, "nvidia-fs", text+": 2.26.6 is the first for kernel 6.11")
	case f.mount != nil && remote(f.mount.fstype) && older(v, [3]int{2, 28, 4}):
		return one(Warn, "nvidia-fs", text+": before 2.28.4 buffers of 4 GiB and more fail over RDMA")
	}
	return one(Pass, "nvidia-fs", text)
}

// wantedModule is the driver that must be registered with nvidia-fs for the
// target's file system.
func (f *facts) wantedModule() string {
	if f.mount == nil {
		return ""
	}
	switch t := f.mount.fstype; t {
	case "nfs", "nfs4":
		return "rpcrdma"
	case "lustre", "beegfs", "wekafs", "gpfs":
		return t
	}
	if len(f.disks) > 0 {
		return "nvme"
	}
	return ""
}

func nvfsModules(f *facts) []answer {
	if !f.nvfs() {
		return skip("nvidia-fs is not loaded")
	}
	want := f.wantedModule()
	if want == "" {
		return skip("needs a path on a disk or a parallel file system")
	}
	s, st := f.text("/proc/driver/nvidia-fs/modules")
	if st == denied {
		return []answer{answer{level: Unknown, subject: want, observed: "/proc/driver/nvidia-fs/modules cannot be read"}.with("run", "cat /proc/driver/nvidia-fs/modules")}
	}
	for w := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ' ' || r == ',' || r == ':' || r == '\n' || r == '\t' }) {
		if w == want {
			return one(Pass, want, "registered with nvidia-fs")
		}
	}
	if s == "" {
		s = "nothing"
	}
	return one(Fail, want, "not registered with nvidia-fs; registered: "+s)
}

func nvfsNodes(f *facts) []answer {
	if !f.nvfs() {
		return skip("nvidia-fs is not loaded")
	}
	if n := len(glob(f.t, "/dev", "nvidia-fs[0-9]*")); n > 0 {
		return one(Pass, "/dev/nvidia-fs*", fmt.Sprintf("%d nodes", n))
	}
	return one(Fail, "/dev/nvidia-fs*", "none")
}

func nvfsStats(f *facts) []answer {
	if !f.nvfs() {
		return skip("nvidia-fs is not loaded")
	}
	s, st := f.text("/sys/module/nvidia_fs/parameters/rw_stats_enabled")
	if st != there {
		return skip("the parameter is not there")
	}
	return one(Info, "nvidia-fs", "rw_stats_enabled="+s)
}

func p2pKernel(f *facts) []answer {
	if f.gpu == nil {
		return skip("no GPU")
	}
	if f.P2PSymbol == "yes" {
		return one(Pass, "kernel "+f.Kernel, "has P2PDMA symbols")
	}
	if s, st := f.text("/boot/config-" + f.Kernel); st == there {
		if strings.Contains(s, "CONFIG_PCI_P2PDMA=y") {
			return one(Pass, "kernel "+f.Kernel, "CONFIG_PCI_P2PDMA=y")
		}
		return one(Fail, "kernel "+f.Kernel, "CONFIG_PCI_P2PDMA is not set")
	}
	if f.P2PSymbol == "no" {
		return one(Fail, "kernel "+f.Kernel, "has no P2PDMA symbols")
	}
	return []answer{answer{level: Unknown, subject: "kernel " + f.Kernel, observed: "no configuration in /boot, and " + f.P2PSymbol}.
		with("run", "grep -c p2pdma_pgmap_ops /proc/kallsyms")}
}

func p2pMultipath(f *facts) []answer {
	s, st := f.text("/sys/module/nvme_core/parameters/multipath")
	switch {
	case f.gpu == nil:
		return skip("no GPU")
	case f.grace():
		return skip("no matter on this architecture")
	case st != there:
		return skip("nvme_core has no such parameter here")
	case s == "Y" || s == "1":
		return one(Fail, "nvme_core", "multipath="+s)
	}
	return one(Pass, "nvme_core", "multipath="+s)
}

func p2pRegkeys(f *facts) []answer {
	switch {
	case f.version == "":
		return skip("no NVIDIA driver")
	case !f.x86():
		return skip("no matter on this architecture")
	}
	s, st := f.text("/proc/driver/nvidia/params")
	if st != there {
		return []answer{answer{level: Unknown, subject: "nvidia.ko", observed: "/proc/driver/nvidia/params cannot be read"}.with("run", "grep RegistryDwords /proc/driver/nvidia/params")}
	}
	keys := parseParams(s)["RegistryDwords"]
	if strings.Contains(keys, "RMForceStaticBar1=1") && strings.Contains(keys, "RmForceDisableIomapWC=1") {
		return one(Pass, "nvidia.ko", "RegistryDwords="+keys)
	}
	return one(Fail, "nvidia.ko", fmt.Sprintf("RegistryDwords=%q", keys))
}

func p2pTopology(f *facts) []answer {
	if !f.pair() || len(f.disks) == 0 {
		return skip("needs a path on a disk and a GPU")
	}
	if len(f.stack) == 0 {
		return one(Pass, f.disks[0].Name, "no md or dm between file system and disk")
	}
	for _, md := range f.underneath("md") {
		level, _ := f.text(block(md) + "/md/level")
		newer := !older(parseVersion(f.Kernel), [3]int{7, 1})
		if level == "raid0" && (newer || f.grace()) {
			continue
		}
		return one(Fail, md, level+" on kernel "+f.Kernel)
	}
	return one(Info, strings.Join(f.stack, ", "), "between file system and disk; not listed as supported")
}
