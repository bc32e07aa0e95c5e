// SPDX-License-Identifier: Apache-2.0

// Package plan splits the segments of a load into chunks, and chooses how each chunk is read depending on the page
// cache.
//
// Package plan does no I/O. Params describe the file, and an Inquiry answers questions about cached pages.
//
// The input of a plan is in segment.go (wanted ranges), params.go (sizes) and policy.go (cache policies). runs.go
// groups segments that are read together, chunk.go defines chunks, and planner.go splits runs into chunks.
package plan

import (
	"iter"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Residency counts the cached bytes of a range. Known is false if the kernel does not report cached bytes.
type Residency struct {
	vfs.Residency
	Known bool
}

// Inquiry answers the planner's questions about a file.
type Inquiry interface {
	// Residency counts the bytes of [off, off+n) that are in the page cache.
	Residency(off, n int64) Residency
	// CuFile reports whether bytes that are not cached are read by libcufile. The planner calls CuFile at the first
	// range that is not cached, and may call it again later.
	CuFile() bool
}

// Planner splits runs of one file into chunks. Two plans of a run have the same chunks if the Inquiry gives the same
// answers. Each wanted byte of a run is in exactly one chunk.
type Planner struct {
	Params
	Ask Inquiry // answers the planner's questions about the file
	// Ramp is the number of small chunks from the page cache that the planner still has to yield at the beginning of a
	// load. Ramps is the total number of small chunks at the beginning of a load, one for each worker. The first
	// chunks grow from small to full size, so that the first copy starts early and the workers end their first
	// chunks at different times.
	Ramp, Ramps int
	// Dirty counts the bytes of ranges that are read through the page cache because they have dirty pages.
	Dirty int64

	run   Run // the run that is planned
	yield func(Chunk) bool
}

// Chunks yields the chunks of a run in order. A Planner can plan only one run at a time.
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

// planWindow splits [lo, hi), which is inside one window, into ranges that are read the same way. It returns false if
// the caller wants no more chunks.
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
		v := p.decideWoven(r, off, stop)
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

// uniform decides for a whole window at once, if its residency is uniform.
func (p *Planner) uniform(r Residency, n int64) (Verdict, bool) {
	switch {
	case !r.Known && p.mayGoDirect():
		// The reader finds out which bytes are cached.
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

// mayGoDirect reports whether uncached bytes are read with O_DIRECT.
func (p *Planner) mayGoDirect() bool {
	return p.Direct && p.Route == report.RouteAuto && p.Cache != report.CacheKeep
}

// past returns the way of bytes that are not read through the page cache.
func (p *Planner) past() Way {
	if p.Ask.CuFile() {
		return ViaCuFile
	}
	return ViaDirect
}

// decide chooses the way of one range. A range with dirty pages is read through the page cache, because an O_DIRECT
// read would first write them back.
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

// decideWoven is like decide, but counts only the wanted bytes of the range. r does not say which bytes are cached. If
// as many bytes are cached as are wanted, they may be the wanted ones. The reader then tries the page cache first.
func (p *Planner) decideWoven(r Residency, lo, hi int64) Verdict {
	v := p.decide(r, hi-lo)
	if v.Way != ViaDirect && v.Way != ViaCuFile || !p.mayGoDirect() || p.run.Weave == nil || p.Keep || r.Cached == 0 {
		return v
	}
	if n := p.run.Weave.wanted(lo, hi); float64(n-min(r.Cached, n)) <= p.MissLimit*float64(n) {
		return Verdict{Way: ViaCache, NoWait: true, CuFile: v.Way == ViaCuFile}
	}
	return v
}

// cutRows yields the wanted bytes of [lo, hi) row by row.
func (p *Planner) cutRows(lo, hi int64, v Verdict) bool {
	whole := p.run
	defer func() { p.run = whole }()
	for row := range whole.Weave.Rows(lo, hi) {
		p.run = Run{Segment: row}
		if !p.cut(row.Off, row.Off+row.Len, v) {
			return false
		}
	}
	return true
}

// cut yields [lo, hi) in chunks that end at chunk-aligned file offsets.
func (p *Planner) cut(lo, hi int64, v Verdict) bool {
	if w := p.run.Weave; w != nil && w.Apart && v.Way != ViaCache {
		return p.cutRows(lo, hi, v)
	}
	base := int64(p.run.Dst) - p.run.Off // the destination of the byte at file offset x is base + x
	if v.Way == ViaDirect && p.MemAlign > 0 && !p.run.Extra && base%p.MemAlign == 0 && p.run.Weave == nil {
		// Only whole aligned blocks can be read with O_DIRECT into the destination. The unaligned ends, less than a
		// block each, are read through the page cache.
		ragged := Verdict{Way: ViaCache}
		a, b := (lo+p.Align-1)/p.Align*p.Align, hi/p.Align*p.Align
		if a >= b {
			return p.pieces(lo, hi, ragged)
		}
		return p.pieces(lo, a, ragged) && p.pieces(a, b, Verdict{Way: ViaDirectInPlace}) && p.pieces(b, hi, ragged)
	}
	return p.pieces(lo, hi, v)
}

// rampSize returns the size of the next chunk of the ramp, in whole blocks.
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
		// The chunk ends at the next multiple of the size, and never crosses a multiple of the chunk size.
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
