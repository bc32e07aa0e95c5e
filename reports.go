// SPDX-License-Identifier: Apache-2.0

package nebulaio

import "github.com/nebulaio/nebulaio/report"

// Names for types of package report, so that programs need to import only package nebulaio.
type (
	// Report describes a transfer: the bytes by route, the time of each stage, and the faster routes that were
	// refused.
	Report = report.Report
	// ObjectReport describes a read or write of objects.
	ObjectReport = report.Object
	// FeedReport describes the batches that a Loader has delivered.
	FeedReport = report.Feed
	// Refusal names a faster route or method that was not available, the reason and the fix.
	Refusal = report.Refusal
	// Route is the route that a caller asks for.
	Route = report.Route
	// RouteTaken is a route that bytes of a transfer really took.
	RouteTaken = report.RouteTaken
	// CachePolicy chooses whether a load leaves the pages that it reads in the page cache.
	CachePolicy = report.CachePolicy
)

// Routes that a caller can ask for.
const (
	// RouteAuto lets the engine choose a route for each chunk, depending on which bytes are in the page cache.
	RouteAuto = report.RouteAuto
	// RouteBuffered moves every byte through the page cache.
	RouteBuffered = report.RouteBuffered
	// RouteDirect moves every byte with O_DIRECT; if a file refuses O_DIRECT, the transfer fails.
	RouteDirect = report.RouteDirect
	// RouteCuFile moves every byte with NVIDIA's libcufile; if libcufile refuses, the transfer fails.
	RouteCuFile = report.RouteCuFile
)

// Cache policies of a load.
const (
	// CacheAuto uses O_DIRECT for uncached bytes at the first load of a file, and the page cache if the file is loaded
	// again soon.
	CacheAuto = report.CacheAuto
	// CacheKeep reads through the page cache and leaves the pages there for the next load.
	CacheKeep = report.CacheKeep
	// CacheBypass leaves the page cache as it was before the load.
	CacheBypass = report.CacheBypass
)

// ModelReport describes a load or a save of a model.
type ModelReport struct {
	Path    string `json:"path"`
	Tensors int    `json:"tensors"`
	// OpenSeconds is the time for reading and checking the headers of the files. AllocSeconds is the time for
	// allocating device memory, or 0 if the caller supplied the memory. Report.Seconds includes neither OpenSeconds
	// nor AllocSeconds.
	OpenSeconds  float64 `json:"open_seconds"`
	AllocSeconds float64 `json:"alloc_seconds"`
	// Via says how the bytes of a load came: "file" if all files are local, "door" or "http" if they are objects of a
	// server. If some objects came through the door and some over HTTP, Via is "http". Via is empty for a save.
	Via string `json:"via,omitempty"`
	Report
}

// MoveReport describes one read or write of a File.
type MoveReport struct {
	Path string `json:"path"`
	Op   string `json:"op"` // "read" or "write"
	Report
}
