// SPDX-License-Identifier: Apache-2.0

// Package train simulates the loads of a training loop into real device memory.
//
// Batches of samples are read, copied and consumed by steps of known length. The
// result tells what the accelerator waited for.
//
// The data set. A file holds samples back to back; samples of 4096 bytes and
// more begin at multiples of 4096 (see Stride), so that each can be read past
// the page cache, and smaller ones follow each other without a gap. A sample
// never spans two files; what is left at a file's end is not used.
//
// The flow. Workers read the samples of a batch into host memory; a copier
// queues the batch on a copy queue; a consumer queues the step on a compute
// queue behind the batch's mark; a reaper waits for the step and gives the
// batch's place back. There are Prefetch+1 places, each of host and of device
// memory, so that at most Prefetch batches are ahead of the step.
//
// The figures. The loader runs alone in rounds before and after the run (storage
// to host memory, the same workers, no copy and no step). The copy runs alone
// before the run (the same kind of memory). Each round leaves out its first
// batches, as the run does. The rounds' spread says which differences are noise.
// The loader alone reads samples that the run does not reach, where the data set
// has such. With Drop the page cache is dropped before each round.
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

// Kinds of host memory that batches go through.
const (
	// Pageable is ordinary memory, as a DataLoader without pin_memory has it.
	Pageable = "pageable"
	// Pinned is memory that the device's copy engines read by themselves.
	Pinned = "pinned"
	// Engine leaves reading and copying to the transfer engine.
	Engine = "engine"
)

// Orders of the samples of an epoch.
const (
	Sequential = "sequential"
	Random     = "random"
)

// Config is a training-shaped run.
type Config struct {
	Device device.Device    // where batches go to and steps run
	Engine *transfer.Engine // needed with Memory Engine only
	// Host, with Memory Engine, is host memory as a device: the loader's own
	// phase lets the engine read there. Nil: Workers read instead, and the
	// result's notes say so.
	Host  device.Device
	Files []*vfs.File // the data set; the caller opens and closes it

	Workload    string  // a name for the result; "" is "custom"
	WantedAU    float64 // 0 when there is none
	SampleBytes int64
	Batch       int // samples
	StepTime    time.Duration
	Steps       int // measured ones
	Warmup      int // steps before them that are left out; 0 is 1, -1 none

	Workers  int    // threads that read; 0 is 4
	Prefetch int    // batches ahead of the step; 0 loads only while no step runs
	Memory   string // Pageable, Pinned, Engine; "" is Pinned
	Route    string // "direct", "buffered", "auto"; "" is "auto"
	Pattern  string // Sequential, Random; "" is Sequential
	Seed     uint64 // of Random
	// Drop drops the files from the page cache before each phase and between
	// epochs, so that every epoch comes from storage. Between epochs the loader
	// does it, and what that takes is part of the run.
	Drop bool

	// Alone bounds a round of the loader alone, and the copy alone, in batches;
	// 0 is 20. The rounds also end after three seconds.
	Alone int
	// Limits are what the diagnosis may know of the machine.
	Limits Limits
	// Progress, if set, is told how far each phase ("loader alone", "copy
	// alone", "train") has come, in batches. One goroutine calls it at a time.
	Progress func(phase string, done, total int)
}

// Bounds of a Config: what a wrong number could otherwise ask for.
const (
	maxWorkers  = 1024
	maxPrefetch = 1024
	maxBatch    = 1 << 20
	maxSteps    = 1 << 20
	maxAlone    = 10000
	directUnit  = 4096
	aloneTime   = 3 * time.Second
)

// Stride is the distance between two samples of a file: a multiple of 4096 for
// samples of at least that size, else the size itself.
func Stride(sampleBytes int64) int64 {
	if sampleBytes < directUnit {
		return sampleBytes
	}
	return (sampleBytes + directUnit - 1) &^ (directUnit - 1)
}

// plan is a Config with its zero values chosen and its numbers proved.
type plan struct {
	Config
	stride int64 // between samples, in files and in memory
	places int
	layout layout
	route  report.Route
}

// slotBytes is one place's memory, on the host and on the device each.
func (p *plan) slotBytes() int64 { return p.stride * int64(p.Batch) }

// hostPlaces is how many places have host memory of ours. The engine has its
// own in the run. Alone it needs three, so that two transfers are always under
// way while the third place is given back, as in the run.
func (p *plan) hostPlaces() int {
	if p.Memory == Engine {
		return min(p.places, 3)
	}
	return p.places
}

// check fills in what was left out and refuses what cannot work.
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
	case c.Memory != Pageable && c.Memory != Pinned && c.Memory != Engine:
		return nil, bad("memory", c.Memory, "pageable, pinned or engine")
	case c.Pattern != Sequential && c.Pattern != Random:
		return nil, bad("pattern", c.Pattern, "sequential or random")
	case c.Memory == Engine && c.Engine == nil:
		return nil, errs.New(errs.Invalid, "configure training run", "memory=engine",
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

// checkRoute refuses a direct run whose reads could not be direct.
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
		if p.Memory != Engine && p.stride%max(f.Align().Offset, 1) != 0 {
			return errs.New(errs.Invalid, "read past the page cache", f.Path(), fmt.Sprintf(
				"samples lie %d bytes apart and direct reads begin at multiples of %d", p.stride, f.Align().Offset)).
				WithFix("use larger samples, route buffered, or memory engine, which reads around them")
		}
	}
	return nil
}

// checkMemory compares what the places take with what there is.
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
