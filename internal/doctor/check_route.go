// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

func routeChecks() []check {
	return []check{
		{"nvfs.loaded", nvfsLoaded}, {"nvfs.version", nvfsVersion}, {"nvfs.modules", nvfsModules},
		{"nvfs.devnodes", nvfsNodes}, {"nvfs.stats", nvfsStats},
		{"p2p.model", p2pModel}, {"p2p.kernel", p2pKernel}, {"p2p.multipath", p2pMultipath}, {"p2p.regkeys",
			p2pRegkeys}, {"p2p.topology", p2pTopology},
	}
}

func nvfsLoaded(f *exam) []answer {
	switch {
	case f.GPU == nil:
		return skip(noGPU)
	case f.NVFS():
		return one(Pass, "nvidia-fs", "loaded, version "+f.NVFSVersion())
	}
	a := answer{level: Fail, subject: "nvidia-fs", observed: "not loaded"}.with("now",
		"apt-get install -y nvidia-gds && modprobe nvidia-fs")
	if want, ok := f.hooked(); want != "" && ok == "no" {
		a.observed = "not loaded, and the driver of " + want + " has no hook for it"
		a.vars["now"] = "# first DOCA, or MLNX_OFED 5.3 or newer with --with-nvmf --with-nfsrdma --enable-gds, whose " +
			"drivers have the hook; then: " + a.vars["now"]
	}
	return []answer{a}
}

// hooked reports whether the driver that the target needs can register with nvidia-fs: yes, no, or unknown. The
// answer is unknown if the kernel's symbols are hidden or the driver needs no hook.
func (f *exam) hooked() (want, can string) {
	want, hook := f.wanted()
	for _, h := range f.NVFSHooks {
		if hook != "" && strings.HasPrefix(h, hook) {
			return want, "yes"
		}
	}
	if hook != "" && (f.P2PSymbol == "yes" || f.P2PSymbol == "no") {
		return want, "no"
	}
	return want, "unknown"
}

func nvfsVersion(f *exam) []answer {
	if !f.NVFS() {
		return skip("nvidia-fs is not loaded")
	}
	v, k := facts.ParseVersion(f.NVFSVersion()), facts.ParseVersion(f.Kernel)
	text := f.NVFSVersion() + " on kernel " + f.Kernel
	if v == [3]int{} {
		return []answer{unknown("nvidia-fs", "its version cannot be read", "cat /proc/driver/nvidia-fs/version")}
	}
	newK, newText := f.since("nvfs.version", "new_kernel")
	newV, newNeeds := f.since("nvfs.version", "new_kernel_needs")
	oldK, oldText := f.since("nvfs.version", "kernel")
	oldV, oldNeeds := f.since("nvfs.version", "kernel_needs")
	rdma, rdmaText := f.since("nvfs.version", "rdma_needs")
	switch {
	case !facts.Older(k, newK) && facts.Older(v, newV):
		return one(Warn, "nvidia-fs", text+": "+newNeeds+" is the first for kernel "+newText)
	case !facts.Older(k, oldK) && facts.Older(v, oldV):
		return one(Warn, "nvidia-fs", text+": "+oldNeeds+" is the first for kernel "+oldText)
	case f.Mount != nil && facts.Remote(f.Mount.FSType) && facts.Older(v, rdma):
		return one(Warn, "nvidia-fs", text+": before "+rdmaText+" buffers of 4 GiB and more fail over RDMA")
	}
	return one(Pass, "nvidia-fs", text)
}

// wanted returns the driver that must register with nvidia-fs for the target's file system, by nvidia-fs's own name.
// It also returns the prefix of its hook's symbol, if it has a hook.
func (f *exam) wanted() (module, hook string) {
	if f.Mount == nil {
		return "", ""
	}
	switch f.Mount.FSType {
	case "nfs", "nfs4":
		return "rpcrdma", "rpcrdma_"
	case "lustre":
		return "lnet", "lustre_v"
	case "beegfs":
		return "beegfs", "beegfs_v"
	case "wekafs":
		return "wekafsio", ""
	case "gpfs":
		return "mmfslinux", ""
	}
	switch {
	case len(f.Disks) == 0 || f.Disks[0].Kind != "nvme":
		return "", ""
	case f.Disks[0].Fabrics():
		return "nvme_rdma", "nvme_rdma_v"
	}
	return "nvme", "nvme_v"
}

// nvfsModules first reads the list of registered drivers. Drivers register when a program opens nvidia-fs and leave
// when the last program closes it. On an idle machine, only the driver's hook tells whether it can register.
func nvfsModules(f *exam) []answer {
	if !f.NVFS() {
		return skip("nvidia-fs is not loaded")
	}
	want, can := f.hooked()
	if want == "" {
		return skip("needs a path on an NVMe disk or a parallel file system")
	}
	s, _ := f.Text("/proc/driver/nvidia-fs/modules")
	if _, ok := facts.ParseParams(s)[want]; ok {
		return one(Pass, want, "registered with nvidia-fs")
	}
	switch can {
	case "yes":
		return one(Pass, want, "not registered while nothing uses nvidia-fs, but its driver has the hook")
	case "no":
		return one(Fail, want, "not registered with nvidia-fs, and the loaded driver has no hook to do so")
	}
	return []answer{answer{level: Unknown, subject: want,
		observed: "not registered with nvidia-fs now; drivers register when a program opens it"}.
		with("run",
			"grep register_nvfs_dma_ops /proc/kallsyms; cat /proc/driver/nvidia-fs/modules while a cuFile program runs")}
}

func nvfsNodes(f *exam) []answer {
	if !f.NVFS() {
		return skip("nvidia-fs is not loaded")
	}
	if n := len(f.Glob("/dev", "nvidia-fs[0-9]*")); n > 0 {
		return one(Pass, "/dev/nvidia-fs*", fmt.Sprintf("%d nodes", n))
	}
	return one(Fail, "/dev/nvidia-fs*", "none")
}

func nvfsStats(f *exam) []answer {
	if !f.NVFS() {
		return skip("nvidia-fs is not loaded")
	}
	s, st := f.Text("/sys/module/nvidia_fs/parameters/rw_stats_enabled")
	if st != facts.There {
		return skip("the parameter is not there")
	}
	return one(Info, "nvidia-fs", "rw_stats_enabled="+s)
}

func p2pKernel(f *exam) []answer {
	if f.GPU == nil {
		return skip(noGPU)
	}
	if f.P2PSymbol == "yes" {
		return one(Pass, "kernel "+f.Kernel, "has P2PDMA symbols")
	}
	if s, ok := f.KernelConfig(); ok {
		if strings.Contains(s, "CONFIG_PCI_P2PDMA=y") {
			return one(Pass, "kernel "+f.Kernel, "CONFIG_PCI_P2PDMA=y")
		}
		return one(Fail, "kernel "+f.Kernel, "CONFIG_PCI_P2PDMA is not set")
	}
	if f.P2PSymbol == "no" {
		return one(Fail, "kernel "+f.Kernel, "has no P2PDMA symbols")
	}
	return []answer{answer{level: Unknown, subject: "kernel " + f.Kernel,
		observed: "no configuration in /boot or /proc, and " + f.P2PSymbol}.
		with("run", "grep -c p2pdma_pgmap_ops /proc/kallsyms")}
}

func p2pMultipath(f *exam) []answer {
	s, st := f.Text("/sys/module/nvme_core/parameters/multipath")
	switch {
	case f.GPU == nil:
		return skip(noGPU)
	case f.Grace():
		return skip("does not matter on this architecture")
	case st != facts.There:
		return skip("nvme_core has no such parameter here")
	case s == "Y" || s == "1":
		return one(Fail, "nvme_core", "multipath="+s)
	}
	return one(Pass, "nvme_core", "multipath="+s)
}

func p2pRegkeys(f *exam) []answer {
	switch {
	case f.DriverText == "":
		return skip("no NVIDIA driver")
	case !f.X86():
		return skip("does not matter on this architecture")
	}
	s, st := f.Text("/proc/driver/nvidia/params")
	if st != facts.There {
		return []answer{answer{level: Unknown, subject: "nvidia.ko",
			observed: "/proc/driver/nvidia/params cannot be read"}.with("run", "grep RegistryDwords /proc/driver/nvidia/params")}
	}
	keys := facts.ParseParams(s)["RegistryDwords"]
	if strings.Contains(keys, "RMForceStaticBar1=1") && strings.Contains(keys, "RmForceDisableIomapWC=1") {
		return one(Pass, "nvidia.ko", "RegistryDwords="+keys)
	}
	return one(Fail, "nvidia.ko", fmt.Sprintf("RegistryDwords=%q", keys))
}

func p2pTopology(f *exam) []answer {
	if !f.Pair() || len(f.Disks) == 0 {
		return skip("needs a path on a disk and a GPU")
	}
	if f.Disks[0].Fabrics() {
		return one(Fail, f.Disks[0].Name, "NVMe over fabrics")
	}
	if len(f.Stack) == 0 {
		return one(Pass, f.Disks[0].Name, "no md or dm between file system and disk")
	}
	for _, md := range f.Underneath("md") {
		level, _ := f.Text(facts.Block(md) + "/md/level")
		k := facts.ParseVersion(f.Kernel)
		zero, _ := f.since("p2p.topology", "raid0_kernel")
		mirror, _ := f.since("p2p.topology", "raid1_kernel")
		switch {
		case level == "raid0" && (f.Grace() || !facts.Older(k, zero)), (level == "raid1" || level == "raid10") &&
			!facts.Older(k, mirror):
			continue
		}
		return one(Fail, md, level+" on kernel "+f.Kernel)
	}
	return one(Info, strings.Join(f.Stack, ", "), "between file system and disk; not listed as supported")
}
