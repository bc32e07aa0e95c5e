// SPDX-License-Identifier: Apache-2.0

// Package report defines the report of a transfer: the routes of its bytes, the time of each stage, and why a faster
// route was refused.
package report

import "fmt"

// Report describes a transfer. A report is plain data and has the same JSON form in Go, C, Python and the command.
type Report struct {
	// Direction is "load" (from files to a device) or "save" (from devices to a file).
	Direction string `json:"direction"`

	Device      Device       `json:"device"`
	Asked       Asked        `json:"asked"`
	Bytes       int64        `json:"bytes"`
	*ReadTotals              // nil for a save
	Seconds     float64      `json:"seconds"`
	GBps        float64      `json:"gbps"`
	Routes      []RouteShare `json:"routes"`
	Stages      []Stage      `json:"stages"`
	// Limiting is the name of the stage that limited the rate of the transfer.
	Limiting string        `json:"limiting_stage"`
	Engine   Engine        `json:"engine"`
	Peers    []Peer        `json:"peers,omitempty"` // further devices that received copies of the loaded bytes
	Files    []File        `json:"files"`
	Refusals []Refusal     `json:"refusals"`
	Notes    []string      `json:"notes"`
	Verify   *Verification `json:"verify,omitempty"`  // counts of verified blocks; nil if nothing was verified
	CuFile   *CuFile       `json:"cufile,omitempty"`  // counts of libcufile; nil if libcufile took no part
	Network  *Network      `json:"network,omitempty"` // counts of network requests; nil if no byte crossed a network
	// Served tells how a server got the bytes of objects that another S3 server keeps. Served is nil for other bytes.
	Served *Served `json:"served,omitempty"`
	Error  string  `json:"error,omitempty"`

	Save *Save `json:"save,omitempty"` // results of a save; nil for a load
}

// DeviceKind is the kind of a device: host memory or an NVIDIA GPU.
type DeviceKind string

const (
	// HostDevice is the kind of the device "host": ordinary memory of this machine, without a GPU.
	HostDevice DeviceKind = "host"
	// CUDADevice is the kind of an NVIDIA GPU.
	CUDADevice DeviceKind = "cuda"
)

// Device names the device that the bytes went to or came from.
type Device struct {
	ID    string     `json:"id"`
	Kind  DeviceKind `json:"kind"`
	Model string     `json:"model"`
}

// Asked holds the route and the cache policy that the caller asked for.
type Asked struct {
	Route Route       `json:"route"`
	Cache CachePolicy `json:"cache"`
}

// ReadTotals compares the number of bytes that were read with the number of bytes that the caller wanted. A load
// reads more bytes than wanted if a read spans a gap, if the ends of a direct read are not aligned, or if whole
// blocks are verified.
type ReadTotals struct {
	Wanted int64 `json:"wanted_bytes"` // number of bytes delivered to the device
	// Read counts the bytes of all read calls, without the kernel's read-ahead.
	Read int64 `json:"read_bytes"`
	// Amplification is Read divided by Wanted, or 0 if Wanted is 0.
	Amplification float64 `json:"read_amplification"`
}

// RouteShare counts the bytes of a transfer that took one route.
type RouteShare struct {
	Route  RouteTaken `json:"route"`
	Bytes  int64      `json:"bytes"`
	Chunks int64      `json:"chunks"`
	// Span is the time in seconds from the start of the route's first read to the end of its last read. GBps is Bytes
	// divided by Span.
	Span float64 `json:"span_seconds"`
	GBps float64 `json:"gbps"`
}

// Stage is the time of one stage of a transfer. Busy is the sum of the times of all workers, so Busy exceeds the
// elapsed time if several workers run at once.
type Stage struct {
	Stage string  `json:"stage"`
	Busy  float64 `json:"busy_seconds"`
	Span  float64 `json:"span_seconds,omitempty"`
	Bytes int64   `json:"bytes,omitempty"`
	GBps  float64 `json:"gbps,omitempty"`
}

// Engine holds the configuration of the engine during the transfer.
type Engine struct {
	Workers      int    `json:"workers"`
	QueueDepth   int    `json:"queue_depth"`
	ChunkSize    int64  `json:"chunk_size"` // size in bytes of one copy from the page cache
	BlockSize    int64  `json:"block_size"` // size in bytes of one read from storage
	IO           string `json:"io"`         // system calls of O_DIRECT reads: "uring", "pread" or "unused"
	StagingSize  int64  `json:"staging_size"`
	StagingUsed  bool   `json:"staging_used"` // true if bytes went through staging memory
	HugePages    int64  `json:"staging_huge_pages"`
	StagingState string `json:"staging"` // state of staging: "pinned", "not pinned", "unused" or "host memory"
	// Node is the NUMA node of the engine's threads and staging memory. Node is nil if the engine is not bound to a
	// node.
	Node *int `json:"numa_node,omitempty"`
}

// File describes one file of a transfer.
type File struct {
	Path   string      `json:"path"`
	FS     string      `json:"file_system"`
	Size   int64       `json:"size"`
	Cache  CachePolicy `json:"cache"` // cache policy in force for the file
	Probe  string      `json:"residency_probe"`
	Direct bool        `json:"direct_possible"`
	// Via is "door" or "http" if the file is an object of a server, and empty for a local file.
	Via string `json:"via,omitempty"`
	// Served is like Report.Served, for this file.
	Served *Served `json:"served,omitempty"`
	// Unproven is the reason why it is not proven that bytes of this file came from storage. Unproven is empty if it
	// is proven that the bytes came from storage.
	Unproven string `json:"unproven,omitempty"`
	// Left counts bytes that a load with CacheBypass brought into the page cache and could not drop.
	Left int64 `json:"cache_left_bytes,omitempty"`
	// Shared says which bytes this load and other loads on the host read for each other. Shared is nil if no other load
	// was seen.
	Shared *Sharing `json:"shared,omitempty"`
}

// Refusal names a faster route or method that was not available, the reason and the fix.
type Refusal struct {
	What   string `json:"what"` // what was refused, such as "direct", "cufile", "pinned staging" or "residency"
	On     string `json:"on"`
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty"`
}

// NoteUnproven adds a note to the report for each file whose field Unproven is not empty, if bytes took an unproven
// route.
func (r *Report) NoteUnproven() {
	for _, route := range r.Routes {
		if route.Route != RouteTakenDirectUnproven && route.Route != RouteTakenBufferedUnproven {
			continue
		}
		for _, f := range r.Files {
			if f.Unproven != "" {
				r.Notes = append(r.Notes, fmt.Sprintf("%s: that its bytes came from storage, or went there, past the "+
					"page cache cannot be proven: %s", f.Path, f.Unproven))
			}
		}
		return
	}
}
