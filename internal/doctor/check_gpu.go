// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/units"
)

func gpuChecks() []check {
	return []check{
		{"gpu.present", gpuPresent}, {"gpu.arch", gpuArch}, {"gpu.rebar", gpuRebar}, {"gpu.persist", gpuPersist},
		{"gpu.mig_mps", gpuMIG}, {"gpu.ecc_replay", busErrors},
		{"drv.open", drvOpen}, {"drv.p2pdma_min", drvMin}, {"drv.cuda", drvCUDA},
	}
}

func gpuPresent(f *exam) []answer {
	switch {
	case f.GPU != nil && f.DriverText == "":
		return one(Fail, f.gpuName(), "on the bus, but no driver is loaded")
	case f.GPU != nil:
		return one(Pass, f.gpuName(), fmt.Sprintf("%d on this machine, driver %s", len(f.GPUs),
			facts.DriverVersion(f.DriverText)))
	case f.opt.GPU >= 0 && len(f.GPUs) > 0:
		return one(Fail, fmt.Sprintf("GPU %d", f.opt.GPU), fmt.Sprintf("not there; %d found", len(f.GPUs)))
	case f.opt.GPU >= 0:
		return one(Fail, fmt.Sprintf("GPU %d", f.opt.GPU), "no NVIDIA GPU on the bus or in the driver")
	}
	return one(Info, "", "no NVIDIA GPU on the bus or in the driver")
}

// listed reports whether a model's name contains one of the words.
func listed(model string, words []string) bool {
	for w := range strings.FieldsSeq(strings.NewReplacer("-", " ", "_", " ").Replace(model)) {
		if slices.Contains(words, w) {
			return true
		}
	}
	return false
}

func gpuArch(f *exam) []answer {
	if f.GPU == nil {
		return skip(noGPU)
	}
	s, m := f.gpuName(), f.GPU.Model
	least, text := f.since("gpu.arch", "least_capability")
	cap, known := f.GPUFact("compute_capability")
	switch {
	case m == "":
		return []answer{unknown(s, "the driver does not name the model", "nvidia-smi -L")}
	case listed(m, f.list("gpu.arch", "compat_only")):
		return one(Fail, s, m+": has no direct route, compatibility mode only")
	case known && facts.Older(facts.ParseVersion(cap), least):
		return one(Fail, s, m+": compute capability "+cap+", below "+text)
	case known:
		return one(Pass, s, m+", compute capability "+cap)
	}
	return one(Pass, s, m)
}

// p2pModel checks the GPU model against NVIDIA's list. Only listed models support P2PDMA; the others have nvidia-fs
// alone.
func p2pModel(f *exam) []answer {
	switch {
	case f.GPU == nil || f.GPU.Model == "":
		return skip("no GPU, or the driver does not name its model")
	case listed(f.GPU.Model, f.list("p2p.model", "models")):
		return one(Pass, f.gpuName(), f.GPU.Model)
	}
	return one(Fail, f.gpuName(), f.GPU.Model+" is not in the list for P2PDMA")
}

func gpuRebar(f *exam) []answer {
	if f.GPU == nil {
		return skip(noGPU)
	}
	if f.Grace() {
		return skip("memory is reached over C2C")
	}
	bar, total := f.BAR1(), f.GPUMemory()
	switch {
	case bar == 0:
		return []answer{unknown(f.gpuName(), "the size of BAR1 is not shown", "nvidia-smi -q -d MEMORY")}
	case bar < f.whole("gpu.rebar", "least"):
		return one(Warn, f.gpuName(), "BAR1 is "+units.Bytes(bar))
	case total > 0 && bar < total:
		return one(Info, f.gpuName(), fmt.Sprintf("BAR1 is %s of %s memory: larger buffers cannot be registered whole",
			units.Bytes(bar), units.Bytes(total)))
	}
	return one(Pass, f.gpuName(), "BAR1 is "+units.Bytes(bar))
}

func gpuPersist(f *exam) []answer {
	if f.GPU == nil {
		return skip(noGPU)
	}
	switch v, _ := f.GPUFact("persistence_mode"); {
	case v == "1":
		return one(Pass, f.gpuName(), "persistence mode is on")
	case f.Exists("/run/nvidia-persistenced/socket") || f.Exists("/var/run/nvidia-persistenced/socket"):
		return one(Pass, f.gpuName(), "nvidia-persistenced runs")
	case v == "0":
		return one(Warn, f.gpuName(), "persistence mode is off, and nvidia-persistenced does not run")
	}
	a := unknown(f.gpuName(), "nvidia-persistenced is not seen, and NVML does not tell the mode",
		"nvidia-smi --query-gpu=persistence_mode --format=csv; if Disabled, as root: nvidia-smi -pm 1")
	a.vars["who"] = "anyone"
	return []answer{a}
}

func gpuMIG(f *exam) []answer {
	if f.GPU == nil {
		return skip(noGPU)
	}
	if v, _ := f.GPUFact("mig_mode"); v == "1" {
		return one(Info, f.gpuName(), "MIG mode is on")
	}
	for _, dir := range f.Glob("/proc/driver/nvidia/capabilities", "gpu*") {
		if n := len(f.Glob(dir+"/mig", "gi*")); n > 0 {
			return one(Info, path.Base(dir), fmt.Sprintf("%d MIG instances", n))
		}
	}
	if f.Exists("/tmp/nvidia-mps/control") {
		return one(Info, f.gpuName(), "an MPS daemon's pipe is there")
	}
	return one(Pass, f.gpuName(), "no MIG instance, no MPS")
}

// busErrors checks the error counters of every device of the pair, and the replays that the GPU counted. A single
// reading cannot show whether a counter grows.
func busErrors(f *exam) []answer {
	var out []answer
	for _, bdf := range f.pairDevices() {
		fatal, known := f.AER(bdf, "fatal")
		corr, _ := f.AER(bdf, "correctable")
		switch {
		case !known:
		case fatal > 0:
			out = append(out, answer{level: Fail, subject: bdf, observed: fmt.Sprintf("%d fatal PCIe errors since boot", fatal)})
		case corr > 0:
			out = append(out, answer{level: Info, subject: bdf,
				observed: fmt.Sprintf("%d corrected PCIe errors since boot; check whether they grow under load", corr)})
		default:
			out = append(out, answer{level: Pass, subject: bdf, observed: "no PCIe errors since boot"})
		}
	}
	if v, ok := f.GPUFact("pcie_replays"); ok {
		n, err := strconv.ParseInt(v, 10, 64)
		a := answer{level: Pass, subject: f.gpuName(), observed: "no PCIe replays since the driver started"}
		if n > 0 {
			a.level, a.observed = Info,
				fmt.Sprintf("%d PCIe replays since the driver started; check whether they grow under load", n)
		}
		if n > f.whole("gpu.ecc_replay", "replays") {
			a.level = Warn
		}
		if err == nil {
			out = append(out, a)
		}
	}
	if out == nil {
		return skip("no error counters for the devices of this pair")
	}
	return out
}

// drvOpen checks that the driver has open kernel modules. Old versions of nvidia-fs also work with the proprietary
// ones.
func drvOpen(f *exam) []answer {
	since, text := f.since("drv.open", "nvfs_since")
	v := facts.DriverVersion(f.DriverText)
	switch {
	case f.DriverText == "":
		return skip("no NVIDIA driver")
	case strings.Contains(f.DriverText, "Open Kernel Module"):
		return one(Pass, "nvidia.ko", "open kernel module "+v)
	case f.NVFS() && facts.Older(facts.ParseVersion(f.NVFSVersion()), since) && f.NVFSVersion() != "":
		return one(Info, "nvidia.ko", "proprietary kernel module "+v+", which nvidia-fs "+f.NVFSVersion()+
			" still takes; from "+text+" on it does not")
	}
	return []answer{answer{level: Fail, subject: "nvidia.ko",
		observed: "proprietary kernel module " + v +
			": no direct route works with it"}.with("major", fmt.Sprint(f.Driver[0]))}
}

func drvMin(f *exam) []answer {
	least, _ := f.since("drv.p2pdma_min", "driver")
	switch {
	case f.DriverText == "":
		return skip("no NVIDIA driver")
	case facts.Older(f.Driver, least):
		return one(Fail, "nvidia.ko", facts.DriverVersion(f.DriverText))
	}
	return one(Pass, "nvidia.ko", facts.DriverVersion(f.DriverText))
}

// drvCUDA compares the CUDA version of the driver with that of libcufile.
func drvCUDA(f *exam) []answer {
	if f.Survey == nil || f.GPU == nil {
		return skip("the CUDA driver was not queried")
	}
	since, _ := f.since("drv.cuda", "cufile")
	needs, _ := f.since("drv.cuda", "cufile_needs")
	_, checkpoint := f.since("drv.cuda", "checkpoint")
	for _, d := range f.Survey.Devices {
		if d.Driver == "" {
			continue
		}
		_, cuda, _ := strings.Cut(d.Driver, "CUDA ")
		speaks, lib := facts.ParseVersion(cuda), facts.ParseVersion(strings.TrimPrefix(path.Base(f.Library("libcufile.so")),
			"libcufile.so."))
		if speaks[0] > 0 && speaks[0] < needs[0] && !facts.Older(lib, since) {
			return one(Warn, d.ID, fmt.Sprintf("%s, older than the CUDA of %s", d.Driver, path.Base(f.Library("libcufile.so"))))
		}
		if old := facts.ParseVersion(checkpoint); speaks[0] > 0 && facts.Older(speaks, old) {
			return one(Info, d.ID, d.Driver+": no process checkpoints before "+checkpoint)
		}
		return one(Info, d.ID, d.Driver)
	}
	return one(Info, "", "no usable CUDA device: "+f.Survey.NoGPU)
}
