// SPDX-License-Identifier: Apache-2.0

package fakegpu

import (
	"context"
	"fmt"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/dl"
)

// Posix, P2P, NVFS and Mixed are the routes by which the fake libcufile can count its operations.
const (
	Posix = iota
	P2P
	NVFS
	Mixed // operations count as Posix and P2P in turn
)

// CuFileOptions configure the fake libcufile. The zero value of CuFileOptions means release 1.15.1 with nvidia-fs and
// with operations in compatibility mode.
type CuFileOptions struct {
	Without  []string // symbols that the fake libcufile lacks
	Version  int      // the result of cuFileGetVersion; 0 means 1.15.1
	Route    int      // the route that operations count as: Posix, P2P, NVFS or Mixed
	Register int      // the result of every cuFileHandleRegister, which also writes a log line
	Crash    bool     // if true, the first read crashes the process
	// CompatOnly leaves out nvidia-fs and P2PDMA, so that only compatibility mode is possible.
	CompatOnly bool
}

// CuFile is a fake libcufile for one fake GPU, with its own state.
type CuFile struct {
	Path string

	gpu *GPU
	tb  testing.TB
	lib *dl.Library
}

// BuildCuFile compiles a fake libcufile that uses the memory of this fake GPU. The fake libcufile checks that a
// context of the GPU is current in every call that needs one.
func (g *GPU) BuildCuFile(o CuFileOptions) *CuFile {
	g.tb.Helper()
	defs := []string{fmt.Sprintf("-DFAKE_ROUTE=%d", o.Route), fmt.Sprintf("-DFAKE_REGISTER=%d", o.Register)}
	if o.Version != 0 {
		defs = append(defs, fmt.Sprintf("-DFAKE_CUFILE_VERSION=%d", o.Version))
	}
	if o.Crash {
		defs = append(defs, "-DFAKE_CRASH=1")
	}
	if o.CompatOnly {
		defs = append(defs, "-DFAKE_COMPAT_ONLY=1")
	}
	c := &CuFile{gpu: g, tb: g.tb, Path: compile(g.tb, "libcufile", defs, o.Without)}
	var err error
	if c.lib, err = dl.Open(c.Path); err != nil {
		g.tb.Fatal(err)
	}
	c.fn("fake_contexts").Call(uintptr(g.fn("fake_current")))
	return c
}

func (c *CuFile) fn(name string) dl.Func {
	f := c.lib.Lookup(name)
	if f == 0 {
		c.tb.Fatalf("the fake libcufile has no %s", name)
	}
	return f
}

// Options returns the options that make device/open load the fake libcuda, libnvidia-ml and libcufile.
func (c *CuFile) Options(m device.Mode) open.Options {
	o := c.gpu.Options(m)
	o.CuFileLibraries = []string{c.Path}
	return o
}

// Count returns the value of a counter of the fake libcufile by its name, such as "handles". The function fake_count
// in csrc/libcufile.c lists all counter names. Count fails the test if no counter has the given name. The counter
// "unregistered" counts operations on memory that is not registered. The counter "stats_calls" counts calls of the
// statistics functions.
func (c *CuFile) Count(name string) int64 {
	v := int64(c.fn("fake_count").Call(cstring(name)))
	if v == -1 {
		c.tb.Fatalf("the fake libcufile does not count %q", name)
	}
	return v
}

// Fail makes calls of a cuFile function fail with the given error code. The parameter skip is the number of calls
// that still succeed, and the parameter times is the number of calls after them that fail. An error code below 5000
// is an errno.
func (c *CuFile) Fail(fn string, skip, times, code int) {
	c.fn("fake_fail").Call(cstring(fn), skip, times, code, 0, 0)
}

// FailCUDA makes the next calls of a cuFile function fail with a CUDA error; the parameter result is its CUresult,
// and times is the number of calls that fail.
func (c *CuFile) FailCUDA(fn string, times, result int) {
	c.fn("fake_fail").Call(cstring(fn), 0, times, 5011, result, 0)
}

// FailInErrno makes the next reads or writes of cuFile return -1 and set errno to the given code; the parameter times
// is the number of calls that fail.
func (c *CuFile) FailInErrno(fn string, times, code int) {
	c.fn("fake_fail").Call(cstring(fn), 0, times, code, 0, 1)
}

// SetRoute sets the route under which the fake libcufile counts operations from now on.
func (c *CuFile) SetRoute(route int) { c.fn("fake_route").Call(route) }

// AddProperties sets further bits in Properties.Status and Properties.Features of the fake driver.
func (c *CuFile) AddProperties(status, features uint32) {
	c.fn("fake_properties").Call(int(status), int(features))
}

// Short makes every cuFile read return at most n bytes.
func (c *CuFile) Short(n int64) { c.fn("fake_most").Call(int(n)) }

// CountBatchesApart makes the fake libcufile count requests of batches only for the whole process, not for a GPU.
func (c *CuFile) CountBatchesApart() { c.fn("fake_apart").Call(1) }

// Open opens a fake device, and returns the device and a function that opens the fake libcufile for it. The device
// and the library are closed when the test ends.
func (c *CuFile) Open(id string) (device.Device, func(context.Context, device.Device) (device.Direct, error)) {
	c.tb.Helper()
	s, err := open.New(c.Options(device.Require))
	if err != nil {
		c.tb.Fatal(err)
	}
	d, err := s.Open(context.Background(), id)
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			c.tb.Errorf("close devices: %v", err)
		}
		c.CheckFreed()
	})
	return d, s.OpenDirect
}

// OpenDriver opens the fake cuFile driver as another part of the process would, with the CUDA context of device n.
// The driver that OpenDriver has opened is closed when the test ends.
func (c *CuFile) OpenDriver(n int) {
	c.tb.Helper()
	call := func(fn string) {
		f := c.gpu.Thread(n)
		defer f.Leave()
		if r := c.fn(fn).Call(); r != 0 {
			c.tb.Errorf("%s: %d", fn, int32(r))
		}
	}
	call("cuFileDriverOpen")
	c.tb.Cleanup(func() { call("cuFileDriverClose_v2") })
}

// CheckFreed fails the test if handles, buffers, batches or other resources of the library are not freed, or if a
// call had no context.
func (c *CuFile) CheckFreed() {
	c.tb.Helper()
	for _, name := range []string{"handles", "buffers", "batches", "streams", "users", "started", "stats_level",
		"context_errors"} {
		want := 0
		if name == "users" && c.Count("batches_made") > 0 {
			want = 1 // after batches the binding leaves the driver open
		}
		if v := c.Count(name); int(v) != want {
			c.tb.Errorf("fake libcufile: %s is %d, expected %d", name, v, want)
		}
	}
}
