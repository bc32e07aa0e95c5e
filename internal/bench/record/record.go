// SPDX-License-Identifier: Apache-2.0

// Package record defines the results of benchmarks as plain data.
//
// Terminal output, files and reports use the same data. Each number comes with how it
// was measured.
package record

import "time"

// Schema is the version of the JSON form. A field may be added within one
// version; a change of meaning makes a new one.
const Schema = 1

// File is what one command measured.
type File struct {
	Schema  int       `json:"schema"`
	Tool    string    `json:"tool"` // always "nebulaio bench"
	Version string    `json:"version"`
	Command []string  `json:"command"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"` // of the whole command
	Machine Machine   `json:"machine"`
	// Ceilings are the limits that shares were computed with, nil when the
	// machine's limits have not been measured.
	Ceilings *Ceilings `json:"ceilings,omitempty"`
	Runs     []Run     `json:"runs"`
	Sweeps   []Sweep   `json:"sweeps,omitempty"`
	Train    *Train    `json:"train,omitempty"`
	// Interrupted reports whether the command was stopped and this is what it had.
	Interrupted bool     `json:"interrupted,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

// Machine is where it was measured.
type Machine struct {
	Kernel  string    `json:"kernel"`
	Arch    string    `json:"arch"`
	CPU     string    `json:"cpu"` // model name
	CPUs    int       `json:"cpus"`
	Memory  int64     `json:"memory"`
	Device  Device    `json:"device"`
	Storage []Storage `json:"storage,omitempty"`
}

// Device is where bytes go to or come from.
type Device struct {
	ID     string `json:"id"`   // "host", "cuda:0"
	Kind   string `json:"kind"` // "host", "cuda"
	Model  string `json:"model"`
	Driver string `json:"driver,omitempty"`
	PCI    string `json:"pci,omitempty"`
	Memory int64  `json:"memory,omitempty"`
}

// Storage is what lies below one of the directories or files.
type Storage struct {
	Path     string `json:"path"`
	FS       string `json:"file_system"`
	Source   string `json:"source,omitempty"` // "/dev/nvme0n1p1", "server:/export"
	Block    string `json:"block,omitempty"`  // "nvme0n1", "md0", "vda"
	Model    string `json:"model,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Direct   bool   `json:"direct_possible"`
}

// Settings are what a run was asked to do. Zero means not applicable.
type Settings struct {
	Op      string `json:"op"`      // "read", "write", "copy"
	Route   string `json:"route"`   // between storage and memory: "direct", "buffered", "auto" (ours); "" for copies
	Memory  string `json:"memory"`  // "host", "pageable", "pinned", "engine", "cufile"
	Pattern string `json:"pattern"` // "sequential", "random"

	BlockSize  int64  `json:"block_size"`
	Workers    int    `json:"workers"`
	QueueDepth int    `json:"queue_depth"` // requests in flight per worker
	IO         string `json:"io"`          // "pread", "uring", "engine", "cufile"

	// Pages back the host buffers: "huge" (asked for; the kernel may refuse) or
	// "small"; "" where they are not ours.
	Pages string `json:"pages,omitempty"`

	Paths    []string `json:"paths"`
	Files    int      `json:"files"`
	FileSize int64    `json:"file_size"`
	Cache    string   `json:"cache"` // "cold", "warm", "as-is"
	Sync     bool     `json:"sync,omitempty"`
	Seed     uint64   `json:"seed"`
	Prefetch int      `json:"prefetch,omitempty"`
	// Limit is why the run ended when nothing went wrong: "bytes", "time",
	// "stable".
	Limit string `json:"limit"`
}

// Run is one measurement.
type Run struct {
	Name     string   `json:"name"`
	Settings Settings `json:"settings"`

	Bytes   int64   `json:"bytes"`
	Ops     int64   `json:"ops"`
	Seconds float64 `json:"seconds"`
	GBps    float64 `json:"gbps"` // decimal, bytes over seconds: what an application sees
	IOPS    float64 `json:"iops"`

	// First is the state when the first worker had done its part, the
	// flattering number; Last when all had, which is Bytes over Seconds.
	First *Done `json:"first_done,omitempty"`
	Last  Done  `json:"last_done"`

	// Latency is of one block, from the request until its bytes were in place;
	// nil if blocks are not requested one by one.
	Latency *Latency `json:"latency,omitempty"`
	Series  []Point  `json:"series,omitempty"`
	Passes  []Pass   `json:"passes,omitempty"`
	CPU     CPU      `json:"cpu"`

	Routes  []Route `json:"routes"`             // as taken
	Proof   string  `json:"proof"`              // how the routes are known
	Storage *Disk   `json:"storage,omitempty"`  // what the block devices counted meanwhile
	Cache   *Cache  `json:"cache,omitempty"`    //
	Share   *Share  `json:"share,omitempty"`    // of the ceiling that binds
	Verify  *Verify `json:"verified,omitempty"` // nil when not asked for
	Stable  *Stable `json:"stable,omitempty"`   // nil when not asked for

	Interrupted bool      `json:"interrupted,omitempty"`
	Refusals    []Refusal `json:"refusals,omitempty"`
	Notes       []string  `json:"notes,omitempty"`
	// Engine is the transfer engine's own report of the last pass, as it is.
	Engine any `json:"engine,omitempty"`
}

// Done is a point in a run.
type Done struct {
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	GBps    float64 `json:"gbps"`
}

// Pass is one time over the data, where a run has several.
type Pass struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	GBps    float64 `json:"gbps"`
}

// Latency is in seconds.
type Latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
	// Buckets is the distribution: how many took at most so long and longer
	// than the bucket before.
	Buckets []Bucket `json:"buckets,omitempty"`
}

// Bucket is one column of a histogram.
type Bucket struct {
	UpTo  float64 `json:"up_to"` // seconds
	Count int64   `json:"count"`
}

// Point is the rate of one interval that ended At seconds after the start.
type Point struct {
	At   float64 `json:"at"`
	GBps float64 `json:"gbps"`
}

// CPU is the processor time of this process during a run.
type CPU struct {
	User   float64 `json:"user_seconds"`
	System float64 `json:"system_seconds"`
	PerGiB float64 `json:"seconds_per_gib"`
}

// Route is bytes by the way they took: "page_cache", "buffered", "direct",
// "buffered_unproven", "direct_unproven", "cufile_p2p", "cufile_nvfs", "cufile_compat", "memory", "unknown".
type Route struct {
	Route string `json:"route"`
	Bytes int64  `json:"bytes"`
}

// Disk is what the kernel counted for the block devices below, all processes
// together: a cross-check of the routes.
type Disk struct {
	Devices []string `json:"devices"`
	Read    int64    `json:"read_bytes"`
	Written int64    `json:"written_bytes"`
}

// Cache is how honest a number can be about storage.
type Cache struct {
	Dataset int64 `json:"dataset"` // bytes of the files
	Memory  int64 `json:"memory"`  // of the machine
	// Before and After are the bytes of the files in the page cache, -1 where
	// the kernel does not tell.
	Before int64  `json:"before"`
	After  int64  `json:"after"`
	Probe  string `json:"probe"` // how it was asked: "cachestat", "mincore"
	// Verdict says in words what was measured: "storage", "memory", "both".
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
}

// Share is a number against the limit that binds.
type Share struct {
	Of      string  `json:"of"` // id of the ceiling
	Name    string  `json:"name"`
	Ceiling float64 `json:"ceiling_gbps"`
	Ratio   float64 `json:"ratio"`
	// Spread is how far the rounds of the limit lay apart: a share above 1 by
	// less than that is no news.
	Spread float64 `json:"spread,omitempty"`
}

// Verify is what a comparison of contents gave. The bytes compared are those
// that were read back from where the run had put them.
type Verify struct {
	Bytes      int64  `json:"bytes"`
	Mismatches int64  `json:"mismatched_blocks"`
	First      string `json:"first,omitempty"` // file and offset of the first one
	Where      string `json:"where"`           // "host memory", "device memory, copied back", "storage, read back"
}

// Stable reports whether the rate settled.
type Stable struct {
	Reached bool    `json:"reached"`
	Window  int     `json:"window"` // intervals that were compared
	Spread  float64 `json:"spread"` // of their rates: (max - min) / mean
	Wanted  float64 `json:"wanted"`
}

// Refusal is a faster or wanted way that was not open, why, and what to do.
type Refusal struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty"`
}

// Sweep is one question that several runs answer together.
type Sweep struct {
	ID       string `json:"id"` // "pattern", "block-size", "workers", "memory", "prefetch"
	Question string `json:"question"`
	Answer   string `json:"answer"`
	Axis     string `json:"axis"` // "read size", "workers"
	Unit     string `json:"unit"` // of X: "bytes", "count", "" for names
	// Points are in the order to show; those of one Series belong together.
	Points []SweepPoint `json:"points"`
}

// SweepPoint is one run's place in a sweep.
type SweepPoint struct {
	Series string  `json:"series"`
	X      float64 `json:"x"`
	Label  string  `json:"label"`
	Run    int     `json:"run"` // index into File.Runs
	// AU is accelerator utilisation, where the point is a training-shaped run.
	AU float64 `json:"au,omitempty"`
}
