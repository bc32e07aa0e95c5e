// SPDX-License-Identifier: Apache-2.0

// Package boot starts the devices and the transfer engine of a process, and closes them in reverse order.
package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/nvtx"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// Options configure a System. A field of Options that has its zero value uses its default.
type Options struct {
	Devices open.Options
	// Engine configures the transfer engine. Engine.PoolSize, if it is not 0, is the staging memory of all GPUs
	// together, in bytes.
	Engine transfer.Options
	// DeviceIDs are the GPUs that the process will use. Engine.PoolSize is divided among the GPUs of DeviceIDs. If
	// DeviceIDs is empty, the process uses all visible GPUs.
	DeviceIDs []int
	// BeforeCuFile, if not nil, is called each time before libcufile is opened. If BeforeCuFile returns an error,
	// libcufile is not opened.
	BeforeCuFile func() error
}

// System holds the devices and the transfer engine of a process.
type System struct {
	Devices device.Set
	Engine  *transfer.Engine

	mu     sync.Mutex
	users  int // calls between Enter and Leave
	closed bool
}

// Enter begins a use of device memory outside of the transfer engine, so that Close does not close the devices
// meanwhile. The caller of Enter calls Leave when it no longer uses device memory. After Close, Enter fails with an
// error of kind Closed.
func (s *System) Enter(op, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errs.New(errs.Closed, op, name, "the system is closed, and its devices with it")
	}
	s.users++
	return nil
}

// Leave ends a use of device memory that Enter has begun.
func (s *System) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// New makes the device set and the transfer engine. GPU contexts and staging memory are created later, when the
// first model is opened for a GPU.
func New(o Options) (*System, error) {
	if err := startPoller(); err != nil {
		return nil, err
	}
	var d device.Set
	if o.Engine.OpenDirect == nil {
		o.Engine.OpenDirect = func(ctx context.Context, dev device.Device) (device.Direct, error) {
			if o.BeforeCuFile != nil {
				if err := o.BeforeCuFile(); err != nil {
					return nil, err
				}
			}
			return d.OpenDirect(ctx, dev)
		}
	}
	if o.Engine.Share == nil {
		o.Engine.Share = func(dev device.Info) (transfer.Share, bool) { return o.share(d, dev) }
	}
	if o.Engine.Trace == nil {
		// A program without its profiler still runs, so the error is only reported.
		d, err := nvtx.Open("nebulaio")
		if o.Engine.TraceError = err; d != nil {
			o.Engine.Trace = d
		}
	}
	e, err := transfer.New(o.Engine)
	if err != nil {
		return nil, err
	}
	d, err = open.New(o.Devices)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return &System{Devices: d, Engine: e}, nil
}

// startPoller makes the Go runtime open its poller now. The runtime opens it with the first pipe, socket or timer, and
// ends the whole process if no descriptor is left for it; in a program of C or Python that is not ours to end. So we
// ask for as many descriptors as the poller and a pipe take, and fail if they are not there.
func startPoller() error {
	const poller, pipe = 2, 2
	var err error
	var taken []int
	for len(taken) < poller+pipe && err == nil {
		var fd int
		if fd, err = syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
			taken = append(taken, fd)
		}
	}
	for _, fd := range taken {
		syscall.Close(fd)
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return errs.Wrap("open system", "", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return errs.Wrap("open system", "", err)
	}
	return errors.Join(r.Close(), w.Close())
}

// share returns a GPU's own share of the engine: its part of the staging memory, and threads on its NUMA node.
// share returns false on a machine with one GPU and one NUMA node, where the GPU uses the whole engine.
func (o *Options) share(d device.Set, dev device.Info) (transfer.Share, bool) {
	n := len(o.DeviceIDs)
	if c, ok := d.(device.Counter); n == 0 && ok {
		n = c.GPUs()
	}
	near := hostmem.NodeNear("/sys", dev.NUMANode)
	if n < 2 && near == nil {
		return transfer.Share{}, false
	}
	return transfer.Share{PoolSize: o.Engine.PoolSize / int64(max(n, 1)), Near: near}, true
}

// Close closes the transfer engine and then the devices. While loads run or device memory is in use, Close fails with
// an error of kind Invalid and closes nothing.
func (s *System) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 {
		return errs.New(errs.Invalid, "close system", "",
			fmt.Sprintf("%d calls that use device memory are still running", s.users)).WithFix("wait for them first")
	}
	err := s.Engine.Close()
	if errs.Is(err, errs.Invalid) {
		return err // loads run: nothing was closed
	}
	s.closed = true
	return errors.Join(err, s.Devices.Close())
}

// minParallel is the number of blocking reads that can run at once before the Go scheduler has to notice that they
// block.
const minParallel = 16

// gcPercent lets the heap, a few megabytes of headers, grow fivefold between garbage collections. A collection
// during a load costs more than the memory.
const gcPercent = 400

// OwnRuntime tunes the Go runtime of the whole process: it raises GOMAXPROCS to at least 16 and makes garbage
// collections rarer. With a small GOMAXPROCS, a new read would have to wait until the Go scheduler notices that the
// running reads block their threads. Only the nebulaio command and the C library call OwnRuntime. A Go program that
// imports package nebulaio keeps its own runtime settings.
func OwnRuntime() {
	debug.SetGCPercent(gcPercent)
	if n := runtime.GOMAXPROCS(0); n < minParallel {
		runtime.GOMAXPROCS(minParallel)
	}
}
