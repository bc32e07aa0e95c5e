// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a load reads, and how: it turns segments into chunks by what is in the page cache.
//
// It is pure. What it must know of a file is handed in: Params, and an Inquiry that answers questions about residency.
//
// The files, in the order of use: segment.go (what is wanted), chunk.go (one read and one copy), runs.go (segments that
// are read together), params.go and policy.go (what a plan follows from), planner.go (runs to chunks).
package plan

import (
	"iter"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Residency is what of a range is cached. Known is false where the kernel does
// not tell.
type Residency struct {
	vfs.Residency
	Known bool
}

// Inquiry answers what the planner asks about a file while it plans.
type Inquiry interface {
	// Residency tells what of the n bytes at off is in the page cache.
	Residency(off, n int64) Residency
	// CuFile reports whether bytes past the page cache are read by the vendor's
	// library. It is asked when the first such piece is met, and perhaps again.
	CuFile() bool
}

// Planner turns runs of one file into chunks. The same answers of the Inquiry give
// the same chunks. Each wanted byte of a run is in exactly one chunk.
type Planner struct {
	Params
	Ask Inquiry // answers for the file that is planned
	// Ramp counts down the first page-cache chunks, one for each worker, which
	// grow from small to full size: the first copy then starts after a small
	// read, and the workers do not all come back at the same time.
	Ramp, Ramps int
	// Dirty counts bytes of pieces that go through the page cache because
	// pages in them are newer in memory than on disk.
	Dirty int64

	run   Run // that is planned
	yield func(Chunk) bool
}

// Chunks yields the chunks of a run in order. Only one run is planned at a time.
func (p *Planner) Chunks(r Run) iter.Seq[Chunk] {
	return func(yield func(Chunk) bool) {
		p.run, p.yield = r, yield
		if p.Remote {
			p.pieces(r.Off, r.Off+r.Len, Verdict{Way: ViaNetwork})
			return
		}
		for off, end := r.Off, r.Off+r.Len; off < end; {
			stop := min(end, (off/p.Window+1)*p.Window)
			if !p.planWindow(off, stop) {
				return
			}
			off = stop
		}
	}
}

// planWindow cuts [lo, hi), which lies inside one window, into stretches that are
// read the same way. It reports false when no more chunks are asked for.
func (p *Planner) planWindow(lo, hi int64) bool {
	whole := p.Ask.Residency(lo, hi-lo)
	if v, sure := p.uniform(whole, hi-lo); sure {
		return p.cut(lo, hi, v)
	}
	var same Verdict
	from := lo
	for off := lo; off < hi; {
		stop := min(hi, (off/p.Leaf+1)*p.Leaf)
		r := p.Ask.Residency(off, stop-off)
		v := p.decide(r, stop-off)
		if p.Direct && p.Route == report.RouteAuto && r.Known && r.Dirty > 0 {
			p.Dirty += stop - off
		}
		if v != same && off > lo {
			if !p.cut(from, off, same) {
				return false
			}
			from = off
		}
		same = v
		off = stop
	}
	return p.cut(from, hi, same)
}

// uniform decides a whole window at once where the residency leaves no doubt.
func (p *Planner) uniform(r Residency, n int64) (Verdict, bool) {
	switch {
	case !r.Known && p.mayGoDirect():
		// The reader finds out what is cached.
		return Verdict{Way: ViaCache, NoWait: true, CuFile: p.past() == ViaCuFile}, true
	case !r.Known || p.Route == report.RouteDirect || p.Route == report.RouteCuFile:
		return p.decide(r, n), true
	case r.Dirty > 0:
		return Verdict{}, false
	case r.Cached == 0 || r.Cached >= n:
		return p.decide(r, n), true
	}
	return Verdict{}, false
}

// mayGoDirect reports whether absent bytes are to be read past the page cache.
func (p *Planner) mayGoDirect() bool {
	return p.Direct && p.Route == report.RouteAuto && p.Cache != report.CacheKeep
}

// past is the way of bytes that are read past the page cache.
func (p *Planner) past() Way {
	if p.Ask.CuFile() {
		return ViaCuFile
	}
	return ViaDirect
}

// decide chooses for one piece. Dirty pages go through the page cache: a direct
// read would first have to write them back.
func (p *Planner) decide(r Residency, n int64) Verdict {
	switch p.Route {
	case report.RouteDirect:
		return Verdict{Way: ViaDirect}
	case report.RouteCuFile:
		return Verdict{Way: ViaCuFile}
	}
	missing := n - min(r.Cached, n)
	if p.mayGoDirect() && r.Known && r.Dirty <= 0 && float64(missing) > p.MissLimit*float64(n) {
		return Verdict{Way: p.past()}
	}
	if r.Known && r.Cached == 0 {
		return Verdict{Way: ViaFill}
	}
	return Verdict{Way: ViaCache}
}

// cut gives [lo, hi) in chunks that end at chunk-aligned file offsets.
func (p *Planner) cut(lo, hi int64, v Verdict) bool {
	base := int64(p.run.Dst) - p.run.Off // a byte at file offset x goes to base + x
	if v.Way == ViaDirect && p.MemAlign > 0 && !p.run.Extra && base%p.MemAlign == 0 && p.run.Weave == nil {
		// In place only whole aligned blocks can be read directly; the ragged
		// ends, less than a block each, come through the page cache.
		ragged := Verdict{Way: ViaCache}
		a, b := (lo+p.Align-1)/p.Align*p.Align, hi/p.Align*p.Align
		if a >= b {
			return p.pieces(lo, hi, ragged)
		}
		return p.pieces(lo, a, ragged) && p.pieces(a, b, Verdict{Way: ViaDirectInPlace}) && p.pieces(b, hi, ragged)
	}
	return p.pieces(lo, hi, v)
}

// rampSize is the size of the next chunk of the ramp, in whole blocks.
func (p *Planner) rampSize() int64 {
	blocks := p.Chunk / p.Block
	step := int64(p.Ramps - p.Ramp + 1)
	return p.Block * max(1, blocks*step/int64(p.Ramps))
}

func (p *Planner) pieces(lo, hi int64, v Verdict) bool {
	for off := lo; off < hi; {
		size, most := p.Chunk, p.Chunk
		if v.Way == ViaCuFile {
			size, most = p.Piece, p.Piece
		} else if v.Way != ViaCache {
			size = p.Block
		} else if p.Ramp > 0 {
			size = p.rampSize()
			p.Ramp--
		}
		// Up to the next multiple of the size, and never across one of a chunk.
		stop := (off/size + 1) * size
		if v.Way == ViaCache && p.Whole > 0 {
			stop = (stop + p.Whole - 1) / p.Whole * p.Whole
		}
		stop = min(hi, stop, (off/most+1)*most)
		c, some := Chunk{File: p.run.File, Off: off, Len: stop - off, Dst: p.run.Dst + device.Ptr(off-p.run.Off),
			Extra: p.run.Extra, Verdict: v}, true
		if p.run.Weave != nil {
			c, some = p.run.Weave.Narrow(c, p.Keep)
		}
		if some && !p.yield(c) {
			return false
		}
		off = stop
	}
	return true
}
