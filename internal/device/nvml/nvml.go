// SPDX-License-Identifier: Apache-2.0

// Package nvml reads facts about GPUs from the NVIDIA management library (NVML). NVML reports facts that the CUDA
// driver does not, such as the driver release, the PCIe link, the BAR1 size and the MIG mode.
//
// NebulaIO has its own binding of NVML, because a shared library that contains NVIDIA's Go binding cannot be loaded
// on machines without the driver. Transfers do not need NVML: if libnvidia-ml or a symbol is missing, that is a
// finding in the survey, not an error.
package nvml

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Library is the loaded and initialised libnvidia-ml.
type Library struct {
	lib    *dl.Library
	driver string

	shutdown, errorString, handleByPCI, currGen, currWidth, maxGen, maxWidth, bar1 dl.Func

	persistence, replays, mig, capability dl.Func
}

// LibraryNames returns the file names under which Find looks for libnvidia-ml, in order.
func LibraryNames() []string { return []string{"libnvidia-ml.so.1", "libnvidia-ml.so"} }

// Find loads and initialises libnvidia-ml. Find also returns a finding that says whether libnvidia-ml was found. Find
// fails with kind Unsupported if libnvidia-ml cannot be used.
func Find(names ...string) (*Library, device.Finding, error) {
	fail := func(detail, fix string) (*Library, device.Finding, error) {
		f := device.Finding{Name: names[0], Detail: detail, Fix: fix}
		return nil, f, errs.New(errs.Unsupported, "use NVML", names[0], detail).WithFix(fix)
	}
	lib, err := dl.Open(names...)
	if err != nil {
		return fail(err.Error(), "install the NVIDIA driver's management library; in a container add the 'utility' driver "+
			"capability")
	}
	l := &Library{lib: lib}
	initFn := lib.Lookup("nvmlInit_v2", "nvmlInit")
	if initFn == 0 {
		return fail("symbol nvmlInit_v2 is missing", "reinstall the NVIDIA driver")
	}
	l.errorString = lib.Lookup("nvmlErrorString")
	if r := initFn.Call(); r != 0 {
		return fail("nvmlInit: "+l.errText(r), "check that nvidia-smi works for this user")
	}
	l.shutdown = lib.Lookup("nvmlShutdown")
	l.handleByPCI = lib.Lookup("nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId")
	l.currGen = lib.Lookup("nvmlDeviceGetCurrPcieLinkGeneration")
	l.currWidth = lib.Lookup("nvmlDeviceGetCurrPcieLinkWidth")
	l.maxGen = lib.Lookup("nvmlDeviceGetMaxPcieLinkGeneration")
	l.maxWidth = lib.Lookup("nvmlDeviceGetMaxPcieLinkWidth")
	l.bar1 = lib.Lookup("nvmlDeviceGetBAR1MemoryInfo")
	l.persistence = lib.Lookup("nvmlDeviceGetPersistenceMode")
	l.replays = lib.Lookup("nvmlDeviceGetPcieReplayCounter")
	l.mig = lib.Lookup("nvmlDeviceGetMigMode")
	l.capability = lib.Lookup("nvmlDeviceGetCudaComputeCapability")
	if fn := lib.Lookup("nvmlSystemGetDriverVersion"); fn != 0 {
		text := make([]byte, 96)
		if fn.Call(unsafe.Pointer(&text[0]), len(text)) == 0 {
			l.driver, _, _ = strings.Cut(string(text), "\x00")
		}
	}
	return l, device.Finding{Name: lib.Name(), Found: true, Detail: "driver " + l.driver}, nil
}

func (l *Library) errText(r uintptr) string {
	if l.errorString == 0 {
		return fmt.Sprintf("error %d", r)
	}
	return fmt.Sprintf("%s (%d)", dl.GoString(l.errorString.Call(r), 256), r)
}

// Driver returns the release of the NVIDIA driver, such as "580.159.04", or "" if it is not known.
func (l *Library) Driver() string { return l.driver }

// Describe adds to info the facts that NVML reports about the GPU at the PCI address info.PCI. Describe leaves out
// facts that NVML does not report.
func (l *Library) Describe(info *device.Info) {
	if l.driver != "" {
		info.Driver = strings.TrimSpace(l.driver + " (" + info.Driver + ")")
	}
	if l.handleByPCI == 0 || info.PCI == "" {
		return
	}
	bus := append([]byte(info.PCI), 0)
	var h uintptr
	if l.handleByPCI.Call(unsafe.Pointer(&bus[0]), unsafe.Pointer(&h)) != 0 {
		return
	}
	for name, pair := range map[string][2]dl.Func{"pcie_link": {l.currGen, l.currWidth},
		"pcie_link_max": {l.maxGen, l.maxWidth}} {
		gen, ok1 := number(pair[0], h)
		width, ok2 := number(pair[1], h)
		if ok1 && ok2 {
			info.Facts[name] = fmt.Sprintf("gen %d x%d", gen, width)
		}
	}
	var mem [3]uint64 // total, free, used
	if l.bar1 != 0 && l.bar1.Call(h, unsafe.Pointer(&mem)) == 0 {
		info.Facts["bar1_total"] = fmt.Sprint(mem[0])
	}
	for name, fn := range map[string]dl.Func{"persistence_mode": l.persistence, "pcie_replays": l.replays} {
		if v, ok := number(fn, h); ok {
			info.Facts[name] = fmt.Sprint(v)
		}
	}
	if now, _, ok := numbers(l.mig, h); ok { // the second is the mode after a restart
		info.Facts["mig_mode"] = fmt.Sprint(now)
	}
	if major, minor, ok := numbers(l.capability, h); ok {
		info.Facts["compute_capability"] = fmt.Sprintf("%d.%d", major, minor)
	}
}

func number(fn dl.Func, h uintptr) (uint32, bool) {
	var v uint32
	if fn == 0 || fn.Call(h, unsafe.Pointer(&v)) != 0 {
		return 0, false
	}
	return v, true
}

func numbers(fn dl.Func, h uintptr) (a, b uint32, ok bool) {
	if fn == 0 || fn.Call(h, unsafe.Pointer(&a), unsafe.Pointer(&b)) != 0 {
		return 0, 0, false
	}
	return a, b, true
}

// Close ends this process's NVML session.
func (l *Library) Close() error {
	if l.shutdown == 0 {
		return nil
	}
	if r := l.shutdown.Call(); r != 0 {
		return errs.New(errs.Device, "nvmlShutdown", l.lib.Name(), l.errText(r))
	}
	return nil
}
