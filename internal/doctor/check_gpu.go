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

// p2pModel knows the GPUs that the vendor lists for P2PDMA, and those of Grace,
// whose memory is reached over C2C.
func p2pModel(model string) bool {
	for w := range strings.FieldsSeq(strings.NewReplacer("-", " ", "_", " ").Replace(model)) {
		switch w {
		case "A100", "A40", "L4", "L40S", "H100", "H200", "B100", "B200", "B300", "GH200", "GB200", "GB300":
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
