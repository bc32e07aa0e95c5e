// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	_ "embed"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// spinPTX is the one kernel of this project. PTX is compiled by the driver for
// the GPU at hand, so that no compiler and no toolkit is needed to build us.
//
//go:embed spin.ptx
var spinPTX string

// spinName is the kernel's name in spinPTX.
const spinName = "nebulaio_spin"

// spinner is the loaded kernel of one device; zero until its first step.
type spinner struct{ module, fn uintptr }

// loadSpin returns the kernel, compiled on first use; closing the device
// unloads it.
func (g *Device) loadSpin() (uintptr, error) {
	d := g.drv
	if err := d.lacks("compute on", g.info.ID, d.fn.moduleLoadData, d.fn.moduleGetFunction, d.fn.moduleUnload, d.fn.launchKernel); err != nil {
		return 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, errs.New(errs.Closed, "compute on", g.info.ID, "the device is closed")
	}
	if g.spin.fn != 0 {
		return g.spin.fn, nil
	}
	image, name := append([]byte(spinPTX), 0), append([]byte(spinName), 0)
	err := d.withContext(g.ctx, func() error {
		var s spinner
		if err := d.check("cuModuleLoadData", d.fn.moduleLoadData.Call(ptr(&s.module), ptr(&image[0]))); err != nil {
			return err
		}
		if err := d.check("cuModuleGetFunction", d.fn.moduleGetFunction.Call(ptr(&s.fn), s.module, ptr(&name[0]))); err != nil {
			_ = d.fn.moduleUnload.Call(s.module) // the error above is the one to tell
			return err
		}
		g.spin = s
		return nil
	})
	if err != nil {
		return 0, g.explainJIT(err)
	}
	return g.spin.fn, nil
}

// explainJIT says what to do when the driver does not compile the kernel.
func (g *Device) explainJIT(err error) error {
	e := &errs.Error{Kind: errs.Unsupported, Op: "compile the step kernel for", Name: g.info.ID, Err: err}
	switch code(err) {
	case resJITCompilerNotFound:
		e.Msg = "the driver's PTX compiler is not here"
		e.Fix = "install libnvidia-ptxjitcompiler.so.1 of the same driver version; in a container set NVIDIA_DRIVER_CAPABILITIES=compute,utility"
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

// unloadSpin frees the kernel; the caller holds mu. It fails only in a context
// that has died, which has freed its modules and told whoever waited for it.
func (g *Device) unloadSpin() {
	if g.spin.module == 0 {
		return
	}
	d, m := g.drv, g.spin.module
	g.spin = spinner{}
	_ = d.withContext(g.ctx, func() error { return d.check("cuModuleUnload", d.fn.moduleUnload.Call(m)) })
}

// Step launches one thread that looks at the GPU's clock until d has passed.
func (q *queue) Step(d time.Duration) error {
	fn, err := q.dev.loadSpin()
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

// Follow makes the stream wait for the event of another stream.
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
