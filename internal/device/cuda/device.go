// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// These constants are the device attributes that the survey shows.
const (
	attrIntegrated      = 18
	attrAsyncEngines    = 40
	attrGPUDirectRDMA   = 116
	attrDMABufSupported = 124
)

// List returns the description of every visible GPU, without creating a CUDA context.
func (d *Driver) List() ([]device.Info, error) {
	var n int32
	if err := d.check("cuDeviceGetCount", d.fn.deviceGetCount.Call(ptr(&n))); err != nil {
		return nil, err
	}
	infos := make([]device.Info, 0, n)
	for i := range int(n) {
		info, err := d.describe(i)
		if err != nil {
			return infos, errs.Wrap("describe device", fmt.Sprintf("cuda:%d", i), err)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func (d *Driver) describe(ordinal int) (device.Info, error) {
	info := device.Info{ID: fmt.Sprintf("cuda:%d", ordinal), Kind: device.CUDA, NUMANode: -1,
		Driver: "CUDA " + d.Version(), Facts: map[string]string{}}
	var dev int32
	if err := d.check("cuDeviceGet", d.fn.deviceGet.Call(ptr(&dev), uintptr(ordinal))); err != nil {
		return info, err
	}
	text := make([]byte, 256)
	if err := d.check("cuDeviceGetName", d.fn.deviceGetName.Call(ptr(&text[0]), uintptr(len(text)),
		uintptr(dev))); err != nil {
		return info, err
	}
	info.Model = cut(text)
	var total uint64
	if err := d.check("cuDeviceTotalMem", d.fn.deviceTotalMem.Call(ptr(&total), uintptr(dev))); err != nil {
		return info, err
	}
	info.TotalMemory = int64(total)
	var uuid [16]byte
	if d.fn.deviceGetUUID.Call(ptr(&uuid), uintptr(dev)) == 0 {
		info.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", uuid[0:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:16])
	}
	clear(text)
	if d.fn.deviceGetPCIBusID.Call(ptr(&text[0]), uintptr(len(text)), uintptr(dev)) == 0 {
		info.PCI = strings.ToLower(cut(text))
		info.NUMANode = numaNode(info.PCI)
	}
	for name, attr := range map[string]int{"integrated": attrIntegrated, "copy_engines": attrAsyncEngines,
		"gpu_direct_rdma": attrGPUDirectRDMA, "dma_buf": attrDMABufSupported} {
		var v int32
		if d.fn.deviceGetAttribute.Call(ptr(&v), uintptr(attr), uintptr(dev)) == 0 {
			info.Facts[name] = strconv.Itoa(int(v))
		}
	}
	return info, nil
}

func cut(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// numaNode returns the NUMA node of the GPU's PCI slot, or -1 if it is not known. CUDA prints the PCI domain with
// eight digits, sysfs with four.
func numaNode(pci string) int {
	if dom, rest, ok := strings.Cut(pci, ":"); ok && len(dom) == 8 {
		pci = dom[4:] + ":" + rest
	}
	b, err := os.ReadFile("/sys/bus/pci/devices/" + pci + "/numa_node")
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return -1
	}
	return n
}

// Device is one GPU, used through its primary CUDA context. PyTorch, CuPy and JAX use the primary context too, so
// their device pointers are valid in package cuda.
type Device struct {
	drv  *Driver
	dev  int32
	ctx  uintptr
	info device.Info

	mu          sync.Mutex // guards the fields below
	spin, crc64 kernel
	closed      bool
}

// Open retains the primary context of the GPU with the given ordinal. Open creates a CUDA context only on the opened
// GPU.
func (d *Driver) Open(info device.Info, ordinal int) (*Device, error) {
	g := &Device{drv: d, info: info}
	if err := d.check("cuDeviceGet", d.fn.deviceGet.Call(ptr(&g.dev), uintptr(ordinal))); err != nil {
		return nil, err
	}
	if err := d.check("cuDevicePrimaryCtxRetain", d.fn.primaryCtxRetain.Call(ptr(&g.ctx), uintptr(g.dev))); err != nil {
		return nil, errs.Wrap("open device", info.ID, err)
	}
	return g, nil
}

// Info returns the description of the GPU.
func (g *Device) Info() device.Info { return g.info }

// WithContext runs f on a locked thread with the device's context as the current one, then restores the previous
// context. Other libraries, such as cuFile, are called through WithContext.
func (g *Device) WithContext(f func() error) error { return g.drv.withContext(g.ctx, f) }

// Alloc allocates size bytes of device memory.
func (g *Device) Alloc(size int64) (device.Buffer, error) {
	if size <= 0 {
		return nil, errs.New(errs.Invalid, "allocate on", g.info.ID,
			fmt.Sprintf("%d bytes; expected a positive number", size))
	}
	b := &buffer{dev: g, size: size}
	err := g.drv.withContext(g.ctx, func() error {
		return g.drv.check("cuMemAlloc", g.drv.fn.memAlloc.Call(ptr(&b.ptr), uintptr(size)))
	})
	if err != nil {
		return nil, errs.Wrap(fmt.Sprintf("allocate %d bytes on", size), g.info.ID, err)
	}
	return b, nil
}

type buffer struct {
	dev  *Device
	ptr  uint64
	size int64
}

func (b *buffer) Ptr() device.Ptr { return device.Ptr(b.ptr) }
func (b *buffer) Size() int64     { return b.size }
func (b *buffer) Free() error {
	if b.ptr == 0 {
		return nil
	}
	d := b.dev.drv
	err := d.withContext(b.dev.ctx, func() error { return d.check("cuMemFree", d.fn.memFree.Call(uintptr(b.ptr))) })
	b.ptr = 0
	return errs.Wrap("free memory on", b.dev.info.ID, err)
}

const (
	// registerPortable makes one registration valid in the contexts of all devices.
	registerPortable = 1
	// registerMapped lets kernels write to the registered memory.
	registerMapped = 2
)

// Register pins the host memory mem, so that the GPU's copy engines can access it directly. If another device of this
// process has already pinned the memory mem, Register succeeds, and the returned function does nothing.
func (g *Device) Register(mem []byte) (func() error, error) {
	if len(mem) == 0 {
		return func() error { return nil }, nil
	}
	d, base := g.drv, uintptr(unsafe.Pointer(&mem[0]))
	const alreadyRegistered = 712
	err := d.withContext(g.ctx, func() error {
		return d.check("cuMemHostRegister", d.fn.memHostRegister.Call(base, uintptr(len(mem)), registerPortable))
	})
	if code(err) == alreadyRegistered {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, &errs.Error{Kind: errs.KindOf(err), Op: fmt.Sprintf("pin %d bytes of staging for", len(mem)),
			Name: g.info.ID, Err: err,
			Fix: "lower buffer_pool_size, or raise the locked-memory limit (ulimit -l)"}
	}
	return func() error {
		return d.withContext(g.ctx, func() error { return d.check("cuMemHostUnregister", d.fn.memHostUnregister.Call(base)) })
	}, nil
}

// Close releases the primary context of the GPU. Other users of the same context in this process, such as PyTorch,
// can still use it after Close.
func (g *Device) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.unload()
	return g.drv.check("cuDevicePrimaryCtxRelease", g.drv.fn.primaryCtxRelease.Call(uintptr(g.dev)))
}
