// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"strings"

	"github.com/nebulaio/nebulaio/internal/units"
)

func cufileChecks() []check {
	return []check{
		{"cufile.lib", cufileLib}, {"cufile.json", cufileJSON}, {"p2p.cufile", p2pCuFile}, {"cufile.sizes", cufileSizes},
		{"cufile.pinned", cufilePinned}, {"cufile.rdma", cufileRDMA}, {"cufile.fs", cufileFS}, {"ct.libs", ctLibs},
	}
}

// libDirs are where the loader and the CUDA packages keep libraries. Opening
// libcufile would start its threads, so it is looked for, not loaded.
func libDirs(f *facts) []string {
	dirs := []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib", "/usr/local/cuda/lib64"}
	for _, cuda := range glob(f.t, "/usr/local", "cuda*") {
		dirs = append(dirs, glob(f.t, cuda+"/targets", "*")...)
	}
	for i, d := range dirs {
		if strings.Contains(d, "/targets/") {
			dirs[i] = d + "/lib"
		}
	}
	return dirs
}

// library finds a library by its name's beginning, the longest name of the
// first directory that has it: that one carries the version.
func (f *facts) library(prefix string) string {
	for _, d := range libDirs(f) {
		best := ""
		for _, n := range glob(f.t, d, prefix+"*") {
			if len(n) > len(best) {
				best = n
			}
		}
		if best != "" {
			return best
		}
	}
	return ""
}

func cufileLib(f *facts) []answer {
	if f.gpu == nil {
		return skip("no GPU")
	}
	if p := f.library("libcufile.so"); p != "" {
		return one(Pass, "libcufile", p)
	}
	return one(Warn, "libcufile", "not in the system's library directories; a Python wheel may carry its own")
}

func cufileJSON(f *facts) []answer {
	c := &f.cufile
	switch {
	case f.gpu == nil:
		return skip("no GPU")
	case c.path == "":
		return one(Info, "cufile.json", "none: the library's defaults apply")
	case c.err != nil:
		return one(Fail, c.path, "cannot be used: "+c.err.Error())
	}
	if v, _ := c.boolean("properties.force_compat_mode"); v {
		return one(Warn, c.path, "force_compat_mode is true: every read goes through the CPU")
	}
	if v, set := c.boolean("properties.allow_compat_mode"); v || !set {
		return one(Info, c.path, "allow_compat_mode is on or not set: a read that cannot go directly goes through the CPU silently")
	}
	return one(Pass, c.path, "parses; compatibility mode is off")
}

func p2pCuFile(f *facts) []answer {
	if f.gpu == nil {
		return skip("no GPU")
	}
	global, _ := f.cufile.boolean("properties.use_pci_p2pdma")
	nvme, _ := f.cufile.boolean("block.nvme.use_pci_p2pdma")
	if global || nvme {
		return one(Pass, f.cufile.path, "use_pci_p2pdma is true")
	}
	name := f.cufile.path
	if name == "" {
		name = "/etc/cufile.json"
	}
	return one(Fail, name, "use_pci_p2pdma is false or not set")
}

func cufileSizes(f *facts) []answer {
	if f.gpu == nil || f.cufile.values == nil {
		return skip("no GPU or no cufile.json")
	}
	var out []answer
	bad := func(text string) { out = append(out, answer{level: Warn, subject: f.cufile.path, observed: text}) }
	direct, set := f.cufile.number("properties.max_direct_io_size_kb")
	if set && (int64(direct)%4 != 0 || direct > 16384) {
		bad(fmt.Sprintf("max_direct_io_size_kb is %.0f", direct))
	}
	cache, has := f.cufile.number("properties.max_device_cache_size_kb")
	threads, _ := f.cufile.number("execution.max_io_threads")
	if set && has && cache < direct*max(threads, 1) {
		bad(fmt.Sprintf("max_device_cache_size_kb is %.0f, below %.0f threads × %.0f", cache, max(threads, 1), direct))
	}
	if v, _ := lookup(f.cufile.values, "logging.level"); v == "DEBUG" || v == "TRACE" {
		bad(fmt.Sprintf("logging.level is %v", v))
	}
	if out == nil {
		return one(Pass, f.cufile.path, "sizes and log level")
	}
	return out
}

func cufilePinned(f *facts) []answer {
	if f.gpu == nil || f.grace() {
		return skip("no GPU with a BAR1")
	}
	pinned, set := f.cufile.number("properties.max_device_pinned_mem_size_kb")
	bar := f.barSize(f.gpu.PCI, 1)
	if !set || bar == 0 {
		return skip("not set, or the size of BAR1 is not shown")
	}
	text := fmt.Sprintf("max_device_pinned_mem_size_kb is %.0f, BAR1 is %s", pinned, units.Bytes(bar))
	if pinned*1024 > float64(bar) {
		return one(Warn, f.cufile.path, text)
	}
	return one(Pass, f.cufile.path, text)
}

func cufileRDMA(f *facts) []answer {
	if !f.pair() {
		return skip(noPair)
	}
	switch f.mount.fstype {
	case "wekafs", "gpfs":
	default:
		return skip("this file system does not use RDMA from user space")
	}
	if f.library("libcufile_rdma.so") == "" {
		return one(Fail, "libcufile_rdma", "not in the system's library directories")
	}
	if v, _ := lookup(f.cufile.values, "properties.rdma_dev_addr_list"); v == nil || fmt.Sprint(v) == "[]" {
		return one(Fail, "rdma_dev_addr_list", "empty or not set")
	}
	return one(Pass, "libcufile_rdma", "found, addresses are set")
}

func cufileFS(f *facts) []answer {
	if !f.pair() {
		return skip(noPair)
	}
	key := map[string]string{"wekafs": "fs.weka.rdma_write_support", "gpfs": "fs.gpfs.gds_write_support"}[f.mount.fstype]
	if key == "" {
		return skip("only weka and gpfs have such a key")
	}
	if v, _ := f.cufile.boolean(key); v {
		return one(Pass, f.cufile.path, key+" is true")
	}
	return one(Info, f.cufile.path, key+" is false or not set: writes go through the CPU")
}

func ctLibs(f *facts) []answer {
	if f.gpu == nil || f.library("libcufile.so") == "" {
		return skip("no libcufile")
	}
	var absent []string
	for _, l := range []string{"libnuma.so.1", "libcufile_rdma.so", "libmlx5.so"} {
		if f.library(l) == "" {
			absent = append(absent, l)
		}
	}
	if len(absent) > 0 {
		return one(Info, path.Base(f.library("libcufile.so")), "not found: "+strings.Join(absent, ", "))
	}
	return one(Pass, "libcufile", "libnuma, libcufile_rdma and libmlx5 are there")
}
