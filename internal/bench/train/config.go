// SPDX-License-Identifier: Apache-2.0

// Package train simulates how a training loop loads its batches into device memory.
//
// Batches of samples are read, copied to the device and consumed by simulated training steps of known duration. The
// result names what the accelerator waited for: the loader or the copy.
//
// The data set. Each data file contains samples one after another. Samples of at least 4096 bytes begin at multiples
// of 4096 (see Stride), so that direct I/O can read each of them. Samples of less than 4096 bytes follow each other
// without a gap. A sample never spans two files; the space that is left at the end of a file is unused.
//
// The flow. Workers read the samples of a batch into host memory. A copier goroutine queues the copy of each batch to
// the device on a copy queue. A consumer goroutine queues the training step on a compute queue, so that the step
// starts after the copy of its batch. A reaper goroutine waits for the end of the step and frees the memory slot of
// the batch. There are Prefetch+1 memory slots for batches, so at most Prefetch batches are loaded ahead of the
// running step.
//
// The figures. Before and after the training run, the loader is measured alone: the same workers read batches into
// host memory, without copies and steps. Before the training run, the copy to the device is measured alone, from the
// same kind of host memory. Every measured round leaves out its first batches as a warm-up, and so does the training
// run. Differences of time that are within the spread of the rounds count as noise. If the data set is large enough,
// the rounds of the loader alone read other samples than the training run. If Config.Drop is set, the files are
// dropped from the page cache before each round.
package train

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Pageable, Pinned, Engine and Loader are the values of Config.Memory: how batches get to the device.
const (
	// Pageable is ordinary host memory, as in a PyTorch DataLoader without pin_memory.
	Pageable = "pageable"
	// Pinned is page-locked host memory, which the device's copy engines can read directly.
	Pinned = "pinned"
	// Engine lets the transfer engine read and copy the batches.
	Engine = "engine"
	// Loader lets the loader of training data read and copy the batches. The loader chooses how far it reads ahead.
	Loader = "loader"
)

// Sequential and Random are the values of Config.Pattern, the order of the samples within an epoch.
const (
	Sequential = "sequential"
	Random     = "random"
)

// Config describes a run that simulates training.
type Config struct {
	Device device.Device    // the device that receives the batches and runs the steps
	Engine *transfer.Engine // the transfer engine, needed only if Memory is Engine or Loader
	// Host is a device that stands for host memory. If Memory is Engine, the transfer engine reads into Host while
	// the loader is measured alone. If Host is nil, worker threads read instead of the engine, and a note in the
	// result says so.
	Host  device.Device
	Files []*vfs.File // the data set; the caller opens and closes the files

	Workload    string  // name of the workload in the result; "" means "custom"
	WantedAU    float64 // lowest accelerator utilisation that the workload accepts; 0 if it demands none
	SampleBytes int64
	Batch       int // samples per batch
	StepTime    time.Duration
	Steps       int // steps to measure
	Warmup      int // number of warm-up steps before the measured ones; 0 means 1, and -1 means none

	Workers  int    // number of threads that read; 0 means 4
	Prefetch int    // number of batches loaded ahead of the running step; 0 loads only while no step runs
	Memory   string // Pageable, Pinned, Engine or Loader; "" means Pinned
	Route    string // "direct", "buffered" or "auto"; "" means "auto"
	Pattern  string // Sequential or Random; "" means Sequential
	Seed     uint64 // seed of the Random order
	// Drop means that the files are dropped from the page cache before each phase and between epochs, so that every
	// epoch is read from storage. The time for dropping the files between epochs counts as time of the run.
	Drop bool

	// Alone is the largest number of batches in one round of the loader alone or of the copy alone; 0 means 20. A
	// round of the loader alone or of the copy alone also ends after three seconds.
	Alone int
	// Limits are known limits of the machine for the diagnosis, such as the highest rate of its storage.
	Limits Limits
	// Progress, if not nil, is called with the progress of each phase ("loader alone", "copy alone", "train") in
	// batches. Calls never overlap.
	Progress func(phase string, done, total int)
}

// Bounds of a Config, against values that would need absurd amounts of memory or time.
const (
	maxWorkers  = 1024
	maxPrefetch = 1024
	maxBatch    = 1 << 20
	maxSteps    = 1 << 20
	maxAlone    = 10000
	directUnit  = 4096
	aloneTime   = 3 * time.Second
)

// Stride returns the distance between two samples of a file in bytes. The stride is the sample's size, rounded up to
// a multiple of 4096 if the sample has at least 4096 bytes.
func Stride(sampleBytes int64) int64 {
	if sampleBytes < directUnit {
		return sampleBytes
	}
	return (sampleBytes + directUnit - 1) &^ (directUnit - 1)
}

// plan is a checked Config, with its zero values replaced.
type plan struct {
	Config
	stride int64 // between samples, in files and in memory
	places int
	layout layout
	route  report.Route
}

// engine reports whether the transfer engine reads and copies, for the run itself or for the loader.
func (p *plan) engine() bool { return p.Memory == Engine || p.Memory == Loader }

// slotBytes is the size of a slot's host memory, and also that of its device memory.
func (p *plan) slotBytes() int64 { return p.stride * int64(p.Batch) }

// hostPlaces returns how many slots have host memory that this package allocates. In the run, the engine has its own.
// When the loader runs alone, the engine needs three slots: two transfers are in progress while the third slot is
// freed, as in the run.
func (p *plan) hostPlaces() int {
	if p.engine() {
		return min(p.places, 3)
	}
	return p.places
}

// check replaces zero values by defaults and rejects impossible values.
func (c Config) check() (*plan, error) {
	bad := func(key string, v any, want string) error {
		return errs.New(errs.Invalid, "configure training run", fmt.Sprintf("%s=%v", key, v),
			"is out of range; expected "+want)
	}
	if c.Workload == "" {
		c.Workload = "custom"
	}
	if c.Memory == "" {
		c.Memory = Pinned
	}
	if c.Pattern == "" {
		c.Pattern = Sequential
	}
	switch {
	case c.Warmup == 0:
		c.Warmup = 1
	case c.Warmup == -1:
		c.Warmup = 0
	}
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.Alone == 0 {
		c.Alone = 20
	}
	if c.Limits.CPUs == 0 {
		c.Limits.CPUs = runtime.NumCPU()
	}
	route, err := report.ParseRoute(c.Route)
	if err != nil {
		return nil, err
	}
	c.Route = string(route)
	switch {
	case c.Device == nil:
		return nil, errs.New(errs.Invalid, "configure training run", "device", "is missing")
	case len(c.Files) == 0:
		return nil, errs.New(errs.Invalid, "configure training run", "files",
			"there are none; expected at least one file of samples")
	case c.SampleBytes <= 0 || c.SampleBytes > math.MaxInt64/maxBatch/2:
		return nil, bad("sample_bytes", c.SampleBytes, "a positive number of bytes")
	case c.StepTime < 0 || c.StepTime > time.Hour:
		return nil, bad("step_time", c.StepTime, "0 to 1h")
	case c.Memory != Pageable && c.Memory != Pinned && c.Memory != Engine && c.Memory != Loader:
		return nil, bad("memory", c.Memory, "pageable, pinned, engine or loader")
	case c.Pattern != Sequential && c.Pattern != Random:
		return nil, bad("pattern", c.Pattern, "sequential or random")
	case (c.Memory == Engine || c.Memory == Loader) && c.Engine == nil:
		return nil, errs.New(errs.Invalid, "configure training run", "memory="+c.Memory,
			"needs a transfer engine, and none was given")
	}
	for _, x := range []struct {
		name               string
		value, least, most int
		expected           string
	}{
		{"batch", c.Batch, 1, maxBatch, "1 to 1048576 samples"},
		{"steps", c.Steps, 1, maxSteps, "1 to 1048576"},
		{"warmup", c.Warmup, 0, maxSteps, "-1 (none) to 1048576"},
		{"workers", c.Workers, 1, maxWorkers, "1 to 1024"},
		{"prefetch", c.Prefetch, 0, maxPrefetch, "0 to 1024 batches"},
		{"alone", c.Alone, 1, maxAlone, "1 to 10000 batches"},
	} {
		if x.value < x.least || x.value > x.most {
			return nil, bad(x.name, x.value, x.expected)
		}
	}
	p := &plan{Config: c, stride: Stride(c.SampleBytes), places: c.Prefetch + 1, route: route}
	if p.layout, err = newLayout(c.Files, c.SampleBytes, p.stride); err != nil {
		return nil, err
	}
	if n := p.layout.total; n < int64(c.Batch) {
		return nil, errs.New(errs.Invalid, "configure training run", fmt.Sprintf("batch=%d", c.Batch), fmt.Sprintf(
			"the data set holds %d samples of %d bytes in %d files, fewer than one batch", n, c.SampleBytes, len(c.Files))).
			WithFix("make the data set larger, or the batch smaller")
	}
	if err := p.checkRoute(); err != nil {
		return nil, err
	}
	return p, p.checkMemory()
}

// checkRoute rejects a direct run if its reads could not be direct.
func (p *plan) checkRoute() error {
	if p.route != report.RouteDirect {
		return nil
	}
	for _, f := range p.Files {
		if ok, why := f.Direct(); !ok {
			e := errs.New(errs.Unsupported, "read past the page cache", f.Path(), "the file system refuses it")
			if why != nil {
				e.Msg = why.Reason
			}
			return e.WithFix("use route buffered or auto, or keep the data set on ext4 or XFS")
		}
		if !p.engine() && p.stride%max(f.Align().Offset, 1) != 0 {
			return errs.New(errs.Invalid, "read past the page cache", f.Path(), fmt.Sprintf(
				"samples lie %d bytes apart and direct reads begin at multiples of %d", p.stride, f.Align().Offset)).
				WithFix("use larger samples, route buffered, or memory engine, which reads around them")
		}
	}
	return nil
}

// checkMemory compares the memory that the slots need with the available memory.
func (p *plan) checkMemory() error {
	each := p.slotBytes()
	need := each * int64(p.places)
	fix := fmt.Sprintf("lower prefetch (now %d) or the batch (now %d samples of %s)", p.Prefetch, p.Batch,
		units.Bytes(p.SampleBytes))
	info := p.Device.Info()
	if each > math.MaxInt64/int64(p.places) || info.TotalMemory > 0 && need > info.TotalMemory {
		return errs.New(errs.NoMemory, "place batches on", info.ID,
			fmt.Sprintf("prefetch %d needs %d batches of %s, %s in all; the device has %s",
				p.Prefetch, p.places, units.Bytes(each), units.Bytes(need), units.Bytes(info.TotalMemory))).WithFix(fix)
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return nil
	}
	need = each * int64(p.hostPlaces())
	// Pages are taken when they are first written to: too many end the process
	// instead of an allocation.
	if have := int64(si.Totalram) * int64(si.Unit) / 4 * 3; need > have {
		return errs.New(errs.NoMemory, "place batches in", "host memory",
			fmt.Sprintf("prefetch %d needs %d batches of %s, %s in all; three quarters of this machine's memory are %s",
				p.Prefetch, p.hostPlaces(), units.Bytes(each), units.Bytes(need), units.Bytes(have))).WithFix(fix)
	}
	return nil
}
