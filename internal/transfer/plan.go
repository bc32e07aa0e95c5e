// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Segment is a run of bytes of one file and the place they go to.
type Segment struct {
	File int // index into Request.Files
	Off  int64
	Len  int64
	Dst  device.Ptr
	// With Stride > 0 only the first Width bytes out of every Stride, counted
	// from Off, are wanted. They lie one behind the other from Dst on.
	Width, Stride int64
}

// way is how a chunk is read.
type way uint8

const (
	// viaCache reads what is in the page cache, or may be.
	viaCache way = iota
	// viaFill reads through the page cache what is known to be absent from it:
	// the bytes come from storage and stay cached.
	viaFill
	// viaDirect reads past the page cache, into a staging slot.
	viaDirect
	// viaDirectInPlace reads past the page cache, straight into the destination.
	viaDirectInPlace
	// viaWrite gathers from devices and writes to a file.
	viaWrite
	// viaCuFile lets the vendor's library read straight to the destination.
	viaCuFile
	// viaNetwork reads the body of a reply into a staging slot, or into place.
	viaNetwork
	ways
)

// verdict is how a piece is read.
type verdict struct {
	way way
	// nowait: nobody could say what is cached, so the reader asks for cached
	// bytes first and the rest is read past the page cache.
	nowait bool
	// cufile: what is then read past it goes through the vendor's library.
	cufile bool
}

// chunk is one read and one copy. Its file range lies inside one window of its
// size, aligned to it, so that its aligned superset fits a staging slot.
type chunk struct {
	file int
	off  int64
	len  int64
	dst  device.Ptr
	// extra: the bytes are wanted for the sum of their block alone. They are
	// read into a slot and go nowhere.
	extra bool
	// weave, if not nil, says what of the bytes is wanted and where it goes:
	// they are read into a slot and packed. dst is the first one's place.
	weave *weave
	// summed: the bytes were checked as they were read.
	summed bool
	verdict
}

// params are what the planner needs to know besides the residency.
type params struct {
	chunk  int64 // largest read of cached bytes; a multiple of leaf
	block  int64 // largest read from storage; divides leaf
	piece  int64 // largest read through cuFile; divides window
	leaf   int64 // residency is decided for aligned pieces of this size; a multiple of align
	window int64 // and asked for this much at once first; a multiple of chunk
	align  int64 // of direct reads
	// memAlign > 0: the destination is addressable, and direct reads go in
	// place where its address has this alignment relative to the file offset.
	memAlign int64
	direct   bool // direct reads are possible on this file
	route    report.Route
	cache    report.CachePolicy
	// missLimit is the share of absent bytes up to which a piece is still
	// better read through the page cache.
	missLimit float64
	// whole > 0: chunks out of the page cache end at multiples of it where they
	// can, so that the blocks of a file that is verified are summed in one
	// piece and judged before they are sent. Reads from storage keep their size.
	whole int64
	// remote: the file is read over a network, whatever else is said here.
	remote bool
}

// residency is what of a range is cached; known is false where the kernel does
// not tell.
type residency struct {
	vfs.Residency
	known bool
}

// planner turns runs into chunks. It is pure: the same answers of residency give
// the same chunks. Each wanted byte of a run is in exactly one chunk.
type planner struct {
	params
	weave     *weave // of the run that is planned
	keep      bool   // what a run does not want is read nevertheless, for its sum
	residency func(off, n int64) residency
	emit      func(chunk)
	// cufile, if not nil, says whether bytes past the page cache are read by the
	// vendor's library. It is asked when the first such piece is met.
	cufile func() bool
	// ramp counts down the first page-cache chunks, one for each worker, which
	// grow from small to full size: the first copy then starts after a small
	// read, and the workers do not all come back at the same time.
	ramp, ramps int
	// dirty counts bytes of pieces that go through the page cache because
	// pages in them are newer in memory than on disk.
	dirty int64
}

func (p *planner) segment(s Segment) {
	end := s.Off + s.Len
	if p.remote {
		p.pieces(s, s.Off, end, verdict{way: viaNetwork})
		return
	}
	for off := s.Off; off < end; {
		stop := min(end, (off/p.window+1)*p.window)
		p.planWindow(s, off, stop)
		off = stop
	}
}

// planWindow cuts [lo, hi), which lies inside one window, into runs that are
// read the same way.
func (p *planner) planWindow(s Segment, lo, hi int64) {
	whole := p.residency(lo, hi-lo)
	if v, sure := p.uniform(whole, hi-lo); sure {
		p.cut(s, lo, hi, v)
		return
	}
	var run verdict
	runLo := lo
	for off := lo; off < hi; {
		stop := min(hi, (off/p.leaf+1)*p.leaf)
		r := p.residency(off, stop-off)
		v := p.decide(r, stop-off)
		if p.direct && p.route == report.RouteAuto && r.known && r.Dirty > 0 {
			p.dirty += stop - off
		}
		if v != run && off > lo {
			p.cut(s, runLo, off, run)
			runLo = off
		}
		run = v
		off = stop
	}
	p.cut(s, runLo, hi, run)
}

// uniform decides a whole window at once where the residency leaves no doubt.
func (p *planner) uniform(r residency, n int64) (verdict, bool) {
	switch {
	case !r.known && p.mayGoDirect():
		// The reader finds out what is cached.
		return verdict{way: viaCache, nowait: true, cufile: p.past() == viaCuFile}, true
	case !r.known || p.route == report.RouteDirect || p.route == report.RouteCuFile:
		return p.decide(r, n), true
	case r.Dirty > 0:
		return verdict{}, false
	case r.Cached == 0 || r.Cached >= n:
		return p.decide(r, n), true
	}
	return verdict{}, false
}

// mayGoDirect reports whether absent bytes are to be read past the page cache.
func (p *planner) mayGoDirect() bool {
	return p.direct && p.route == report.RouteAuto && p.cache != report.CacheKeep
}

// past is the way of bytes that are read past the page cache.
func (p *planner) past() way {
	if p.cufile != nil && p.cufile() {
		return viaCuFile
	}
	return viaDirect
}

// decide chooses for one piece. Dirty pages go through the page cache: a direct
// read would first have to write them back.
func (p *planner) decide(r residency, n int64) verdict {
	switch p.route {
	case report.RouteDirect:
		return verdict{way: viaDirect}
	case report.RouteCuFile:
		return verdict{way: viaCuFile}
	}
	missing := n - min(r.Cached, n)
	if p.mayGoDirect() && r.known && r.Dirty <= 0 && float64(missing) > p.missLimit*float64(n) {
		return verdict{way: p.past()}
	}
	if r.known && r.Cached == 0 {
		return verdict{way: viaFill}
	}
	return verdict{way: viaCache}
}

// cut emits [lo, hi) in chunks that end at chunk-aligned file offsets.
func (p *planner) cut(s Segment, lo, hi int64, v verdict) {
	base := int64(s.Dst) - s.Off // a byte at file offset x goes to base + x
	if v.way == viaDirect && p.memAlign > 0 && base%p.memAlign == 0 && p.weave == nil {
		// In place only whole aligned blocks can be read directly; the ragged
		// ends, less than a block each, come through the page cache.
		ragged := verdict{way: viaCache}
		a, b := (lo+p.align-1)/p.align*p.align, hi/p.align*p.align
		if a >= b {
			p.pieces(s, lo, hi, ragged)
			return
		}
		p.pieces(s, lo, a, ragged)
		p.pieces(s, a, b, verdict{way: viaDirectInPlace})
		p.pieces(s, b, hi, ragged)
		return
	}
	p.pieces(s, lo, hi, v)
}

// rampSize is the size of the next chunk of the ramp, in whole blocks.
func (p *planner) rampSize() int64 {
	blocks := p.chunk / p.block
	step := int64(p.ramps - p.ramp + 1)
	return p.block * max(1, blocks*step/int64(p.ramps))
}

func (p *planner) pieces(s Segment, lo, hi int64, v verdict) {
	for off := lo; off < hi; {
		size, most := p.chunk, p.chunk
		if v.way == viaCuFile {
			size, most = p.piece, p.piece
		} else if v.way != viaCache {
			size = p.block
		} else if p.ramp > 0 {
			size = p.rampSize()
			p.ramp--
		}
		// Up to the next multiple of the size, and never across one of a chunk.
		stop := (off/size + 1) * size
		if v.way == viaCache && p.whole > 0 {
			stop = (stop + p.whole - 1) / p.whole * p.whole
		}
		stop = min(hi, stop, (off/most+1)*most)
		c, some := chunk{file: s.File, off: off, len: stop - off, dst: s.Dst + device.Ptr(off-s.Off), verdict: v}, true
		if p.weave != nil {
			c, some = p.weave.narrow(c, p.keep)
		}
		if some {
			p.emit(c)
		}
		off = stop
	}
}
