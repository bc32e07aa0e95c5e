// SPDX-License-Identifier: Apache-2.0

package nebulaio

import "github.com/nebulaio/nebulaio/report"

// Types of package report, under the names that callers of this package use.
type (
	// Report says how a transfer went: the route of every byte, the time of each stage, and what was refused.
	Report = report.Report
	// ObjectReport says how a read or write of objects went.
	ObjectReport = report.Object
	// Refusal is a faster way that was not available, the reason, and the fix.
	Refusal = report.Refusal
	// Route is the route that a caller asks for.
	Route = report.Route
	// RouteTaken is a route that bytes really took.
	RouteTaken = report.RouteTaken
	// CachePolicy says what a load may leave in the page cache.
	CachePolicy = report.CachePolicy
)

// Routes that a caller can ask for.
const (
	// RouteAuto chooses a route for each chunk by what is in the page cache.
	RouteAuto = report.RouteAuto
	// RouteBuffered moves every byte through the page cache.
	RouteBuffered = report.RouteBuffered
	// RouteDirect moves every byte with O_DIRECT, or fails.
	RouteDirect = report.RouteDirect
	// RouteCuFile moves every byte with NVIDIA's libcufile, or fails.
	RouteCuFile = report.RouteCuFile
)

// Cache policies of a load.
const (
	// CacheAuto reads past the page cache the first time, and through it if the same file is loaded again soon.
	CacheAuto = report.CacheAuto
	// CacheKeep reads absent bytes through the page cache, so that the next load finds them there.
	CacheKeep = report.CacheKeep
	// CacheBypass leaves the page cache as it was.
	CacheBypass = report.CacheBypass
)

// ModelReport says how a load or a save of a model went.
type ModelReport struct {
	Path    string `json:"path"`
	Tensors int    `json:"tensors"`
	// OpenSeconds is the time for reading and checking headers. AllocSeconds is the time for taking device memory, 0 if
	// the caller brought it. Neither is part of Seconds.
	OpenSeconds  float64 `json:"open_seconds"`
	AllocSeconds float64 `json:"alloc_seconds"`
	Report
}

// MoveReport says how a move of a file's bytes went.
type MoveReport struct {
	Path string `json:"path"`
	Op   string `json:"op"` // "read" or "write"
	Report
}
