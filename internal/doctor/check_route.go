// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
)

func routeChecks() []check {
	return []check{
		{"nvfs.loaded", nvfsLoaded}, {"nvfs.version", nvfsVersion}, {"nvfs.modules", nvfsModules},
		{"nvfs.devnodes", nvfsNodes}, {"nvfs.stats", nvfsStats},
		{"p2p.kernel", p2pKernel}, {"p2p.multipath", p2pMultipath}, {"p2p.regkeys", p2pRegkeys}, {"p2p.topology", p2pTopology},
	}
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

// wanted is the driver that must be registered with nvidia-fs for the target's
// file system, as nvidia-fs calls it, and how its hook's symbol begins where
// it has one.
func (f *facts) wanted() (module, hook string) {
	if f.mount == nil {
		return "", ""
	}
	switch f.mount.fstype {
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
	case len(f.disks) == 0:
		return "", ""
	case f.disks[0].fabrics():
		return "nvme_rdma", "nvme_rdma_v"
	}
	return "nvme", "nvme_v"
}

// nvfsModules asks the list of registered drivers first. Drivers register when
// a program opens nvidia-fs and leave with the last one, so that on an idle
// machine only the driver's hook tells whether it could.
func nvfsModules(f *facts) []answer {
	if !f.nvfs() {
		return skip("nvidia-fs is not loaded")
	}
	want, hook := f.wanted()
	if want == "" {
		return skip("needs a path on a disk or a parallel file system")
	}
	s, _ := f.text("/proc/driver/nvidia-fs/modules")
	if _, ok := parseParams(s)[want]; ok {
		return one(Pass, want, "registered with nvidia-fs")
	}
	for _, h := range f.NVFSHooks {
		if hook != "" && strings.HasPrefix(h, hook) {
			return one(Pass, want, "not registered while nothing uses nvidia-fs, but its driver has the hook "+h)
		}
	}
	if hook != "" && (f.P2PSymbol == "yes" || f.P2PSymbol == "no") {
		return one(Fail, want, "not registered with nvidia-fs, and the loaded driver has no hook to do so")
	}
	return []answer{answer{level: Unknown, subject: want, observed: "not registered with nvidia-fs now; drivers register when a program opens it"}.
		with("run", "grep register_nvfs_dma_ops /proc/kallsyms; cat /proc/driver/nvidia-fs/modules while a cuFile program runs")}
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
	if f.disks[0].fabrics() {
		return one(Fail, f.disks[0].Name, "NVMe over fabrics")
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
