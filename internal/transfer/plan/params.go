// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// Params are what a plan follows from besides the residency.
type Params struct {
	Chunk  int64 // largest read of cached bytes; a multiple of Leaf
	Block  int64 // largest read from storage; divides Leaf
	Piece  int64 // largest read through cuFile; divides Window
	Leaf   int64 // residency is decided for aligned pieces of this size; a multiple of Align
	Window int64 // and asked for this much at once first; a multiple of Chunk
	Align  int64 // of direct reads
	// MemAlign > 0: the destination is addressable, and direct reads go in
	// place where its address has this alignment relative to the file offset.
	MemAlign int64
	Direct   bool // direct reads are possible on this file
	Route    report.Route
	Cache    report.CachePolicy
	// MissLimit is the share of absent bytes up to which a piece is still
	// better read through the page cache.
	MissLimit float64
	// Whole > 0: chunks out of the page cache end at multiples of it where they
	// can, so that the blocks of a file that is verified are summed in one
	// piece and judged before they are sent. Reads from storage keep their size.
	Whole int64
	// Keep: bytes of a run that nobody wants are read nevertheless, for the sums of their blocks.
	Keep bool
	// Remote: the file is read over a network, whatever else is said here.
	Remote bool
}

// Residency is decided a megabyte at a time, after a look at 64 of them.
const (
	// LeafSize is the smallest piece for which residency is decided.
	LeafSize   = 1 * units.MiB
	windowSize = 64 * units.MiB
	missLimit  = 1.0 / 16
)

// Sizes are the largest reads of an engine.
type Sizes struct {
	Chunk int64 // out of the page cache
	Block int64 // from storage; divides Chunk
	Piece int64 // through cuFile
}

// LocalParams returns the parameters of a local file. memAlign is 0 where the destination is not addressable.
func LocalParams(k Sizes, offAlign, memAlign int64, direct bool, route report.Route, cache report.CachePolicy) Params {
	p := Params{Chunk: k.Chunk, Block: k.Block, Piece: k.Piece, Leaf: min(LeafSize, k.Chunk), Window: max(windowSize,
		k.Chunk),
		Align: max(offAlign, 1), MemAlign: memAlign, Direct: direct, Route: route, Cache: cache, MissLimit: missLimit}
	if p.Chunk%p.Leaf != 0 || p.Leaf%p.Block != 0 || p.Window%p.Chunk != 0 {
		// An odd chunk size: decide per chunk.
		p.Leaf, p.Window = p.Chunk, p.Chunk*max(1, windowSize/p.Chunk)
	}
	if cache == report.CacheBypass {
		p.MissLimit = 0 // what is absent stays absent
	}
	return p
}

// RemoteParams returns the parameters of a file that is read over a network in chunks of n bytes.
func RemoteParams(n int64) Params {
	return Params{Chunk: n, Block: n, Piece: n, Leaf: n, Window: n, Align: 1, Remote: true}
}
