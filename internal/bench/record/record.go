// SPDX-License-Identifier: Apache-2.0

// Package record defines the results of benchmarks as plain data.
//
// Terminal output, result files and reports are all made from the types of package record. Each result also records
// how it was measured.
package record

import "time"

// Schema is the version of the JSON form of benchmark results. A new field in the JSON form does not change Schema.
// If the meaning of a field in the JSON form changes, Schema increases.
const Schema = 1

// File is the result of one benchmark command.
type File struct {
	Schema  int       `json:"schema"`
	Tool    string    `json:"tool"` // always "nebulaio bench"
	Version string    `json:"version"`
	Command []string  `json:"command"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"` // duration of the whole benchmark command in seconds
	Machine Machine   `json:"machine"`
	// Ceilings are the measured limits of the machine, with which the rates of the runs are compared. Ceilings is nil
	// if the machine's limits have not been measured.
	Ceilings *Ceilings `json:"ceilings,omitempty"`
	Runs     []Run     `json:"runs"`
	Sweeps   []Sweep   `json:"sweeps,omitempty"`
	Train    *Train    `json:"train,omitempty"`
	// Interrupted reports whether the command was stopped early. A File of an interrupted command contains the
	// results that were measured before the stop.
	Interrupted bool     `json:"interrupted,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

// Machine describes the machine on which a benchmark ran.
type Machine struct {
	Kernel  string    `json:"kernel"`
	Arch    string    `json:"arch"`
	CPU     string    `json:"cpu"` // model name
	CPUs    int       `json:"cpus"`
	Memory  int64     `json:"memory"`
	Device  Device    `json:"device"`
	Storage []Storage `json:"storage,omitempty"`
}

// Device is the source or destination of the bytes: host memory or a GPU.
type Device struct {
	ID     string `json:"id"`   // "host", "cuda:0"
	Kind   string `json:"kind"` // "host", "cuda"
	Model  string `json:"model"`
	Driver string `json:"driver,omitempty"`
	PCI    string `json:"pci,omitempty"`
	Memory int64  `json:"memory,omitempty"`
}

// Storage describes the storage below one of the benchmark's directories or files.
type Storage struct {
	Path     string `json:"path"`
	FS       string `json:"file_system"`
	Source   string `json:"source,omitempty"` // "/dev/nvme0n1p1", "server:/export"
	Block    string `json:"block,omitempty"`  // "nvme0n1", "md0", "vda"
	Model    string `json:"model,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Direct   bool   `json:"direct_possible"`
}

// Settings are the settings that were requested for a run. A setting with a zero value does not apply to the run.
type Settings struct {
	Op string `json:"op"` // "read", "write", "copy"
	// route between storage and memory: "direct", "buffered", or "auto" (the program chooses); "" for copies
	Route   string `json:"route"`
	Memory  string `json:"memory"`  // kind of memory: "host", "pageable", "pinned", "engine" or "cufile"
	Pattern string `json:"pattern"` // "sequential", "random"

	BlockSize  int64  `json:"block_size"`
	Workers    int    `json:"workers"`
	QueueDepth int    `json:"queue_depth"` // number of requests in flight per worker
	IO         string `json:"io"`          // interface of the reads: "pread", "uring", "engine" or "cufile"

	// Pages is the page size of the host buffers: "huge" (requested, but the kernel may refuse), "small", or "" if
	// the benchmark did not allocate the buffers.
	Pages string `json:"pages,omitempty"`

	Paths    []string `json:"paths"`
	Files    int      `json:"files"`
	FileSize int64    `json:"file_size"`
	Cache    string   `json:"cache"` // "cold", "warm", "as-is"
	Sync     bool     `json:"sync,omitempty"`
	Seed     uint64   `json:"seed"`
	Prefetch int      `json:"prefetch,omitempty"`
	// Limit is the condition that ended the run without an error: "bytes", "time" or "stable".
	Limit string `json:"limit"`
}

// Run is the result of one measured run of a benchmark.
type Run struct {
	Name     string   `json:"name"`
	Settings Settings `json:"settings"`

	Bytes   int64   `json:"bytes"`
	Ops     int64   `json:"ops"`
	Seconds float64 `json:"seconds"`
	GBps    float64 `json:"gbps"` // rate as an application sees it: Bytes over Seconds, in 10^9 bytes per second
	IOPS    float64 `json:"iops"`

	// First is the progress at the moment when the first worker finished. The rate up to First is too favourable,
	// because it leaves out the time in which only slower workers were busy. Last is the progress when all workers
	// had finished.
	First *Done `json:"first_done,omitempty"`
	Last  Done  `json:"last_done"`

	// Latency is the time from the request of a block until the block's bytes are in place. Latency is nil if the run
	// does not request single blocks.
	Latency *Latency `json:"latency,omitempty"`
	Series  []Point  `json:"series,omitempty"`
	Passes  []Pass   `json:"passes,omitempty"`
	CPU     CPU      `json:"cpu"`

	Routes  []Route `json:"routes"`            // number of bytes that took each route
	Proof   string  `json:"proof"`             // how the program determined the routes of the bytes
	Storage *Disk   `json:"storage,omitempty"` // bytes that the block devices counted during the run
	Cache   *Cache  `json:"cache,omitempty"`
	Share   *Share  `json:"share,omitempty"`    // comparison of GBps with a measured limit; nil if no limit is known
	Verify  *Verify `json:"verified,omitempty"` // result of the verification; nil if none was requested
	Stable  *Stable `json:"stable,omitempty"`   // stability of the rate; nil unless the run was to end at a stable rate

	Interrupted bool      `json:"interrupted,omitempty"`
	Refusals    []Refusal `json:"refusals,omitempty"`
	Notes       []string  `json:"notes,omitempty"`
	// Engine is the unchanged report of the transfer engine about the last pass of the run.
	Engine any `json:"engine,omitempty"`
}

// Done is the progress of a run at one moment: bytes and seconds.
type Done struct {
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	GBps    float64 `json:"gbps"`
}

// Pass is the result of one pass over the data, in a run with several passes.
type Pass struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	GBps    float64 `json:"gbps"`
}

// Latency is a distribution of latencies, in seconds.
type Latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
	// Buckets is the histogram of the latencies. Each bucket counts the requests that took at most UpTo seconds, but
	// longer than the bucket before.
	Buckets []Bucket `json:"buckets,omitempty"`
}

// Bucket is one column of a latency histogram.
type Bucket struct {
	UpTo  float64 `json:"up_to"` // seconds
	Count int64   `json:"count"`
}

// Point is the rate of a run in one interval, which ended At seconds after the start of the run.
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

// Route is the number of bytes that took one route: "page_cache", "buffered", "direct", "buffered_unproven",
// "direct_unproven", "cufile_p2p", "cufile_nvfs", "cufile_compat", "memory" or "unknown".
type Route struct {
	Route string `json:"route"`
	Bytes int64  `json:"bytes"`
}

// Disk has the bytes that the block devices read and wrote, as the kernel counts them for all processes together. The
// byte counts in Disk are a cross-check of the routes in Run.Routes.
type Disk struct {
	Devices []string `json:"devices"`
	Read    int64    `json:"read_bytes"`
	Written int64    `json:"written_bytes"`
}

// Cache describes how much of a run's rate came from the page cache.
type Cache struct {
	Dataset int64 `json:"dataset"` // size of all files of the benchmark in bytes
	Memory  int64 `json:"memory"`  // memory of the machine in bytes
	// Before and After are the bytes of the files that were in the page cache before and after the run. -1 means that
	// the kernel did not tell.
	Before int64  `json:"before"`
	After  int64  `json:"after"`
	Probe  string `json:"probe"` // how the page cache was queried: "cachestat" or "mincore"
	// Verdict names the source of the measured rate: "storage", "memory" (the page cache) or "both".
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
}

// Share compares the rate of a run with the lowest measured limit on the route of its bytes, such as that of storage.
type Share struct {
	Of      string  `json:"of"` // ID of the limit, such as "storage_read"
	Name    string  `json:"name"`
	Ceiling float64 `json:"ceiling_gbps"`
	Ratio   float64 `json:"ratio"`
	// Spread is the difference between the rounds that measured the limit, relative to their median: (max - min) /
	// median. A Ratio that exceeds 1 by less than Spread is within noise.
	Spread float64 `json:"spread,omitempty"`
}

// Verify is the result of comparing the transferred bytes with the expected content. Verify compares bytes that were
// read back from the destination of the run.
type Verify struct {
	Bytes      int64  `json:"bytes"`
	Mismatches int64  `json:"mismatched_blocks"`
	First      string `json:"first,omitempty"` // file and offset of the first mismatch
	// Where is the source of the compared bytes: "host memory", "device memory, copied back" or "storage, read back".
	Where string `json:"where"`
}

// Stable reports whether the rate of a run became stable.
type Stable struct {
	Reached bool    `json:"reached"`
	Window  int     `json:"window"` // number of intervals that were compared
	Spread  float64 `json:"spread"` // spread of the intervals' rates: (max - min) / mean
	Wanted  float64 `json:"wanted"`
}

// Refusal is a requested or faster route that was not available, with the reason and a fix.
type Refusal struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty"`
}

// Sweep is a series of runs that vary one setting in order to answer a question together.
type Sweep struct {
	ID       string `json:"id"` // varied setting: "pattern", "block-size", "workers", "memory" or "prefetch"
	Question string `json:"question"`
	Answer   string `json:"answer"`
	Axis     string `json:"axis"` // "read size", "workers"
	Unit     string `json:"unit"` // unit of the points' X values: "bytes" or "count"; "" if X values are names
	// Points lists the runs of the sweep in the order of display. Points with the same Series form one line of a
	// plot.
	Points []SweepPoint `json:"points"`
}

// SweepPoint is the result of one run of a sweep, as a point in a plot.
type SweepPoint struct {
	Series string  `json:"series"`
	X      float64 `json:"x"`
	Label  string  `json:"label"`
	Run    int     `json:"run"` // index into File.Runs
	// AU is the accelerator utilisation of a run that simulates training, and 0 for other runs.
	AU float64 `json:"au,omitempty"`
}
