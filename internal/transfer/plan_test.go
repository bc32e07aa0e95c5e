// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
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
	params
	size  int64  // of the file
	pages []byte // state of each page of the file: bit 0 cached, bit 1 dirty
	known bool
	segs  []Segment
	gap   int64 // of the request
	keep  bool  // unwanted bytes of a run are read too
	ramps int   // chunks that grow to full size at the start
	cu    bool
}

const testPage = 4096

// drawCase makes a case that an engine could meet, with everything small so
// that the boundaries are near.
func drawCase(c choices) planCase {
	var k planCase
	k.align = testPage << c.pick(2)
	k.block = k.align << c.pick(2)
	k.leaf = k.block << c.pick(3)
	k.chunk = k.leaf * (1 + c.pick(4))
	k.window = k.chunk * (1 + c.pick(4))
	if c.pick(2) == 0 {
		k.memAlign = []int64{1, 4, 512, testPage}[c.pick(4)]
	}
	k.direct = c.pick(4) > 0
	k.route = []report.Route{report.RouteAuto, report.RouteAuto, report.RouteBuffered, report.RouteDirect, report.RouteCuFile}[c.pick(5)]
	if k.route == report.RouteDirect {
		k.direct = true // the engine refuses the request otherwise
	}
	k.piece, k.cu = k.align<<c.pick(3), c.pick(3) == 0
	k.cache = []report.CachePolicy{report.CacheAuto, report.CacheKeep, report.CacheBypass}[c.pick(3)]
	k.missLimit = []float64{0, 1.0 / 16, 0.5}[c.pick(3)]
	k.known = c.pick(5) > 0
	k.ramps = int(c.pick(6))
	k.size = 1 + c.pick(6*k.window)
	k.pages = make([]byte, (k.size+testPage-1)/testPage)
	for i := 0; i < len(k.pages); { // in runs, as page caches are
		state := byte(c.pick(8))
		if state > 3 {
			state = []byte{0, 1, 0, 1}[state-4]
		}
		for end := i + 1 + int(c.pick(3*k.leaf/testPage)); i < len(k.pages) && i < end; i++ {
			k.pages[i] = state
		}
	}
	dst := device.Ptr(0x7f0000000000 + c.pick(3*testPage))
	for off := c.pick(k.size); off < k.size && len(k.segs) < 16; {
		n := 1 + c.pick(min(k.size-off, 3*k.window))
		if c.pick(3) == 0 { // in phase with the file, as layouts on the host are
			dst = (dst+testPage-1)/testPage*testPage + device.Ptr(off%testPage)
		}
		k.segs = append(k.segs, Segment{File: 3, Off: off, Len: n, Dst: dst})
		dst += device.Ptr(n + c.pick(100))
		off += n + c.pick(2*testPage)
	}
	if c.pick(2) == 0 { // the file is verified
		k.whole = testPage << c.pick(8)
		k.keep = c.pick(2) == 0
	}
	if c.pick(2) == 0 { // gaps are read through
		k.gap = c.pick(3 * testPage)
		for i := range k.segs {
			if s := &k.segs[i]; c.pick(2) == 0 {
				s.Stride = 1 + c.pick(2*testPage)
				s.Width = 1 + c.pick(s.Stride)
			}
		}
	}
	return k
}

// request is the part of a request that runs follow from.
func (k *planCase) request() *Request {
	r := &Request{Segments: k.segs, Gap: k.gap, Device: host.New()}
	if k.memAlign == 0 {
		r.Device = host.Staged()
	}
	return r
}

// residencyAt answers as the kernel does: in whole pages, cut at the end.
func (k *planCase) residencyAt(off, n int64) residency {
	if !k.known {
		return residency{}
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
	return residency{Residency: r, known: true}
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

func (k *planCase) plan() ([]chunk, int64) {
	var out []chunk
	p := planner{params: k.params, keep: k.keep, residency: k.residencyAt, ramp: k.ramps, ramps: k.ramps, cufile: func() bool { return k.cu }, emit: func(c chunk) { out = append(out, c) }}
	for x := range k.request().runs() {
		p.weave = x.weave
		p.segment(x.Segment)
	}
	return out, p.dirty
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
	for x := range k.request().runs() {
		s := x.Segment
		n++
		if x.weave != nil {
			var why string
			if i, why = k.checkWoven(x, chunks, i); why != "" {
				return fmt.Sprintf("run %d (%+v): %s", n, s, why)
			}
			continue
		}
		at := s.Off
		for ; at < s.Off+s.Len && i < len(chunks); i++ {
			c := chunks[i]
			if c.off != at || c.len <= 0 || c.file != s.File || c.dst != s.Dst+device.Ptr(c.off-s.Off) {
				return fmt.Sprintf("segment %d (%+v): chunk %d is %+v, expected to begin at %d", n, s, i, c, at)
			}
			if why := k.checkChunk(c); why != "" {
				return fmt.Sprintf("chunk %d (%+v) %s", i, c, why)
			}
			at += c.len
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
	if mayDirty := k.direct && k.route == report.RouteAuto && k.known; !mayDirty && dirty != 0 {
		return fmt.Sprintf("%d bytes were noted as dirty where that changes nothing", dirty)
	}
	return ""
}

// sameChunk compares chunks of two plans, whose weaves are two.
func sameChunk(a, b chunk) bool {
	if (a.weave == nil) != (b.weave == nil) || a.weave != nil && !slices.Equal(a.weave.segs, b.weave.segs) {
		return false
	}
	a.weave, b.weave = nil, nil
	return a == b
}

// checkWanted holds T1: each wanted byte goes to its place, once, and nothing
// else is sent. It goes by a straightforward list of where each byte belongs.
func (k *planCase) checkWanted(chunks []chunk) string {
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
		for dst, size := range c.places() {
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

// offsets lists the file offset of each wanted byte of a chunk, byte by byte.
func (c *chunk) offsets() []int64 {
	var out []int64
	if c.extra {
		return nil
	}
	if c.weave == nil {
		for i := range c.len {
			out = append(out, c.off+i)
		}
		return out
	}
	for _, s := range c.weave.segs {
		for i := range s.Len {
			if x := s.Off + i; x >= c.off && x < c.off+c.len && (s.Stride == 0 || i%s.Stride < s.Width) {
				out = append(out, x)
			}
		}
	}
	return out
}

// checkWoven checks the chunks from i on that belong to a woven run: in order,
// inside it, without overlap, and with every byte where sums need them; without,
// none begins or ends with a byte that nobody wants.
func (k *planCase) checkWoven(x run, chunks []chunk, i int) (int, string) {
	at, end := x.Off, x.Off+x.Len
	for ; i < len(chunks) && chunks[i].off < end && chunks[i].off >= at; i++ {
		c := chunks[i]
		if c.len <= 0 || c.off+c.len > end || c.file != x.File || k.keep && c.off != at {
			return i, fmt.Sprintf("chunk %d (%+v) does not follow %d", i, c, at)
		}
		if c.way == viaDirectInPlace {
			return i, fmt.Sprintf("chunk %d (%+v) is read into place", i, c)
		}
		if c.extra && (!k.keep || c.wanted() > 0) {
			return i, fmt.Sprintf("chunk %d (%+v) is extra", i, c)
		}
		if c.weave != nil {
			if c.weave != nil && c.wanted() == 0 {
				return i, fmt.Sprintf("chunk %d (%+v) delivers nothing", i, c)
			}
			head, tail := c, c
			head.len, tail.off, tail.len = 1, c.off+c.len-1, 1
			if !k.keep && (head.wanted() == 0 || tail.wanted() == 0) {
				return i, fmt.Sprintf("chunk %d (%+v) has an end that nobody wants", i, c)
			}
		}
		if why := k.checkChunk(c); why != "" {
			return i, fmt.Sprintf("chunk %d (%+v) %s", i, c, why)
		}
		at = c.off + c.len
	}
	if k.keep && at != end {
		return i, fmt.Sprintf("ends at %d", at)
	}
	return i, ""
}

// splits reports whether chunk i of s ends inside a block to be verified though
// nothing but the planner's choice stands between it and the next chunk.
func (k *planCase) splits(s Segment, chunks []chunk, i int) bool {
	c := chunks[i]
	end := c.off + c.len
	return k.whole > 0 && k.chunk%k.whole == 0 && c.way == viaCache && end%k.whole != 0 && end < s.Off+s.Len && end%k.chunk != 0 &&
		i+1 < len(chunks) && chunks[i+1].verdict == c.verdict && end%k.leaf != 0 && k.memAlign == 0
}

// slotFor is the size of the slots that chunks of a way are read into.
func (k *planCase) slotFor(w way) int64 {
	switch w {
	case viaCache:
		return k.chunk
	case viaCuFile:
		return k.piece
	}
	return k.block
}

func (k *planCase) checkChunk(c chunk) string {
	slot, end := k.slotFor(c.way), c.off+c.len
	lo, hi := c.off/k.align*k.align, (end+k.align-1)/k.align*k.align
	if hi-lo > slot {
		return "does not fit a slot when widened to the alignment"
	}
	ragged := k.memAlign > 0 && c.len < 2*k.align // an end of what is read in place
	if c.nowait && (c.way != viaCache || k.known || !k.direct || k.route != report.RouteAuto || k.cache == report.CacheKeep) {
		return "asks for cached bytes where nothing follows from the answer"
	}
	switch c.way {
	case viaCache:
		if k.route == report.RouteDirect && !ragged {
			return "goes through the page cache on route direct"
		}
		return ""
	case viaFill:
		if k.route == report.RouteDirect {
			return "goes through the page cache on route direct"
		}
		if !k.known || k.residencyAt(c.off, c.len).Cached > 0 {
			return "is said to be absent, and is cached or unknown"
		}
		return ""
	case viaDirectInPlace:
		switch {
		case k.memAlign == 0:
			return "is read in place into memory that is not addressable"
		case c.off%k.align != 0 || c.len%k.align != 0:
			return "is read in place without alignment in the file"
		case int64(c.dst)%k.memAlign != 0:
			return "is read in place without alignment in memory"
		}
	case viaDirect:
		if k.cu && k.route == report.RouteAuto {
			return "is direct where cuFile is open"
		}
	case viaCuFile:
		if k.route == report.RouteCuFile {
			return ""
		}
		if !k.cu {
			return "is read by cuFile where that is not open"
		}
	default:
		return "is read in no known way"
	}
	switch {
	case !k.direct || k.route == report.RouteBuffered:
		return "is direct where that is not possible or not wanted"
	case k.route == report.RouteDirect:
		return ""
	case k.cache == report.CacheKeep:
		return "is direct although the policy is to keep"
	case !k.known:
		return "is direct although nobody said that it is not cached"
	case !k.clean(c.off, end):
		return "is direct over dirty pages"
	case k.residencyAt(lo, min(hi, k.size)-lo).Cached >= min(hi, k.size)-lo && c.len >= k.leaf:
		return "is direct and wholly cached"
	}
	return ""
}

func TestPlanKeepsItsPromises(t *testing.T) {
	for seed := range uint64(20_000) {
		k := drawCase(random{rand.New(rand.NewPCG(seed, 1))})
		if why := k.check(); why != "" {
			t.Fatalf("seed %d: %s\nparams %+v, size %d, known %v", seed, why, k.params, k.size, k.known)
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
			t.Fatalf("%s\nparams %+v, size %d, known %v, segments %+v", why, k.params, k.size, k.known, k.segs)
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
				params: params{chunk: 2 * leaf, block: leaf / 2, leaf: leaf, window: 8 * leaf, align: testPage, direct: true, route: report.RouteAuto, cache: report.CacheAuto, missLimit: missLimit}}
			chunks, dirty := k.plan()
			var cached int64
			for _, x := range chunks {
				if x.way == viaCache || x.way == viaFill {
					cached += x.len
				}
			}
			if cached != c.cached || dirty != c.dirty {
				t.Errorf("%d bytes go through the page cache and %d are noted as dirty, expected %d and %d", cached, dirty, c.cached, c.dirty)
			}
		})
	}
}

// T3, and every thread has a slot to read into, whatever the options.
func TestStagingIsDealtWithinThePool(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 20_000 {
		o := Options{PoolSize: minPoolSize << rng.IntN(14), MaxTransfer: minTransfer + rng.Int64N(minTransfer<<rng.IntN(12)), Workers: rng.IntN(maxWorkers + 1), QueueDepth: rng.IntN(maxQueueDepth + 1)}
		o.PoolSize += rng.Int64N(o.PoolSize)
		d, err := o.tune()
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		switch {
		case d.staging() > o.PoolSize:
			t.Fatalf("%+v: %d bytes of staging", o, d.staging())
		case d.MaxTransfer < minTransfer || d.MaxTransfer > o.MaxTransfer:
			t.Fatalf("%+v: reads of %d", o, d.MaxTransfer)
		case d.block <= 0 || d.MaxTransfer%d.block != 0 || d.block%testPage != 0:
			t.Fatalf("%+v: blocks of %d in reads of %d", o, d.block, d.MaxTransfer)
		case d.Workers < 1 || d.largeSlots < d.Workers:
			t.Fatalf("%+v: %d threads for %d slots", o, d.Workers, d.largeSlots)
		case d.QueueDepth < 1 || d.directSlots < d.QueueDepth:
			t.Fatalf("%+v: %d direct reads for %d slots", o, d.QueueDepth, d.directSlots)
		case d.fillers < 1 || d.smallSlots-d.directSlots < d.fillers:
			t.Fatalf("%+v: %d fillers for %d slots", o, d.fillers, d.smallSlots-d.directSlots)
		}
	}
}

func TestOptionsOutOfRange(t *testing.T) {
	for _, o := range []Options{{PoolSize: 1}, {PoolSize: 1 << 40}, {PoolSize: -1}, {MaxTransfer: 1}, {MaxTransfer: 1 << 40}, {QueueDepth: -1}, {QueueDepth: 1 << 20}, {Workers: -1}, {Workers: 1000}, {IO: "magic"}} {
		if _, err := New(o); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "expected") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
