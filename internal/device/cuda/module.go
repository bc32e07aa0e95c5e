// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	_ "embed"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// The driver compiles PTX for the GPU at run time, so that building NebulaIO needs no CUDA toolkit.
var (
	//go:embed spin.ptx
	spinPTX string
	// crc64PTX is compiled from crc64.cu by make kernels.
	//go:embed crc64.ptx
	crc64PTX string
)

// kernel is a kernel that a device has loaded. It is zero before its first use.
type kernel struct{ module, fn uintptr }

// load returns the kernel with the given name from the PTX image, and compiles it at its first use. Closing the
// device unloads the kernel.
func (g *Device) load(k *kernel, image, name string) (uintptr, error) {
	d := g.drv
	if err := d.lacks("compute on", g.info.ID, d.fn.moduleLoadData, d.fn.moduleGetFunction, d.fn.moduleUnload,
		d.fn.launchKernel); err != nil {
		return 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, errs.New(errs.Closed, "compute on", g.info.ID, "the device is closed")
	}
	if k.fn != 0 {
		return k.fn, nil
	}
	text, symbol := append([]byte(image), 0), append([]byte(name), 0)
	err := d.withContext(g.ctx, func() error {
		var s kernel
		if err := d.check("cuModuleLoadData", d.fn.moduleLoadData.Call(ptr(&s.module), ptr(&text[0]))); err != nil {
			return err
		}
		if err := d.check("cuModuleGetFunction", d.fn.moduleGetFunction.Call(ptr(&s.fn), s.module,
			ptr(&symbol[0]))); err != nil {
			_ = d.fn.moduleUnload.Call(s.module) // the error above is returned
			return err
		}
		*k = s
		return nil
	})
	if err != nil {
		return 0, g.explainJIT(name, err)
	}
	return k.fn, nil
}

// explainJIT adds the reason and a fix to the error of a failed compilation.
func (g *Device) explainJIT(name string, err error) error {
	e := &errs.Error{Kind: errs.Unsupported, Op: "compile " + name + " for", Name: g.info.ID, Err: err}
	switch code(err) {
	case resJITCompilerNotFound:
		e.Msg = "the driver's PTX compiler is not here"
		e.Fix = "install libnvidia-ptxjitcompiler.so.1 of the same driver version; in a container set " +
			"NVIDIA_DRIVER_CAPABILITIES=compute,utility"
	case resJITDisabled:
		e.Msg = "compiling PTX is switched off"
		e.Fix = "unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT"
	case resInvalidPTX, resUnsupportedPTX, resNoBinaryForGPU:
		e.Msg = "the driver cannot compile PTX 6.0 for this GPU"
		e.Fix = "a GPU of compute capability 5.0 or newer is needed; else update the driver"
	default:
		e.Kind = errs.KindOf(err)
	}
	return e
}

// unload frees the kernels. The caller holds mu. Errors are ignored: unload fails only if the context is dead, and
// then its modules are already freed.
func (g *Device) unload() {
	d := g.drv
	for _, k := range []*kernel{&g.spin, &g.crc64} {
		if m := k.module; m != 0 {
			*k = kernel{}
			_ = d.withContext(g.ctx, func() error { return d.check("cuModuleUnload", d.fn.moduleUnload.Call(m)) })
		}
	}
}

// Step launches a kernel of one thread that polls the GPU's clock until the time d has passed.
func (q *queue) Step(d time.Duration) error {
	fn, err := q.dev.load(&q.dev.spin, spinPTX, "nebulaio_spin")
	if err != nil {
		return err
	}
	ns := uint64(max(d, 0))
	params := [1]unsafe.Pointer{ptr(&ns)} // the driver copies what it points to before it returns
	drv := q.dev.drv
	err = drv.withContext(q.dev.ctx, func() error {
		return drv.check("cuLaunchKernel", drv.fn.launchKernel.Call(fn, 1, 1, 1, 1, 1, 1, 0, q.stream, ptr(&params), 0))
	})
	return errs.Wrap("queue a step on", q.dev.info.ID, err)
}

// Follow makes the queue's stream wait for the event of the mark m.
func (q *queue) Follow(m device.Mark) error {
	o, ok := m.(*mark)
	if !ok || o.q.dev != q.dev {
		return errs.New(errs.Invalid, "order queues of", q.dev.info.ID, "the mark is of another device")
	}
	if !o.recorded {
		return nil
	}
	d := q.dev.drv
	return d.withContext(q.dev.ctx, func() error {
		return d.check("cuStreamWaitEvent", d.fn.streamWaitEvent.Call(q.stream, o.event, 0))
	})
}
