// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// Params are the parameters of a plan for one file.
type Params struct {
	Chunk  int64 // size in bytes of the largest read through the page cache; a multiple of Leaf
	Block  int64 // size in bytes of the largest read from storage; a divisor of Leaf
	Piece  int64 // size in bytes of the largest read through cuFile; a divisor of Window
	Leaf   int64 // size in bytes of the ranges for which the planner decides separately; a multiple of Align
	Window int64 // size in bytes of the ranges for which the planner first queries the page cache; a multiple of Chunk
	Align  int64 // alignment of O_DIRECT reads in bytes
	// MemAlign is the memory alignment in bytes that O_DIRECT needs. A chunk is read directly into its destination
	// only if the destination address minus the file offset is a multiple of MemAlign. MemAlign is 0 if the CPU cannot
	// address the destination.
	MemAlign int64
	Direct   bool // true if the file can be read with O_DIRECT
	Route    report.Route
	Cache    report.CachePolicy
	// MissLimit is the largest share of bytes outside the page cache, from 0 to 1, at which a range is still read
	// through the page cache.
	MissLimit float64
	// Whole, if not 0, is the size of checksum blocks in bytes. Chunks from the page cache end at multiples of Whole
	// if possible, so that whole blocks are verified before the copy. The value of Whole does not change how bytes are
	// read from storage.
	Whole int64
	// Keep is set if unwanted bytes are also read, because the checksums of their blocks need them.
	Keep bool
	// Remote is set if the file is read over a network; the parameters for page cache and O_DIRECT are then ignored.
	Remote bool
}

// The planner first asks how much of a range of 64 MiB is in the page cache. If only a part of the range is in the
// page cache, the planner decides for each MiB of the range how it is read.
const (
	// LeafSize is the size in bytes of the smallest range for which the planner decides separately how it is read.
	LeafSize = 1 * units.MiB
	// WindowSize is the size of a window in bytes. The planner asks about the page cache window by window.
	WindowSize = 64 * units.MiB
	missLimit  = 1.0 / 16
)

// Sizes holds the sizes of an engine's largest reads, in bytes.
type Sizes struct {
	Chunk int64 // size of the largest read from the page cache
	Block int64 // size of the largest read from storage; a divisor of Chunk
	Piece int64 // size of the largest read through cuFile
}

// LocalParams returns the parameters for a local file. The parameter memAlign must be 0 if the CPU cannot address the
// destination.
func LocalParams(k Sizes, offAlign, memAlign int64, direct bool, route report.Route, cache report.CachePolicy) Params {
	p := Params{Chunk: k.Chunk, Block: k.Block, Piece: k.Piece, Leaf: min(LeafSize, k.Chunk), Window: max(WindowSize,
		k.Chunk),
		Align: max(offAlign, 1), MemAlign: memAlign, Direct: direct, Route: route, Cache: cache, MissLimit: missLimit}
	if p.Chunk%p.Leaf != 0 || p.Leaf%p.Block != 0 || p.Window%p.Chunk != 0 {
		// The chunk size does not fit: decide for each chunk.
		p.Leaf, p.Window = p.Chunk, p.Chunk*max(1, WindowSize/p.Chunk)
	}
	if cache == report.CacheBypass {
		p.MissLimit = 0 // uncached bytes must not enter the page cache
	}
	return p
}

// RemoteParams returns the parameters for a file that is read over a network in chunks of n bytes.
func RemoteParams(n int64) Params {
	return Params{Chunk: n, Block: n, Piece: n, Leaf: n, Window: n, Align: 1, Remote: true}
}
