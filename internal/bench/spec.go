// SPDX-License-Identifier: Apache-2.0

// Package bench measures how fast bytes move between storage, host memory and device memory, block by block and with
// the transfer engine.
//
// Each result contains the route of the bytes, the bytes served from the page cache, and the measured rate compared
// with the highest rate of the machine.
package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Op is the direction of a run: from storage or to storage.
type Op string

// Directions.
const (
	Read  Op = "read"  // from storage
	Write Op = "write" // to storage
)

// Memory selects the memory that a run reads into or writes from, and how the bytes get there.
type Memory string

const (
	// Host means that bytes move only between storage and host memory.
	Host Memory = "host"
	// Pageable means that each block is copied between ordinary (not pinned) host memory and the device.
	Pageable Memory = "pageable"
	// Pinned means that each block is copied between pinned host memory and the device.
	Pinned Memory = "pinned"
	// Engine means that the transfer engine moves the whole data set.
	Engine Memory = "engine"
	// CuFile means that NVIDIA's cuFile moves each block.
	CuFile Memory = "cufile"
)

// Route is the way between storage and host memory.
type Route string

// Routes.
const (
	Auto     Route = "auto"     // Direct if the files allow it; the transfer engine chooses if Memory is Engine
	Direct   Route = "direct"   // reads and writes bypass the page cache (O_DIRECT)
	Buffered Route = "buffered" // reads and writes go through the page cache
)

// Pattern is the order in which a run visits the blocks of the files.
type Pattern string

// Patterns. Random visits every block once per pass, in an order that the seed determines.
const (
	Sequential Pattern = "sequential"
	Random     Pattern = "random"
)

// Cache is the state of the page cache at the start of each pass.
type Cache string

// Cache states. With Cold, the kernel may still keep some of the files' pages in the page cache.
const (
	Cold Cache = "cold"  // the files' pages are dropped from the page cache
	Warm Cache = "warm"  // the files are read once before the pass
	AsIs Cache = "as-is" // the page cache is left as it is
)

// IO is the system interface that issues the reads.
type IO string

// Kinds of IO. With Pread, each request in flight is a pread(2) call in its own thread. With Uring, each worker has
// its own io_uring.
const (
	Pread IO = "pread"
	Uring IO = "uring"
)

// Spec describes one benchmark run. A field of Spec that is zero selects its default.
type Spec struct {
	Op         Op
	Memory     Memory
	Route      Route
	Pattern    Pattern
	Cache      Cache
	IO         IO
	BlockSize  int64
	Workers    int
	QueueDepth int
	Seed       uint64
	Verify     bool
	// SmallPages means that buffers use ordinary pages, as in most programs, instead of huge pages. Huge pages, the
	// default for buffers, save the kernel work on every direct read.
	SmallPages bool
	// NoSync skips the sync after a write, so written data may stay in the page cache or in the disk's cache.
	NoSync bool
	// Passes is the number of passes over the data, and Time the longest duration of the run. A run ends after Passes
	// passes or after Time, whichever comes first. If only Time is set, passes repeat until the time is over.
	Passes int
	Time   time.Duration
	// Stable, if positive, ends the run as soon as the rates of the last intervals differ by at most this share: (max
	// - min) / mean. With Stable, Time is the longest duration of the run, one minute by default.
	Stable float64
}

// Bounds of a spec.
const (
	minBlock   = 512
	maxBlock   = 1 << 30
	maxWorkers = 1024
	maxDepth   = 1024
	maxLanes   = 4096
	maxMemory  = 64 << 30
)

// withDefaults replaces zero values by their defaults.
func (s Spec) withDefaults() Spec {
	def(&s.Op, Read)
	def(&s.Memory, Host)
	def(&s.Route, Auto)
	def(&s.Pattern, Sequential)
	def(&s.IO, Pread)
	def(&s.BlockSize, units.MiB)
	def(&s.Workers, 4)
	def(&s.QueueDepth, 1)
	def(&s.Cache, Cold)
	// Before the passes: one pass is seldom long enough to become stable.
	if s.Stable > 0 && s.Time == 0 {
		s.Time = time.Minute
	}
	if s.Passes == 0 && s.Time == 0 {
		s.Passes = 1
	}
	return s
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Check returns an error if the run that the Spec describes is impossible. The error of Check names the impossible
// value and the possible values.
func (s Spec) Check() error {
	bad := func(name, value, want string) *errs.Error {
		return errs.New(errs.Invalid, "benchmark", name+"="+value, "cannot be run; expected "+want)
	}
	s = s.withDefaults()
	lanes := int64(s.Workers) * int64(s.QueueDepth)
	switch {
	case s.BlockSize < minBlock || s.BlockSize > maxBlock:
		return bad("block-size", strconv.FormatInt(s.BlockSize, 10), "512 bytes to 1 GiB")
	case s.Workers < 1 || s.Workers > maxWorkers:
		return bad("workers", strconv.Itoa(s.Workers), "1 to "+strconv.Itoa(maxWorkers))
	case s.QueueDepth < 1 || s.QueueDepth > maxDepth:
		return bad("queue-depth", strconv.Itoa(s.QueueDepth), "1 to "+strconv.Itoa(maxDepth))
	case lanes > maxLanes:
		return bad("workers", fmt.Sprintf("%d with queue-depth=%d", s.Workers, s.QueueDepth),
			fmt.Sprintf("at most %d requests in flight in all", maxLanes))
	case lanes*s.BlockSize > maxMemory:
		return bad("block-size", fmt.Sprintf("%d with %d requests in flight", s.BlockSize, lanes),
			"at most 64 GiB of buffers in all")
	case s.Time < 0:
		return bad("time", s.Time.String(), "a positive duration")
	case s.Passes < 0:
		return bad("passes", strconv.Itoa(s.Passes), "1 or more")
	case s.Stable < 0 || s.Stable >= 1:
		return bad("until-stable", fmt.Sprint(s.Stable), "a share between 0 and 1, such as 0.05")
	case s.Route != Buffered && s.Memory != Engine && s.BlockSize%4096 != 0:
		return bad("block-size", strconv.FormatInt(s.BlockSize, 10),
			"a multiple of 4096 for direct I/O").WithFix("give --route buffered for smaller or odd blocks")
	case s.Op == Write && s.Memory == Engine:
		return errs.New(errs.Unsupported, "benchmark", "write from engine",
			"is not possible: the engine saves whole files, not blocks in place").
			WithFix("give --from pinned, or measure saves with: nebulaio save SOURCE OUT --ceiling")
	case s.IO == Uring && (s.Op == Write || s.Memory == Engine || s.Memory == CuFile):
		return errs.New(errs.Unsupported, "benchmark", "io=uring",
			"reads blocks into host memory and nothing else").WithFix("give --io pread")
	case s.Memory == CuFile && s.Op == Write && s.Verify:
		return errs.New(errs.Unsupported, "benchmark", "verify",
			"cannot be combined with writes by cuFile: device memory holds the same content for every block").WithFix(
			"verify with --from pinned")
	case s.Memory == CuFile && s.Op == Write && s.Route == Buffered:
		return errs.New(errs.Unsupported, "benchmark", "route=buffered",
			"is not a route of writes by cuFile here; expected direct").WithFix("give --route direct")
	}
	return nil
}

// Name returns a description of the run in one line.
func (s Spec) Name() string {
	s = s.withDefaults()
	near := map[Memory]string{Host: "host memory", Pageable: "device, pageable", Pinned: "device, pinned",
		Engine: "device, engine", CuFile: "device, cuFile"}[s.Memory]
	size := ", " + strings.Replace(units.Bytes(s.BlockSize), ".00", "", 1)
	if s.Memory == Engine && s.Pattern == Sequential {
		size = "" // the engine cuts as it likes
	}
	if s.Op == Write {
		return fmt.Sprintf("%s to storage, %s%s", near, s.Pattern, size)
	}
	from := "storage"
	if s.Cache == Warm && s.Route != Direct {
		from = "page cache"
	}
	return fmt.Sprintf("%s to %s, %s%s", from, near, s.Pattern, size)
}
