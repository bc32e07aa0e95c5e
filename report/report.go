// SPDX-License-Identifier: Apache-2.0

// Package report describes how a transfer went: the routes its bytes took, the time of each stage, and why a faster
// route was refused.
package report

import "fmt"

// Report says how a transfer went. It is plain data and has the same JSON form in every language.
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
	// Limiting names the stage that set the pace.
	Limiting string        `json:"limiting_stage"`
	Engine   Engine        `json:"engine"`
	Peers    []Peer        `json:"peers,omitempty"` // further devices that received the same bytes
	Files    []File        `json:"files"`
	Refusals []Refusal     `json:"refusals"`
	Notes    []string      `json:"notes"`
	Verify   *Verification `json:"verify,omitempty"`  // nil if nothing was verified
	CuFile   *CuFile       `json:"cufile,omitempty"`  // nil if libcufile took no part
	Network  *Network      `json:"network,omitempty"` // nil if no byte crossed a network
	Error    string        `json:"error,omitempty"`

	Save *Save `json:"save,omitempty"` // nil for a load
}

// DeviceKind is a family of devices.
type DeviceKind string

const (
	// HostDevice is host memory. No GPU took part.
	HostDevice DeviceKind = "host"
	// CUDADevice is an NVIDIA GPU.
	CUDADevice DeviceKind = "cuda"
)

// Device names the device that the bytes went to or came from.
type Device struct {
	ID    string     `json:"id"`
	Kind  DeviceKind `json:"kind"`
	Model string     `json:"model"`
}

// Asked repeats what the caller asked for.
type Asked struct {
	Route Route       `json:"route"`
	Cache CachePolicy `json:"cache"`
}

// ReadTotals compares the bytes that were read with the bytes that were wanted. More bytes are read than wanted if a
// read spans a gap, if the ends of a direct read are not aligned, or if whole blocks are verified.
type ReadTotals struct {
	Wanted int64 `json:"wanted_bytes"` // delivered to the device
	// Read counts the bytes of all read calls. It does not count what the kernel reads ahead.
	Read int64 `json:"read_bytes"`
	// Amplification is Read divided by Wanted, or 0 if Wanted is 0.
	Amplification float64 `json:"read_amplification"`
}

// RouteShare is the part of the bytes that took one route.
type RouteShare struct {
	Route  RouteTaken `json:"route"`
	Bytes  int64      `json:"bytes"`
	Chunks int64      `json:"chunks"`
	// Span is the time in seconds from the start of the first read to the end of the last one. GBps is the rate within
	// Span.
	Span float64 `json:"span_seconds"`
	GBps float64 `json:"gbps"`
}

// Stage is the time of one stage. Busy adds up all workers, so it exceeds the elapsed time if several work at once.
type Stage struct {
	Stage string  `json:"stage"`
	Busy  float64 `json:"busy_seconds"`
	Span  float64 `json:"span_seconds,omitempty"`
	Bytes int64   `json:"bytes,omitempty"`
	GBps  float64 `json:"gbps,omitempty"`
}

// Engine is the engine's configuration during the transfer.
type Engine struct {
	Workers      int    `json:"workers"`
	QueueDepth   int    `json:"queue_depth"`
	ChunkSize    int64  `json:"chunk_size"` // bytes of one copy out of the page cache
	BlockSize    int64  `json:"block_size"` // bytes of one read from storage
	IO           string `json:"io"`         // mechanism of direct reads: "uring", "pread" or "unused"
	StagingSize  int64  `json:"staging_size"`
	StagingUsed  bool   `json:"staging_used"` // false if bytes were read into place
	HugePages    int64  `json:"staging_huge_pages"`
	StagingState string `json:"staging"` // "pinned", "not pinned", "unused" or "host memory"
	// Node is the NUMA node of threads and staging memory. It is nil if they use any node.
	Node *int `json:"numa_node,omitempty"`
}

// File is one file of the transfer.
type File struct {
	Path   string      `json:"path"`
	FS     string      `json:"file_system"`
	Size   int64       `json:"size"`
	Cache  CachePolicy `json:"cache"` // the policy in force
	Probe  string      `json:"residency_probe"`
	Direct bool        `json:"direct_possible"`
	// Unproven says why the routes from storage cannot be proven for this file. It is empty if they can.
	Unproven string `json:"unproven,omitempty"`
	// Left counts bytes that the load brought into the page cache and could not drop, although the policy in force is
	// CacheBypass.
	Left int64 `json:"cache_left_bytes,omitempty"`
}

// Refusal is a faster way that was not available, the reason, and the fix.
type Refusal struct {
	What   string `json:"what"` // such as "direct", "cufile", "pinned staging" or "residency"
	On     string `json:"on"`
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty"`
}

// NoteUnproven adds a note for each file whose unproven routes carried bytes.
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
