// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/effort"
)

// choices is a source of decisions: random numbers, or the input of the fuzzer.
type choices interface{ pick(n int64) int64 } // in [0, n)

type random struct{ *rand.Rand }

func (r random) pick(n int64) int64 { return r.Int64N(n) }

// tape reads decisions from bytes and gives 0 when they are used up.
type tape struct{ b []byte }

func (t *tape) pick(n int64) int64 {
	var w [8]byte
	t.b = t.b[copy(w[:], t.b):]
	return int64(binary.LittleEndian.Uint64(w[:]) % uint64(n))
}

// planCase is everything that a plan follows from.
type planCase struct {
	Params
	size  int64  // of the file
	pages []byte // state of each page of the file: bit 0 cached, bit 1 dirty
	known bool
	segs  []Segment
	gap   int64 // of the request
	joint bool  // rows that are far apart are one run
	ramps int   // chunks that grow to full size at the start
	cu    bool
}

const testPage = 4096

// drawCase makes a case that an engine could meet, with everything small so
// that the boundaries are near.
func drawCase(c choices) planCase {
	var k planCase
	k.Align = testPage << c.pick(2)
	k.Block = k.Align << c.pick(2)
	k.Leaf = k.Block << c.pick(3)
	k.Chunk = k.Leaf * (1 + c.pick(4))
	k.Window = k.Chunk * (1 + c.pick(4))
	if c.pick(2) == 0 {
		k.MemAlign = []int64{1, 4, 512, testPage}[c.pick(4)]
	}
	k.Direct = c.pick(4) > 0
	k.Route = []report.Route{report.RouteAuto, report.RouteAuto, report.RouteBuffered, report.RouteDirect,
		report.RouteCuFile}[c.pick(5)]
	if k.Route == report.RouteDirect {
		k.Direct = true // the engine refuses the request otherwise
	}
	k.Piece, k.cu = k.Align<<c.pick(3), c.pick(3) == 0
	k.Cache = []report.CachePolicy{report.CacheAuto, report.CacheKeep, report.CacheBypass}[c.pick(3)]
	k.MissLimit = []float64{0, 1.0 / 16, 0.5}[c.pick(3)]
	k.known = c.pick(5) > 0
	k.ramps = int(c.pick(6))
	k.size = 1 + c.pick(6*k.Window)
	k.pages = make([]byte, (k.size+testPage-1)/testPage)
	for i := 0; i < len(k.pages); { // in runs, as page caches are
		state := byte(c.pick(8))
		if state > 3 {
			state = []byte{0, 1, 0, 1}[state-4]
		}
		for end := i + 1 + int(c.pick(3*k.Leaf/testPage)); i < len(k.pages) && i < end; i++ {
			k.pages[i] = state
		}
	}
	dst := device.Ptr(0x7f0000000000 + c.pick(3*testPage))
	for off := c.pick(k.size); off < k.size && len(k.segs) < 16; {
		n := 1 + c.pick(min(k.size-off, 3*k.Window))
		if c.pick(3) == 0 { // in phase with the file, as layouts on the host are
			dst = (dst+testPage-1)/testPage*testPage + device.Ptr(off%testPage)
		}
		k.segs = append(k.segs, Segment{File: 3, Off: off, Len: n, Dst: dst})
		dst += device.Ptr(n + c.pick(100))
		off += n + c.pick(2*testPage)
	}
	if c.pick(2) == 0 { // the file is verified
		k.Whole = testPage << c.pick(8)
		k.Keep = c.pick(2) == 0
	}
	if c.pick(2) == 0 { // gaps are read through
		k.gap = c.pick(3 * testPage)
		for i := range k.segs {
			if s := &k.segs[i]; c.pick(2) == 0 {
				s.Stride = 1 + c.pick(2*testPage)
				s.Width = 1 + c.pick(s.Stride)
			}
		}
		k.joint = !k.Keep && c.pick(2) == 0
	}
	return k
}

// runs are the runs of the case. Memory is addressable where it has an alignment.
func (k *planCase) runs() iter.Seq[Run] {
	return Runs(k.segs, k.gap, k.MemAlign > 0, func(int) bool { return k.joint })
}

// Residency and CuFile answer the planner.
func (k *planCase) Residency(off, n int64) Residency { return k.residencyAt(off, n) }
func (k *planCase) CuFile() bool                     { return k.cu }

// residencyAt answers as the kernel does: in whole pages, cut at the end.
func (k *planCase) residencyAt(off, n int64) Residency {
	if !k.known {
		return Residency{}
	}
	lo, end := off/testPage*testPage, min(off+n, k.size)
	var r vfs.Residency
	for p := lo; p < end; p += testPage {
		state := k.pages[p/testPage]
		if state&1 != 0 || state&2 != 0 {
			r.Cached += testPage
		}
		if state&2 != 0 {
			r.Dirty += testPage
		}
	}
	r.Cached, r.Dirty = min(r.Cached, end-lo), min(r.Dirty, end-lo)
	return Residency{Residency: r, Known: true}
}

// clean reports whether no page of [lo, hi) is dirty.
func (k *planCase) clean(lo, hi int64) bool {
	for p := lo / testPage; p*testPage < hi; p++ {
		if k.pages[p]&2 != 0 {
			return false
		}
	}
	return true
}

func (k *planCase) plan() ([]Chunk, int64) {
	var out []Chunk
	p := Planner{Params: k.Params, Ask: k, Ramp: k.ramps, Ramps: k.ramps}
	for x := range k.runs() {
		out = slices.AppendSeq(out, p.Chunks(x))
	}
	return out, p.Dirty
}

// check returns what is wrong with the plan of k, or "".
func (k *planCase) check() string {
	chunks, dirty := k.plan()
	if again, d := k.plan(); !slices.EqualFunc(chunks, again, sameChunk) || d != dirty {
		return "the same case gave another plan"
	}
	if why := k.checkWanted(chunks); why != "" {
		return why
	}
	// The chunks of a run follow each other without gap or overlap.
	i := 0
	n := -1
	for x := range k.runs() {
		s := x.Segment
		n++
		if x.Weave != nil {
			var why string
			if i, why = k.checkWoven(x, chunks, i); why != "" {
				return fmt.Sprintf("run %d (%+v): %s", n, s, why)
			}
			continue
		}
		at := s.Off
		for ; at < s.Off+s.Len && i < len(chunks); i++ {
			c := chunks[i]
			if c.Off != at || c.Len <= 0 || c.File != s.File || c.Dst != s.Dst+device.Ptr(c.Off-s.Off) {
				return fmt.Sprintf("segment %d (%+v): chunk %d is %+v, expected to begin at %d", n, s, i, c, at)
			}
			if why := k.checkChunk(c, false); why != "" {
				return fmt.Sprintf("chunk %d (%+v) %s", i, c, why)
			}
			at += c.Len
			if k.splits(s, chunks, i) {
				return fmt.Sprintf("chunk %d (%+v) ends inside a block that the next one goes on with", i, c)
			}
		}
		if at != s.Off+s.Len {
			return fmt.Sprintf("segment %d (%+v) ends at %d", n, s, at)
		}
	}
	if i != len(chunks) {
		return fmt.Sprintf("%d chunks belong to no segment", len(chunks)-i)
	}
	if mayDirty := k.Direct && k.Route == report.RouteAuto && k.known; !mayDirty && dirty != 0 {
		return fmt.Sprintf("%d bytes were noted as dirty where that changes nothing", dirty)
	}
	return ""
}

// sameChunk compares chunks of two plans, whose weaves are two.
func sameChunk(a, b Chunk) bool {
	if (a.Weave == nil) != (b.Weave == nil) || a.Weave != nil && !slices.Equal(a.Weave.Segs, b.Weave.Segs) {
		return false
	}
	a.Weave, b.Weave = nil, nil
	return a == b
}

// checkWanted holds T1: each wanted byte goes to its place, once, and nothing
// else is sent. It goes by a straightforward list of where each byte belongs.
func (k *planCase) checkWanted(chunks []Chunk) string {
	const most = 20_000 // bytes, so that the list stays short
	var total, span int64
	base := device.Ptr(0x7f0000000000)
	for _, s := range k.segs {
		total += s.Len
		span = max(span, int64(s.Dst-base)+s.Len)
	}
	if total > most || k.gap == 0 {
		return "" // plain segments are compared below
	}
	want, got := make([]int64, span), make([]int64, span) // 1 + the file offset of the byte for each place
	for _, s := range k.segs {
		at := int64(s.Dst - base)
		for i := range s.Len {
			if s.Stride == 0 || i%s.Stride < s.Width {
				want[at] = 1 + s.Off + i
				at++
			}
		}
	}
	for n, c := range chunks {
		from := c.offsets()
		sent := int64(0)
		for dst, size := range c.Places() {
			for i := range size {
				d := int64(dst-base) + i
				if got[d] != 0 {
					return fmt.Sprintf("chunk %d (%+v) delivers the place %d again", n, c, d)
				}
				got[d] = 1 + from[sent]
				sent++
			}
		}
		if sent != c.wanted() || sent != int64(len(from)) {
			return fmt.Sprintf("chunk %d (%+v) sends %d bytes to its places and says %d", n, c, sent, c.wanted())
		}
	}
	if !slices.Equal(want, got) {
		return "a wanted byte is not at its place"
	}
	return ""
}

// wanted is how many bytes of the chunk are delivered.
func (c *Chunk) wanted() int64 {
	switch {
	case c.Extra:
		return 0
	case c.Weave == nil:
		return c.Len
	}
	var n int64
	for _, k := range c.Places() {
		n += k
	}
	return n
}

// wantedOf returns how many bytes of the chunk are wanted by the Weave w.
func (c *Chunk) wantedOf(w *Weave) (n int64) {
	for row := range w.Rows(c.Off, c.Off+c.Len) {
		n += row.Len
	}
	return n
}

// offsets lists the file offset of each wanted byte of a chunk, byte by byte.
func (c *Chunk) offsets() []int64 {
	var out []int64
	if c.Extra {
		return nil
	}
	if c.Weave == nil {
		for i := range c.Len {
			out = append(out, c.Off+i)
		}
		return out
	}
	for _, s := range c.Weave.Segs {
		for i := range s.Len {
			if x := s.Off + i; x >= c.Off && x < c.Off+c.Len && (s.Stride == 0 || i%s.Stride < s.Width) {
				out = append(out, x)
			}
		}
	}
	return out
}

// checkWoven checks the chunks from i on that belong to a woven run: in order,
// inside it, without overlap, and with every byte where sums need them; without,
// none begins or ends with a byte that nobody wants.
func (k *planCase) checkWoven(x Run, chunks []Chunk, i int) (int, string) {
	at, end := x.Off, x.Off+x.Len
	for ; i < len(chunks) && chunks[i].Off < end && chunks[i].Off >= at; i++ {
		c := chunks[i]
		if c.Len <= 0 || c.Off+c.Len > end || c.File != x.File || k.Keep && c.Off != at {
			return i, fmt.Sprintf("chunk %d (%+v) does not follow %d", i, c, at)
		}
		if apart := x.Weave.Apart; apart && c.Way != ViaCache && (c.Weave != nil || c.wantedOf(x.Weave) != c.Len) {
			return i, fmt.Sprintf("chunk %d (%+v) has bytes that nobody wants", i, c)
		} else if c.Way == ViaDirectInPlace && !apart {
			return i, fmt.Sprintf("chunk %d (%+v) is read into place", i, c)
		}
		if c.Extra && (!k.Keep || c.wanted() > 0) {
			return i, fmt.Sprintf("chunk %d (%+v) is extra", i, c)
		}
		if c.Weave != nil {
			if c.Weave != nil && c.wanted() == 0 {
				return i, fmt.Sprintf("chunk %d (%+v) delivers nothing", i, c)
			}
			head, tail := c, c
			head.Len, tail.Off, tail.Len = 1, c.Off+c.Len-1, 1
			if !k.Keep && (head.wanted() == 0 || tail.wanted() == 0) {
				return i, fmt.Sprintf("chunk %d (%+v) has an end that nobody wants", i, c)
			}
		}
		if why := k.checkChunk(c, true); why != "" {
			return i, fmt.Sprintf("chunk %d (%+v) %s", i, c, why)
		}
		at = c.Off + c.Len
	}
	if k.Keep && at != end {
		return i, fmt.Sprintf("ends at %d", at)
	}
	return i, ""
}

// splits reports whether chunk i of s ends inside a block to be verified though
// nothing but the planner's choice stands between it and the next chunk.
func (k *planCase) splits(s Segment, chunks []Chunk, i int) bool {
	c := chunks[i]
	end := c.Off + c.Len
	return k.Whole > 0 && k.Chunk%k.Whole == 0 && c.Way == ViaCache && end%k.Whole != 0 && end < s.Off+s.Len &&
		end%k.Chunk != 0 &&
		i+1 < len(chunks) && chunks[i+1].Verdict == c.Verdict && end%k.Leaf != 0 && k.MemAlign == 0
}

// slotFor is the size of the slots that chunks of a way are read into.
func (k *planCase) slotFor(w Way) int64 {
	switch w {
	case ViaCache:
		return k.Chunk
	case ViaCuFile:
		return k.Piece
	}
	return k.Block
}

func (k *planCase) checkChunk(c Chunk, woven bool) string {
	slot, end := k.slotFor(c.Way), c.Off+c.Len
	lo, hi := c.Off/k.Align*k.Align, (end+k.Align-1)/k.Align*k.Align
	if hi-lo > slot {
		return "does not fit a slot when widened to the alignment"
	}
	ragged := k.MemAlign > 0 && c.Len < 2*k.Align // an end of what is read in place
	if c.NoWait && (c.Way != ViaCache || k.known && (!woven || k.Keep) || !k.Direct ||
		k.Route != report.RouteAuto || k.Cache == report.CacheKeep) {
		return "asks for cached bytes where nothing follows from the answer"
	}
	switch c.Way {
	case ViaCache:
		if k.Route == report.RouteDirect && !ragged {
			return "goes through the page cache on route direct"
		}
		return ""
	case ViaFill:
		if k.Route == report.RouteDirect {
			return "goes through the page cache on route direct"
		}
		if !k.known || k.residencyAt(c.Off, c.Len).Cached > 0 {
			return "is said to be absent, and is cached or unknown"
		}
		return ""
	case ViaDirectInPlace:
		switch {
		case k.MemAlign == 0:
			return "is read in place into memory that is not addressable"
		case c.Off%k.Align != 0 || c.Len%k.Align != 0:
			return "is read in place without alignment in the file"
		case int64(c.Dst)%k.MemAlign != 0:
			return "is read in place without alignment in memory"
		}
	case ViaDirect:
		if k.cu && k.Route == report.RouteAuto {
			return "is direct where cuFile is open"
		}
	case ViaCuFile:
		if k.Route == report.RouteCuFile {
			return ""
		}
		if !k.cu {
			return "is read by cuFile where that is not open"
		}
	default:
		return "is read in no known way"
	}
	switch {
	case !k.Direct || k.Route == report.RouteBuffered:
		return "is direct where that is not possible or not wanted"
	case k.Route == report.RouteDirect:
		return ""
	case k.Cache == report.CacheKeep:
		return "is direct although the policy is to keep"
	case !k.known:
		return "is direct although nobody said that it is not cached"
	case !k.clean(c.Off, end):
		return "is direct over dirty pages"
	case k.residencyAt(lo, min(hi, k.size)-lo).Cached >= min(hi, k.size)-lo && c.Len >= k.Leaf:
		return "is direct and wholly cached"
	}
	return ""
}

func TestPlanKeepsItsPromises(t *testing.T) {
	effort.SingleThreaded(t)
	for seed := range uint64(20_000) {
		k := drawCase(random{rand.New(rand.NewPCG(seed, 1))})
		if why := k.check(); why != "" {
			t.Fatalf("seed %d: %s\nparams %+v, size %d, known %v", seed, why, k.Params, k.size, k.known)
		}
	}
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(20) {
		b := make([]byte, 8*64)
		r := rand.New(rand.NewPCG(seed, 2))
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], r.Uint64())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k := drawCase(&tape{b})
		if why := k.check(); why != "" {
			t.Fatalf("%s\nparams %+v, size %d, known %v, segments %+v", why, k.Params, k.size, k.known, k.segs)
		}
	})
}

func TestPlanOfAWarmColdAndDirtyFile(t *testing.T) {
	const leaf, n = 64 << 10, 1 << 20
	all := func(state byte) []byte { return slices.Repeat([]byte{state}, n/testPage) }
	mixed := all(0)
	copy(mixed, slices.Repeat([]byte{1}, n/testPage/2))
	oneDirty := all(0)
	oneDirty[leaf/testPage] = 2
	for _, c := range []struct {
		name          string
		pages         []byte
		cached, dirty int64
	}{
		{"warm", all(1), n, 0},
		{"cold", all(0), 0, 0},
		{"half", mixed, n / 2, 0},
		{"dirty", all(2), n, n},
		{"one dirty page", oneDirty, leaf, leaf},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := planCase{size: n, pages: c.pages, known: true, segs: []Segment{{Len: n, Dst: 0x1000}},
				Params: Params{Chunk: 2 * leaf, Block: leaf / 2, Leaf: leaf, Window: 8 * leaf, Align: testPage, Direct: true,
					Route: report.RouteAuto, Cache: report.CacheAuto, MissLimit: missLimit}}
			chunks, dirty := k.plan()
			var cached int64
			for _, x := range chunks {
				if x.Way == ViaCache || x.Way == ViaFill {
					cached += x.Len
				}
			}
			if cached != c.cached || dirty != c.dirty {
				t.Errorf("%d bytes go through the page cache and %d are noted as dirty, expected %d and %d", cached, dirty,
					c.cached, c.dirty)
			}
		})
	}
}

// unknown answers the planner where nobody can say what is cached.
type unknown struct{ open bool }

func (u unknown) Residency(int64, int64) Residency { return Residency{} }
func (u unknown) CuFile() bool                     { return u.open }

// TestUnknownResidencyKeepsTheVerdictOnCuFile: whoever finds bytes absent asks
// the chunk, not what the planner is deciding for other runs at that moment.
func TestUnknownResidencyKeepsTheVerdictOnCuFile(t *testing.T) {
	for _, open := range []bool{true, false} {
		n := 0
		p := Planner{Params: Params{Chunk: 65536, Block: 65536, Piece: 65536, Leaf: 65536, Window: 65536, Align: 4096,
			Direct: true, Route: report.RouteAuto, Cache: report.CacheAuto},
			Ask: unknown{open: open}}
		for c := range p.Chunks(Run{Segment: Segment{Off: 100, Len: 200_000, Dst: 4096}}) {
			if n++; c.Way != ViaCache || !c.NoWait || c.CuFile != open {
				t.Errorf("open is %v: %+v", open, c)
			}
		}
		if n == 0 {
			t.Error("no chunks")
		}
	}
}
