// SPDX-License-Identifier: Apache-2.0

// Package boot wires the parts of a process together, once and in one place:
// devices, then the engine over them, closed in reverse.
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
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// Options configure a System; zero values are the defaults.
type Options struct {
	Devices open.Options
	// Engine's PoolSize, where it is given, is the staging of all GPUs together.
	Engine transfer.Options
	// DeviceIDs are the GPUs that will be used: a given PoolSize is divided among
	// them. Empty means every one that is visible.
	DeviceIDs []int
	// BeforeCuFile, if not nil, is called each time right before libcufile is
	// opened; an error refuses it.
	BeforeCuFile func() error
}

// System is the running parts.
type System struct {
	Devices device.Set
	Engine  *transfer.Engine

	mu     sync.Mutex
	users  int // of device memory, outside the engine
	closed bool
}

// Enter counts in a user of device memory that is no transfer of the engine; the user calls Leave when it is done. It
// fails with kind Closed after Close.
func (s *System) Enter(op, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errs.New(errs.Closed, op, name, "the system is closed, and its devices with it")
	}
	s.users++
	return nil
}

// Leave ends what Enter has begun.
func (s *System) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
}

// New makes the device set and the engine. No GPU context or staging memory
// exists before the first model is opened for a GPU.
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

// share is what a GPU has for itself where there are several, or several NUMA
// nodes: its part of the staging, and threads near it. Else it has the engine's.
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

// Close ends the engine, then the devices it used. It fails with kind Invalid while loads run or memory is in use;
// nothing is closed then.
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

// minParallel is how many blocking reads the Go scheduler should let run at
// once without first noticing that they block.
const minParallel = 16

// gcPercent lets the heap, a few megabytes of headers, grow fivefold between
// collections: one in the middle of a load costs more than the memory.
const gcPercent = 400

// OwnRuntime tells the Go scheduler that this process is ours: a goroutine in a
// blocking read keeps its place until it is noticed, and with few cores that
// would leave reads waiting for each other. Programs that import the library
// keep their own settings.
func OwnRuntime() {
	debug.SetGCPercent(gcPercent)
	if n := runtime.GOMAXPROCS(0); n < minParallel {
		runtime.GOMAXPROCS(minParallel)
	}
}
