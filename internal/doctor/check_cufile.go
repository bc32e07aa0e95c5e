// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/units"
)

func cufileChecks() []check {
	return []check{
		{"cufile.lib", cufileLib}, {"cufile.json", cufileJSON}, {"p2p.cufile", p2pCuFile}, {"cufile.sizes", cufileSizes},
		{"cufile.pinned", cufilePinned}, {"cufile.rdma", cufileRDMA}, {"cufile.fs", cufileFS}, {"ct.libs", ctLibs},
	}
}

func cufileLib(f *exam) []answer {
	if f.GPU == nil {
		return skip(noGPU)
	}
	if p := f.Library("libcufile.so"); p != "" {
		return one(Pass, "libcufile", p)
	}
	return one(Warn, "libcufile", "not in the system's library directories; a Python wheel may carry its own")
}

// setting returns a switch of cuFile. The environment overrides the configuration file. by names the place where the
// setting was found.
func (f *exam) setting(variable, name string) (on, set bool, by string) {
	return setting(f.Facts, variable, name)
}

func setting(f *facts.Facts, variable, name string) (on, set bool, by string) {
	if v, ok := f.CuFileEnv[variable]; ok {
		return v == "1" || strings.EqualFold(v, "true"), true, "$" + variable
	}
	on, set = f.CuFile.Boolean(name)
	return on, set, f.CuFile.Path
}

func cufileJSON(f *exam) []answer {
	c := &f.CuFile
	switch {
	case f.GPU == nil:
		return skip(noGPU)
	case c.Err != nil:
		return one(Fail, c.Path, "cannot be used: "+c.Err.Error())
	}
	if v, _, by := f.setting("CUFILE_FORCE_COMPAT_MODE", "properties.force_compat_mode"); v {
		return one(Fail, by, "force_compat_mode is true: every read goes through the CPU")
	}
	if c.Path == "" {
		return one(Info, "cufile.json", "none: the library's defaults apply")
	}
	if v, set, by := f.setting("CUFILE_ALLOW_COMPAT_MODE", "properties.allow_compat_mode"); v || !set {
		return one(Info, by, "allow_compat_mode is on or not set: a read that cannot go directly goes through the CPU "+
			"silently")
	}
	return one(Pass, c.Path, "parses; compatibility mode is off")
}

func p2pCuFile(f *exam) []answer {
	if f.GPU == nil {
		return skip(noGPU)
	}
	least, text := f.since("p2p.cufile", "least")
	lib := path.Base(f.Library("libcufile.so"))
	if v := facts.ParseVersion(strings.TrimPrefix(lib, "libcufile.so.")); v[0] > 0 && facts.Older(v, least) {
		return []answer{answer{level: Fail, subject: lib, observed: "P2PDMA needs libcufile " + text}.with("now",
			"# install libcufile "+text+" or newer (CUDA 12.8), with the rest of GPUDirect Storage")}
	}
	on, name := usesP2PDMA(f.Facts)
	switch {
	case on:
		return one(Pass, name, "use_pci_p2pdma is true")
	case strings.HasPrefix(name, "$"):
		return []answer{answer{level: Fail, subject: name, observed: "turns P2PDMA off"}.with("now",
			"# unset the variable, or set it to true")}
	}
	if name == "" {
		name = "/etc/cufile.json"
	}
	return []answer{answer{level: Fail, subject: name, observed: "use_pci_p2pdma is false or not set"}.with("now",
		`# set "use_pci_p2pdma": true under "properties" in `+quote(name))}
}

// usesP2PDMA reports whether the configuration lets cuFile use P2PDMA, and the
// file or variable that decides it.
func usesP2PDMA(f *facts.Facts) (on bool, by string) {
	global, _, name := setting(f, "CUFILE_USE_PCIP2PDMA", "properties.use_pci_p2pdma")
	nvme, _ := f.CuFile.Boolean("block.nvme.use_pci_p2pdma")
	return global || nvme && name == f.CuFile.Path, name
}

func cufileSizes(f *exam) []answer {
	if f.GPU == nil || f.CuFile.Values == nil {
		return skip("no GPU or no cufile.json")
	}
	var out []answer
	bad := func(text string) { out = append(out, answer{level: Warn, subject: f.CuFile.Path, observed: text}) }
	multiple := f.whole("cufile.sizes", "direct_multiple_kib")
	direct, set := f.CuFile.Number("properties.max_direct_io_size_kb")
	if set && (multiple > 0 && int64(direct)%multiple != 0 || direct > f.num("cufile.sizes", "direct_most_kib")) {
		bad(fmt.Sprintf("max_direct_io_size_kb is %.0f", direct))
	}
	cache, has := f.CuFile.Number("properties.max_device_cache_size_kb")
	threads, _ := f.CuFile.Number("execution.max_io_threads")
	if set && has && cache < direct*max(threads, 1) {
		bad(fmt.Sprintf("max_device_cache_size_kb is %.0f, below %.0f threads × %.0f", cache, max(threads, 1), direct))
	}
	if v, _ := f.CuFile.Value("logging.level"); v == "DEBUG" || v == "TRACE" {
		bad(fmt.Sprintf("logging.level is %v", v))
	}
	if out == nil {
		return one(Pass, f.CuFile.Path, "sizes and log level")
	}
	return out
}

func cufilePinned(f *exam) []answer {
	if f.GPU == nil || f.Grace() {
		return skip("no GPU with a BAR1")
	}
	pinned, set := f.CuFile.Number("properties.max_device_pinned_mem_size_kb")
	bar := f.BAR1()
	if !set || bar == 0 {
		return skip("not set, or the size of BAR1 is not shown")
	}
	text := fmt.Sprintf("max_device_pinned_mem_size_kb is %.0f, BAR1 is %s", pinned, units.Bytes(bar))
	if pinned*1024 > float64(bar) {
		return one(Warn, f.CuFile.Path, text)
	}
	return one(Pass, f.CuFile.Path, text)
}

func cufileRDMA(f *exam) []answer {
	if !f.Pair() {
		return skip(noPair)
	}
	switch f.Mount.FSType {
	case "wekafs", "gpfs":
	default:
		return skip("this file system does not use RDMA from user space")
	}
	if f.Library("libcufile_rdma.so") == "" {
		return one(Fail, "libcufile_rdma", "not in the system's library directories")
	}
	if v, _ := f.CuFile.Value("properties.rdma_dev_addr_list"); v == nil || fmt.Sprint(v) == "[]" {
		return one(Fail, "rdma_dev_addr_list", "empty or not set")
	}
	if len(f.RDMAUp()) == 0 {
		return one(Fail, "rdma_dev_addr_list", "is set, but no RDMA port is active")
	}
	return one(Pass, "libcufile_rdma", "found, addresses are set, a port is active")
}

func cufileFS(f *exam) []answer {
	if !f.Pair() {
		return skip(noPair)
	}
	key := map[string]string{"wekafs": "fs.weka.rdma_write_support", "gpfs": "fs.gpfs.gds_write_support"}[f.Mount.FSType]
	if key == "" {
		return skip("only weka and gpfs have such a key")
	}
	if v, _ := f.CuFile.Boolean(key); v {
		return one(Pass, f.CuFile.Path, key+" is true")
	}
	return one(Info, f.CuFile.Path, key+" is false or not set: writes go through the CPU")
}

func ctLibs(f *exam) []answer {
	if f.GPU == nil || f.Library("libcufile.so") == "" {
		return skip("no libcufile")
	}
	var absent []string
	for _, l := range []string{"libnuma.so.1", "libcufile_rdma.so", "libmlx5.so"} {
		if f.Library(l) == "" {
			absent = append(absent, l)
		}
	}
	if len(absent) > 0 {
		return one(Info, path.Base(f.Library("libcufile.so")), "not found: "+strings.Join(absent, ", "))
	}
	return one(Pass, "libcufile", "libnuma, libcufile_rdma and libmlx5 are there")
}
