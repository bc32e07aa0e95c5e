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

// Routes on which the fake libcufile counts.
const (
	Posix = iota
	P2P
	NVFS
	Mixed // posix and p2p in turn
)

// CuFileOptions choose what the fake libcufile is like. The zero value is a
// release 1.15.1 with nvidia-fs, whose operations take compatibility mode.
type CuFileOptions struct {
	Without  []string // symbols that it lacks
	Version  int      // as cuFileGetVersion gives it
	Route    int      // Posix, P2P, NVFS or Mixed
	Register int      // what every cuFileHandleRegister returns, with a line in the log
	Crash    bool     // the first read ends the process
	// CompatOnly leaves out nvidia-fs and P2PDMA, so that no other mode is possible.
	CompatOnly bool
}

// CuFile is a fake libcufile beside a fake driver, with state of its own.
type CuFile struct {
	Path string

	gpu *GPU
	tb  testing.TB
	lib *dl.Library
}

// BuildCuFile compiles a libcufile that works on this GPU's memory and checks
// that the GPU's context is current where it must be.
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

// Options are what makes device/open look for these libraries.
func (c *CuFile) Options(m device.Mode) open.Options {
	o := c.gpu.Options(m)
	o.CuFileLibraries = []string{c.Path}
	return o
}

// Count reads a counter by its name in csrc/libcufile.c: handles, buffers,
// batches, streams (left), users, opens, unregistered (operations on memory
// that is not registered), context_errors, failures, stats_level, started,
// stats_calls (calls of any function of the statistics).
func (c *CuFile) Count(name string) int64 {
	v := int64(c.fn("fake_count").Call(cstring(name)))
	if v == -1 {
		c.tb.Fatalf("the fake libcufile does not count %q", name)
	}
	return v
}

// Fail makes calls of a function fail with code, after skip more calls, the
// next times of them; a code below 5000 is an errno.
func (c *CuFile) Fail(fn string, skip, times, code int) {
	c.fn("fake_fail").Call(cstring(fn), skip, times, code, 0, 0)
}

// FailCUDA makes calls fail because of the CUDA driver, with its result.
func (c *CuFile) FailCUDA(fn string, times, result int) {
	c.fn("fake_fail").Call(cstring(fn), 0, times, 5011, result, 0)
}

// FailInErrno makes reads or writes return -1 with code in errno.
func (c *CuFile) FailInErrno(fn string, times, code int) {
	c.fn("fake_fail").Call(cstring(fn), 0, times, code, 0, 1)
}

// SetRoute chooses the route on which operations are counted from now on.
func (c *CuFile) SetRoute(route int) { c.fn("fake_route").Call(route) }

// AddProperties adds bits to the status and the features of the driver's properties.
func (c *CuFile) AddProperties(status, features uint32) {
	c.fn("fake_properties").Call(int(status), int(features))
}

// Short makes every read give at most n bytes at a time.
func (c *CuFile) Short(n int64) { c.fn("fake_most").Call(int(n)) }

// CountBatchesApart makes requests of batches count for the process alone.
func (c *CuFile) CountBatchesApart() { c.fn("fake_apart").Call(1) }

// Open opens a device and gives what opens this libcufile for it; both are
// closed when the test ends.
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

// OpenDriver opens the driver as another part of the process would; n is the
// device whose context it uses. It is closed when the test ends.
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

// CheckFreed fails the test unless everything taken from the library was given
// back, and every call had a context.
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
