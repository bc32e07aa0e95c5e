// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"iter"
	"sort"

	"github.com/nebulaio/nebulaio/internal/device"
)

// Way is how a chunk is read.
type Way uint8

const (
	// ViaCache reads what is in the page cache, or may be.
	ViaCache Way = iota
	// ViaFill reads through the page cache what is known to be absent from it:
	// the bytes come from storage and stay cached.
	ViaFill
	// ViaDirect reads past the page cache, into a staging slot.
	ViaDirect
	// ViaDirectInPlace reads past the page cache, straight into the destination.
	ViaDirectInPlace
	// ViaWrite gathers from devices and writes to a file.
	ViaWrite
	// ViaCuFile lets the vendor's library read straight to the destination.
	ViaCuFile
	// ViaNetwork reads the body of a reply into a staging slot, or into place.
	ViaNetwork
	// Ways is how many there are.
	Ways
)

// Verdict is how a piece is read.
type Verdict struct {
	Way Way
	// NoWait: nobody could say what is cached, so the reader asks for cached
	// bytes first and the rest is read past the page cache.
	NoWait bool
	// CuFile: what is then read past it goes through the vendor's library.
	CuFile bool
}

// Chunk is one read and one copy. Its file range lies inside one window of its
// size, aligned to it, so that its aligned superset fits a staging slot.
type Chunk struct {
	File int
	Off  int64
	Len  int64
	Dst  device.Ptr
	// Extra: the bytes are wanted for the sum of their block alone. They are
	// read into a slot and go nowhere.
	Extra bool
	// Weave, if not nil, says what of the bytes is wanted and where it goes:
	// they are read into a slot and packed. Dst is the first one's place.
	Weave *Weave
	// Summed: the bytes were checked as they were read.
	Summed bool
	Verdict
}

// Places yields where the wanted bytes of a chunk go, in order: each place and
// how many bytes.
func (c *Chunk) Places() iter.Seq2[device.Ptr, int64] {
	return func(yield func(device.Ptr, int64) bool) {
		if c.Extra {
			return
		}
		if c.Weave == nil {
			yield(c.Dst, c.Len)
			return
		}
		var at device.Ptr
		var n int64
		segs := c.Weave.Touching(c.Off, c.Off+c.Len)
		for i := range segs {
			s := &segs[i]
			skip := s.Before(c.Off)
			k, dst := s.Before(c.Off+c.Len)-skip, s.Dst+device.Ptr(skip)
			if k > 0 && n > 0 && at+device.Ptr(n) == dst {
				n += k
				continue
			}
			if n > 0 && !yield(at, n) {
				return
			}
			at, n = dst, k
		}
		if n > 0 {
			yield(at, n)
		}
	}
}

// Weave is what is wanted of a stretch of a file of which not everything is:
// segments in order of offset that do not overlap.
type Weave struct{ Segs []Segment }

// Touching yields the segments with bytes in [lo, hi).
func (w *Weave) Touching(lo, hi int64) []Segment {
	a := sort.Search(len(w.Segs), func(i int) bool { return w.Segs[i].Off+w.Segs[i].Len > lo })
	b := a + sort.Search(len(w.Segs)-a, func(i int) bool { return w.Segs[a+i].Off >= hi })
	return w.Segs[a:b]
}

// Narrow makes c, a stretch of the weave, what is to be read of it. Unwanted
// bytes at its ends are left out and a chunk without any other is none, unless
// keep says that their sums are needed. A chunk of which every byte is wanted,
// at one place, becomes a plain one.
func (w *Weave) Narrow(c Chunk, keep bool) (Chunk, bool) {
	segs := w.Touching(c.Off, c.Off+c.Len)
	var n int64
	for i := range segs {
		k := segs[i].Before(c.Off+c.Len) - segs[i].Before(c.Off)
		if k > 0 && n == 0 {
			c.Dst = segs[i].Dst + device.Ptr(segs[i].Before(c.Off))
		}
		n += k
	}
	if n == 0 {
		c.Extra, c.Dst, c.Weave = true, 0, nil
		return c, keep
	}
	if !keep {
		lo, hi := c.Off+c.Len, c.Off
		for i := range segs {
			if s := &segs[i]; s.Before(c.Off+c.Len) > s.Before(c.Off) {
				lo = min(lo, s.first(c.Off))
				hi = max(hi, s.last(c.Off+c.Len))
			}
		}
		c.Off, c.Len = lo, hi-lo
	}
	c.Weave = w
	if len(segs) == 1 && n == c.Len {
		c.Weave = nil
	}
	return c, true
}
