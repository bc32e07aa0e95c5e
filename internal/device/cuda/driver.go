// SPDX-License-Identifier: Apache-2.0

// Package cuda binds the CUDA driver API at run time, without cgo and without the CUDA toolkit. If the driver lacks a
// needed symbol, the error names the symbol.
//
// CUDA has one current context for each OS thread. Every function that needs a context locks the goroutine to its
// thread, pushes the device's primary context, calls the driver and pops the context. Callers of package cuda need
// not set a CUDA context, and the current context of their threads does not change.
package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// minDriver is the oldest supported CUDA driver API, 11.4. cuFile begins with 11.4, and every needed symbol exists in
// it.
const minDriver = 11040

// Driver is the loaded CUDA driver library (libcuda) with its symbols.
type Driver struct {
	lib     *dl.Library
	version int
	fn      symbols
}

// symbols are looked up by their exact versioned names. The symbols in bindings are needed. Those in optional, helpful
// and recent are 0 if the driver lacks them, and their users check this.
type symbols struct {
	init, driverGetVersion, getErrorName, getErrorString               dl.Func
	deviceGetCount, deviceGet, deviceGetName, deviceGetUUID            dl.Func
	deviceGetPCIBusID, deviceTotalMem, deviceGetAttribute              dl.Func
	primaryCtxRetain, primaryCtxRelease, ctxPushCurrent, ctxPopCurrent dl.Func
	memAlloc, memFree, memHostRegister, memHostUnregister              dl.Func
	memcpyHtoDAsync, memcpyDtoHAsync                                   dl.Func
	streamCreate, streamDestroy, streamSynchronize, streamWaitEvent    dl.Func
	eventCreate, eventDestroy, eventRecord, eventQuery                 dl.Func

	moduleLoadData, moduleGetFunction, moduleUnload, launchKernel dl.Func
	eventElapsedTime                                              dl.Func

	pointerGetAttributes, deviceCanAccessPeer, ctxEnablePeerAccess, memcpyPeerAsync dl.Func
	memHostGetDevicePointer                                                         dl.Func
	memcpyBatchAsync, memcpyBatchAsyncOld                                           dl.Func
}

// bindings lists the needed symbols, each with its names, the newest first.
func (s *symbols) bindings() []binding {
	return []binding{
		{&s.init, []string{"cuInit"}},
		{&s.driverGetVersion, []string{"cuDriverGetVersion"}},
		{&s.getErrorName, []string{"cuGetErrorName"}},
		{&s.getErrorString, []string{"cuGetErrorString"}},
		{&s.deviceGetCount, []string{"cuDeviceGetCount"}},
		{&s.deviceGet, []string{"cuDeviceGet"}},
		{&s.deviceGetName, []string{"cuDeviceGetName"}},
		{&s.deviceGetUUID, []string{"cuDeviceGetUuid_v2", "cuDeviceGetUuid"}},
		{&s.deviceGetPCIBusID, []string{"cuDeviceGetPCIBusId"}},
		{&s.deviceTotalMem, []string{"cuDeviceTotalMem_v2"}},
		{&s.deviceGetAttribute, []string{"cuDeviceGetAttribute"}},
		{&s.primaryCtxRetain, []string{"cuDevicePrimaryCtxRetain"}},
		{&s.primaryCtxRelease, []string{"cuDevicePrimaryCtxRelease_v2"}},
		{&s.ctxPushCurrent, []string{"cuCtxPushCurrent_v2"}},
		{&s.ctxPopCurrent, []string{"cuCtxPopCurrent_v2"}},
		{&s.memAlloc, []string{"cuMemAlloc_v2"}},
		{&s.memFree, []string{"cuMemFree_v2"}},
		{&s.memHostRegister, []string{"cuMemHostRegister_v2"}},
		{&s.memHostUnregister, []string{"cuMemHostUnregister"}},
		{&s.memcpyHtoDAsync, []string{"cuMemcpyHtoDAsync_v2"}},
		{&s.memcpyDtoHAsync, []string{"cuMemcpyDtoHAsync_v2"}},
		{&s.streamCreate, []string{"cuStreamCreate"}},
		{&s.streamDestroy, []string{"cuStreamDestroy_v2"}},
		{&s.streamSynchronize, []string{"cuStreamSynchronize"}},
		{&s.streamWaitEvent, []string{"cuStreamWaitEvent"}},
		{&s.eventCreate, []string{"cuEventCreate"}},
		{&s.eventDestroy, []string{"cuEventDestroy_v2"}},
		{&s.eventRecord, []string{"cuEventRecord"}},
		{&s.eventQuery, []string{"cuEventQuery"}},
	}
}

// optional lists the symbols that loads do not need: timing on the device, and kernels. Without kernels the CPU
// verifies checksums.
func (s *symbols) optional() []binding {
	return []binding{
		{&s.moduleLoadData, []string{"cuModuleLoadData"}},
		{&s.moduleGetFunction, []string{"cuModuleGetFunction"}},
		{&s.moduleUnload, []string{"cuModuleUnload"}},
		{&s.launchKernel, []string{"cuLaunchKernel"}},
		{&s.eventElapsedTime, []string{"cuEventElapsedTime_v2", "cuEventElapsedTime"}},
	}
}

// helpful lists the symbols without which a load still works, but
// without copies between GPUs, or with checksums computed by the CPU.
func (s *symbols) helpful() []binding {
	return []binding{
		{&s.pointerGetAttributes, []string{"cuPointerGetAttributes"}},
		{&s.deviceCanAccessPeer, []string{"cuDeviceCanAccessPeer"}},
		{&s.ctxEnablePeerAccess, []string{"cuCtxEnablePeerAccess"}},
		{&s.memcpyPeerAsync, []string{"cuMemcpyPeerAsync"}},
		{&s.memHostGetDevicePointer, []string{"cuMemHostGetDevicePointer_v2"}},
	}
}

// recent lists symbols that a complete driver lacks if it is older than CUDA 12.8 or 13.0. Without them copies go one
// by one.
func (s *symbols) recent() []binding {
	return []binding{
		{&s.memcpyBatchAsync, []string{"cuMemcpyBatchAsync_v2"}},
		{&s.memcpyBatchAsyncOld, []string{"cuMemcpyBatchAsync"}},
	}
}

type binding struct {
	dst   *dl.Func
	names []string
}

// LibraryNames returns the file names under which Find looks for the CUDA driver library, in order.
func LibraryNames() []string { return []string{"libcuda.so.1", "libcuda.so"} }

// Find loads the CUDA driver library and initialises it. The findings that Find returns list the searched libraries
// and symbols, in order, up to the first one that is missing. The error of Find names the missing library or symbol.
// Find creates no CUDA context.
func Find(names ...string) (*Driver, []device.Finding, error) {
	lib, err := dl.Open(names...)
	if err != nil {
		f := device.Finding{Name: names[0], Needed: true, Detail: err.Error(),
			Fix: "install the NVIDIA driver (nvidia-smi must work); in a container pass the GPU through (--gpus all)"}
		return nil, []device.Finding{f}, unusable(f)
	}
	d := &Driver{lib: lib}
	found := []device.Finding{{Name: lib.Name(), Found: true, Needed: true, Detail: "opened"}}
	stop := func(f device.Finding) (*Driver, []device.Finding, error) {
		return nil, append(found, f), unusable(f)
	}
	missing := bind(lib, d.fn.bindings())
	lesser, unhelpful := bind(lib, d.fn.optional()), bind(lib, d.fn.helpful())
	bind(lib, d.fn.recent())
	// The version is checked before the symbols, because an old driver is the better explanation for a missing
	// symbol.
	if d.fn.driverGetVersion != 0 {
		var v int32
		if r := d.fn.driverGetVersion.Call(ptr(&v)); r == 0 {
			d.version = int(v)
		}
		if d.version != 0 && d.version < minDriver {
			return stop(device.Finding{Name: "driver version", Needed: true,
				Detail: fmt.Sprintf("the driver supports CUDA %s, at least %s is needed", versionText(d.version),
					versionText(minDriver)),
				Fix: "install NVIDIA driver 470 or newer"})
		}
	}
	if len(missing) > 0 {
		return stop(device.Finding{Name: "symbols of " + lib.Name(), Needed: true,
			Detail: "missing " + strings.Join(missing, ", "),
			Fix: "the library found is not a complete NVIDIA driver of CUDA " + versionText(minDriver) +
				" or newer; reinstall the driver, or remove a stub libcuda from LD_LIBRARY_PATH"})
	}
	found = append(found, device.Finding{Name: "symbols of " + lib.Name(), Found: true, Needed: true,
		Detail: fmt.Sprintf("all %d", len(d.fn.bindings()))},
		device.Finding{Name: "driver version", Found: true, Needed: true, Detail: "CUDA " + versionText(d.version)})
	if len(lesser) > 0 {
		found = append(found, device.Finding{Name: "symbols for measuring of " + lib.Name(),
			Detail: "missing " + strings.Join(lesser, ", ") + ": steps or device-side time are not available",
			Fix:    "loads do not need them; for training-shaped runs install a complete NVIDIA driver"})
	}
	if len(unhelpful) > 0 {
		found = append(found, device.Finding{Name: "symbols for checks and peers of " + lib.Name(),
			Detail: "missing " + strings.Join(unhelpful, ", ") +
				": addresses are not checked, GPUs do not copy to each other, or the CPU verifies what a GPU could",
			Fix: "loads work without them; install a complete NVIDIA driver"})
	}
	if err := d.check("cuInit", d.fn.init.Call(0)); err != nil {
		return stop(device.Finding{Name: "cuInit", Needed: true, Detail: err.Error(), Fix: initFix(err)})
	}
	found = append(found, device.Finding{Name: "cuInit", Found: true, Needed: true, Detail: "ok"})
	return d, found, nil
}

// bind looks up every symbol and returns the names of the missing ones.
func bind(lib *dl.Library, all []binding) (missing []string) {
	for _, b := range all {
		if *b.dst = lib.Lookup(b.names...); *b.dst == 0 {
			missing = append(missing, b.names[0])
		}
	}
	return missing
}

// lacks returns an error of kind Unsupported if one of the symbols that the operation needs is missing.
func (d *Driver) lacks(op, on string, need ...dl.Func) error {
	if !slices.Contains(need, 0) {
		return nil
	}
	var names []string
	for _, b := range slices.Concat(d.fn.optional(), d.fn.helpful()) {
		if *b.dst == 0 {
			names = append(names, b.names[0])
		}
	}
	return errs.New(errs.Unsupported, op, on, d.lib.Name()+" lacks "+strings.Join(names, ", ")).
		WithFix("install a complete NVIDIA driver of CUDA " + versionText(minDriver) +
			" or newer, or remove a stub libcuda from LD_LIBRARY_PATH")
}

func unusable(f device.Finding) error {
	e := &errs.Error{Kind: errs.Unsupported, Op: "use CUDA", Name: f.Name, Msg: f.Detail, Fix: f.Fix}
	if strings.HasPrefix(f.Detail, f.Name) {
		e.Name = "" // the detail already has the name
	}
	return e
}

// initFix returns the fix for a failed cuInit.
func initFix(err error) string {
	switch code(err) {
	case resNoDevice:
		return "no GPU is visible: check nvidia-smi, CUDA_VISIBLE_DEVICES, and that the container was given a GPU"
	case resNotInitialized:
		return "CUDA was initialised before this process was forked; start workers with multiprocessing's 'spawn' method"
	case resSystemDriverMismatch:
		return "the user-space driver and the kernel module differ in version: reboot, or reinstall the driver"
	case resSystemNotReady:
		return "the fabric manager or the driver is still starting: check nvidia-smi and the nvidia-fabricmanager service"
	}
	return "check that nvidia-smi works for this user"
}

func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Version returns the CUDA version that the driver supports, such as "13.0".
func (d *Driver) Version() string { return versionText(d.version) }

// ptr returns the address of v for a call of C. dl.Call keeps v alive and at its address until the call returns.
func ptr[T any](v *T) unsafe.Pointer { return unsafe.Pointer(v) }

// withContext runs f on this thread with ctx as the current context, then restores the previous one.
func (d *Driver) withContext(ctx uintptr, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.check("cuCtxPushCurrent", d.fn.ctxPushCurrent.Call(ctx)); err != nil {
		return err
	}
	err := f()
	var old uintptr
	if perr := d.check("cuCtxPopCurrent", d.fn.ctxPopCurrent.Call(ptr(&old))); err == nil {
		err = perr
	}
	return err
}
