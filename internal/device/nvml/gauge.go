// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"strings"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostGPUs bounds the GPUs that a Gauge reads.
const mostGPUs = 256

// Numbers of NVML's fields and of its kinds of values.
const (
	fieldPCIeSent     = 197
	fieldPCIeReceived = 198
	valueULong        = 2
	valueULongLong    = 3
	valueLongLong     = 4
)

// fieldValue is nvmlFieldValue_t.
type fieldValue struct {
	id, scope uint32
	microsec  int64 // since 1970
	latency   int64
	kind      int32
	result    uint32
	value     uint64
}

// Gauge reads the meters of all GPUs through NVML.
type Gauge struct {
	l    *Library
	gpus []gaugedGPU

	rates, memory, fields, throughput, processes, power, heat, clock, reasons dl.Func
}

// gaugedGPU has what does not change about a GPU.
type gaugedGPU struct {
	handle     uintptr
	model, pci string
	maxGen     int
	maxWidth   int
	counts     bool // the driver counts the bytes of the PCIe link
}

// Gauge returns a Gauge of all GPUs that NVML shows. Gauge fails with kind Unsupported if NVML lacks the functions that
// list GPUs, and with kind Device if they fail. The caller closes the Gauge, which ends the session of the Library.
func (l *Library) Gauge() (*Gauge, error) {
	const op = "read the meters of GPUs"
	count := l.lib.Lookup("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
	byIndex := l.lib.Lookup("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
	if count == 0 || byIndex == 0 {
		return nil, errs.New(errs.Unsupported, op, l.lib.Name(), "the library lacks nvmlDeviceGetCount_v2 or "+
			"nvmlDeviceGetHandleByIndex_v2").WithFix("reinstall the NVIDIA driver")
	}
	var n uint32
	if r := count.Call(unsafe.Pointer(&n)); r != 0 {
		return nil, errs.New(errs.Device, op, "nvmlDeviceGetCount", l.errText(r))
	}
	g := &Gauge{l: l, rates: l.lib.Lookup("nvmlDeviceGetUtilizationRates"),
		memory: l.lib.Lookup("nvmlDeviceGetMemoryInfo_v2"), fields: l.lib.Lookup("nvmlDeviceGetFieldValues"),
		throughput: l.lib.Lookup("nvmlDeviceGetPcieThroughput"),
		processes:  l.lib.Lookup("nvmlDeviceGetComputeRunningProcesses_v3"),
		power:      l.lib.Lookup("nvmlDeviceGetPowerUsage"), heat: l.lib.Lookup("nvmlDeviceGetTemperature"),
		clock:   l.lib.Lookup("nvmlDeviceGetClockInfo"),
		reasons: l.lib.Lookup("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")}
	name, pci := l.lib.Lookup("nvmlDeviceGetName"), l.lib.Lookup("nvmlDeviceGetPciInfo_v3")
	for i := range min(n, mostGPUs) {
		var h uintptr
		if r := byIndex.Call(int(i), unsafe.Pointer(&h)); r != 0 {
			return nil, errs.New(errs.Device, op, "nvmlDeviceGetHandleByIndex", l.errText(r))
		}
		d := gaugedGPU{handle: h, model: text(name, h), pci: busAddress(pci, h), maxGen: -1, maxWidth: -1}
		if v, ok := number(l.maxGen, h); ok {
			d.maxGen = int(v)
		}
		if v, ok := number(l.maxWidth, h); ok {
			d.maxWidth = int(v)
		}
		_, _, _, d.counts = g.counted(h)
		g.gpus = append(g.gpus, d)
	}
	return g, nil
}

// text returns the string of a function that fills a buffer, or "".
func text(fn dl.Func, h uintptr) string {
	b := make([]byte, 96)
	if fn == 0 || fn.Call(h, unsafe.Pointer(&b[0]), len(b)) != 0 {
		return ""
	}
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// busAddress returns the PCI address of a GPU, which is the last member of nvmlPciInfo_t, or "".
func busAddress(fn dl.Func, h uintptr) string {
	// busIdLegacy 16, domain 4, bus 4, device 4, device id 4, subsystem 4, busId 32
	const at = 16 + 5*4
	b := make([]byte, 128)
	if fn == 0 || fn.Call(h, unsafe.Pointer(&b[0])) != 0 {
		return ""
	}
	s, _, _ := strings.Cut(string(b[at:at+32]), "\x00")
	return strings.ToLower(s)
}

// counted reads the counters of the PCIe link. It returns false if the driver does not count in 64 bits: fewer bits
// wrap within a second.
func (g *Gauge) counted(h uintptr) (received, sent uint64, at time.Time, ok bool) {
	if g.fields == 0 {
		return 0, 0, time.Time{}, false
	}
	f := [2]fieldValue{{id: fieldPCIeReceived}, {id: fieldPCIeSent}}
	if g.fields.Call(h, len(f), unsafe.Pointer(&f[0])) != 0 {
		return 0, 0, time.Time{}, false
	}
	for _, v := range f {
		if v.result != 0 || v.kind != valueULong && v.kind != valueULongLong && v.kind != valueLongLong {
			return 0, 0, time.Time{}, false
		}
	}
	return f[0].value, f[1].value, time.UnixMicro(f[0].microsec), true
}

// Read implements device.Gauge.
func (g *Gauge) Read() []device.GPUReading {
	out := make([]device.GPUReading, 0, len(g.gpus))
	for i := range g.gpus {
		out = append(out, g.read(i))
	}
	return out
}

func (g *Gauge) read(i int) device.GPUReading {
	d := &g.gpus[i]
	r := device.GPUReading{Index: i, Model: d.model, PCI: d.pci, Busy: -1, MemoryBusy: -1, MemoryUsed: -1, MemoryTotal: -1,
		Watts: -1, Celsius: -1, SMClock: -1, ReceiveRate: -1, SendRate: -1, LinkGen: -1, LinkWidth: -1,
		LinkGenMax: d.maxGen, LinkWidthMax: d.maxWidth}
	var use [2]uint32 // percent of time: GPU, memory
	if g.rates != 0 && g.rates.Call(d.handle, unsafe.Pointer(&use)) == 0 {
		r.Busy, r.MemoryBusy = float64(use[0])/100, float64(use[1])/100
	}
	r.MemoryUsed, r.MemoryTotal = g.used(d.handle)
	if v, ok := number(g.power, d.handle); ok {
		r.Watts = float64(v) / 1e3
	}
	var v uint32
	if g.heat != 0 && g.heat.Call(d.handle, 0, unsafe.Pointer(&v)) == 0 { // 0 is the sensor of the GPU
		r.Celsius = float64(v)
	}
	if g.clock != 0 && g.clock.Call(d.handle, 1, unsafe.Pointer(&v)) == 0 { // 1 is the clock of the multiprocessors
		r.SMClock = float64(v)
	}
	if v, ok := number(g.l.currGen, d.handle); ok {
		r.LinkGen = int(v)
	}
	if v, ok := number(g.l.currWidth, d.handle); ok {
		r.LinkWidth = int(v)
	}
	var mask uint64
	if g.reasons != 0 && g.reasons.Call(d.handle, unsafe.Pointer(&mask)) == 0 {
		r.Slowed = slowed(mask)
	}
	if r.Received, r.Sent, r.CountedAt, r.Counted = g.counted(d.handle); !r.Counted && !d.counts {
		r.ReceiveRate, r.SendRate = g.measured(d.handle, 1), g.measured(d.handle, 0)
	}
	r.Processes = g.running(d.handle)
	return r
}

// used returns the used and the whole memory of a GPU. The second version of the function leaves out what the driver
// reserves, as nvidia-smi does.
func (g *Gauge) used(h uintptr) (used, total int64) {
	m := struct {
		version, _                  uint32
		total, reserved, free, used uint64
	}{version: 2<<24 | 40}
	if g.memory != 0 && g.memory.Call(h, unsafe.Pointer(&m)) == 0 {
		return int64(m.used), int64(m.total)
	}
	var first [3]uint64 // total, free, used
	if fn := g.l.lib.Lookup("nvmlDeviceGetMemoryInfo"); fn != 0 && fn.Call(h, unsafe.Pointer(&first)) == 0 {
		return int64(first[2]), int64(first[0])
	}
	return -1, -1
}

// measured returns the rate of one direction of the PCIe link over 20 ms in bytes per second, or -1. Direction 0 is
// from the GPU, 1 to the GPU.
func (g *Gauge) measured(h uintptr, direction int) float64 {
	var v uint32 // KiB per second
	if g.throughput == 0 || g.throughput.Call(h, direction, unsafe.Pointer(&v)) != 0 {
		return -1
	}
	return float64(v) * 1024
}

// running returns the memory of the processes that compute on a GPU, or nil if NVML does not tell.
func (g *Gauge) running(h uintptr) map[int]uint64 {
	if g.processes == 0 {
		return nil
	}
	const most = 1024
	all := make([]processInfo, most)
	n := uint32(most)
	if g.processes.Call(h, unsafe.Pointer(&n), unsafe.Pointer(&all[0])) != 0 {
		return nil
	}
	out := make(map[int]uint64, n)
	for _, p := range all[:min(n, most)] {
		if p.used != unknownMemory {
			out[int(p.pid)] += p.used
		}
	}
	return out
}

// slowed names the reasons of a mask of clock event reasons. A GPU that idles, or whose clocks were set on purpose, is
// not slowed.
func slowed(mask uint64) (out []string) {
	for _, r := range []struct {
		bit  uint64
		name string
	}{{0x4, "power cap"}, {0x8, "hardware slowdown"}, {0x20, "temperature"}, {0x40, "temperature (hardware)"},
		{0x80, "power brake"}} {
		if mask&r.bit != 0 {
			out = append(out, r.name)
		}
	}
	return out
}

// Close implements device.Gauge.
func (g *Gauge) Close() error { return g.l.Close() }
