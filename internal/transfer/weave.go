// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"iter"
	"sort"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// DefaultGap is the least number of unwanted bytes that is worth a second read:
// a disk that gives 4 GB/s with 16 reads in flight passes over fewer of them
// sooner than it begins another read, and so does a copy out of the page cache.
const DefaultGap = 64 * units.KiB

// strided reports whether s has bytes that are not wanted.
func (s *Segment) strided() bool { return s.Stride > s.Width && s.Len > s.Width }

// plain is s, which is not strided, without a stride.
func (s Segment) plain() Segment {
	s.Width, s.Stride = 0, 0
	return s
}

// Wanted is how many bytes of the segment go to its place.
func (s *Segment) Wanted() int64 { return s.before(s.Off + s.Len) }

// before is how many wanted bytes of s lie before offset x of the file; it is
// also where in the destination the byte at x goes.
func (s *Segment) before(x int64) int64 {
	x = min(max(x-s.Off, 0), s.Len)
	if s.Stride == 0 {
		return x
	}
	return x/s.Stride*s.Width + min(x%s.Stride, s.Width)
}

// first is the offset of the first wanted byte at x or behind it; it may lie
// behind the segment, where there is none.
func (s *Segment) first(x int64) int64 {
	if x <= s.Off {
		return s.Off
	}
	if s.Stride > 0 {
		if in := (x - s.Off) % s.Stride; in >= s.Width {
			return x - in + s.Stride
		}
	}
	return x
}

// last is the end of the last wanted byte before x, which lies behind s.Off.
func (s *Segment) last(x int64) int64 {
	n := min(x-s.Off, s.Len)
	if s.Stride > 0 {
		row := (n - 1) / s.Stride * s.Stride
		n = row + min(n-row, s.Width)
	}
	return s.Off + n
}

// pack copies what s wants of src, the bytes of the file from lo on, to dst and
// returns how many bytes that were. dst may be src or begin inside it, but not
// behind the first wanted byte: bytes only move to the left.
func (s *Segment) pack(dst, src []byte, lo int64) int64 {
	from, to := max(lo, s.Off)-lo, min(lo+int64(len(src)), s.Off+s.Len)-lo
	if from >= to {
		return 0
	}
	if s.Stride == 0 {
		return int64(copy(dst, src[from:to]))
	}
	n := 0
	if in := (lo + from - s.Off) % s.Stride; in > 0 { // the rest of a row
		if in < s.Width {
			n = copy(dst, src[from:min(to, from+s.Width-in)])
		}
		from += s.Stride - in
	}
	for ; from+s.Width <= to; from += s.Stride {
		n += copy(dst[n:], src[from:from+s.Width])
	}
	if from < to { // the beginning of one
		n += copy(dst[n:], src[from:to])
	}
	return int64(n)
}

// weave is what is wanted of a stretch of a file of which not everything is:
// segments in order of offset that do not overlap.
type weave struct{ segs []Segment }

// touching yields the segments with bytes in [lo, hi).
func (w *weave) touching(lo, hi int64) []Segment {
	a := sort.Search(len(w.segs), func(i int) bool { return w.segs[i].Off+w.segs[i].Len > lo })
	b := a + sort.Search(len(w.segs)-a, func(i int) bool { return w.segs[a+i].Off >= hi })
	return w.segs[a:b]
}

// narrow makes c, a stretch of the weave, what is to be read of it. Unwanted
// bytes at its ends are left out and a chunk without any other is none, unless
// keep says that their sums are needed. A chunk of which every byte is wanted,
// at one place, becomes a plain one.
func (w *weave) narrow(c chunk, keep bool) (chunk, bool) {
	segs := w.touching(c.off, c.off+c.len)
	var n int64
	for i := range segs {
		k := segs[i].before(c.off+c.len) - segs[i].before(c.off)
		if k > 0 && n == 0 {
			c.dst = segs[i].Dst + device.Ptr(segs[i].before(c.off))
		}
		n += k
	}
	if n == 0 {
		c.extra, c.dst, c.weave = true, 0, nil
		return c, keep
	}
	if !keep {
		lo, hi := c.off+c.len, c.off
		for i := range segs {
			if s := &segs[i]; s.before(c.off+c.len) > s.before(c.off) {
				lo = min(lo, s.first(c.off))
				hi = max(hi, s.last(c.off+c.len))
			}
		}
		c.off, c.len = lo, hi-lo
	}
	c.weave = w
	if len(segs) == 1 && n == c.len {
		c.weave = nil
	}
	return c, true
}

// wanted is how many bytes of the chunk are delivered.
func (c *chunk) wanted() int64 {
	switch {
	case c.extra:
		return 0
	case c.weave == nil:
		return c.len
	}
	var n int64
	for _, k := range c.places() {
		n += k
	}
	return n
}

// places yields where the wanted bytes of a chunk go, in order: each place and
// how many bytes.
func (c *chunk) places() iter.Seq2[device.Ptr, int64] {
	return func(yield func(device.Ptr, int64) bool) {
		if c.extra {
			return
		}
		if c.weave == nil {
			yield(c.dst, c.len)
			return
		}
		var at device.Ptr
		var n int64
		segs := c.weave.touching(c.off, c.off+c.len)
		for i := range segs {
			s := &segs[i]
			skip := s.before(c.off)
			k, dst := s.before(c.off+c.len)-skip, s.Dst+device.Ptr(skip)
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

// inPlace reports whether a chunk is read through the page cache straight into
// its place.
func (t *Transfer) inPlace(c chunk) bool {
	return t.port.mapper != nil && !c.extra && c.weave == nil
}

// verifies reports whether every byte of a file's chunks is summed.
func (t *Transfer) verifies(file int) bool {
	return t.proof != nil && t.proof.files[file].sums != nil
}

// deliverWoven packs what is wanted of data, the bytes of c in slot s, and
// sends it off; where memory is addressable it is packed straight into place.
func (e *Engine) deliverWoven(t *Transfer, c chunk, data []byte, s *slot) {
	start := time.Now()
	segs := c.weave.touching(c.off, c.off+c.len)
	var n int64
	for i := range segs {
		x := &segs[i]
		to := data[n:]
		if m := t.port.mapper; m != nil {
			skip := x.before(c.off)
			to = m.Map(x.Dst+device.Ptr(skip), x.before(c.off+c.len)-skip)
		}
		n += x.pack(to, data, c.off)
	}
	t.tally.packed(n, start)
	if t.port.mapper != nil || n == 0 {
		t.placePeers(c)
		t.ready.landed(c)
		e.sched.done(t, n)
		return
	}
	e.sendAll(t, c, data[:n], s, nil, func() error {
		var at int64
		for dst, k := range c.places() {
			if err := t.port.queue.CopyIn(dst, data[at:at+k]); err != nil {
				if at > 0 { // copies of this chunk are queued, and no mark is behind them
					err = errors.Join(err, t.port.queue.Drain())
				}
				return err
			}
			at += k
		}
		return nil
	})
}

// run is a stretch of a file that is read as one.
type run struct {
	Segment        // its range; where every byte is wanted, also their place
	weave   *weave // nil: every byte is wanted
	extra   bool   // read for the sums of its blocks alone
}

// runs yields what is to be read for the segments: neighbours with fewer than
// Gap unwanted bytes between them together, and the rows of a strided segment
// with more between them one by one. Where memory is addressable, long segments
// stay by themselves: they are read into place, and another read is cheaper
// than a second copy.
func (r *Request) runs() iter.Seq[run] {
	_, addressable := r.Device.(device.Mapper)
	through := func(s *Segment) bool { return !s.strided() || s.Stride-s.Width < r.Gap }
	joins := func(s *Segment) bool {
		return s.Len > 0 && through(s) && (s.strided() || !addressable || s.Len < storageBlock)
	}
	return func(yield func(run) bool) {
		segs := r.Segments
		for i := 0; i < len(segs); {
			s := &segs[i]
			if !through(s) {
				for off := int64(0); off < s.Len; off += s.Stride {
					row := Segment{File: s.File, Off: s.Off + off, Len: min(s.Width, s.Len-off), Dst: s.Dst + device.Ptr(s.before(s.Off+off))}
					if !yield(run{Segment: row}) {
						return
					}
				}
				i++
				continue
			}
			j, end := i+1, s.Off+s.Len
			for joins(s) && j < len(segs) && joins(&segs[j]) && segs[j].File == s.File && segs[j].Off >= end && segs[j].Off-end < r.Gap {
				end = segs[j].Off + segs[j].Len
				j++
			}
			x := run{Segment: s.plain()}
			if j > i+1 || s.strided() {
				x.Segment = Segment{File: s.File, Off: s.Off, Len: end - s.Off}
				x.weave = &weave{segs[i:j:j]}
			}
			if s.Len > 0 && !yield(x) {
				return
			}
			i = j
		}
	}
}

// checkStride refuses a segment whose rows make no sense.
func (s *Segment) checkStride(path string) error {
	if s.Stride == 0 && s.Width == 0 || s.Width > 0 && s.Stride >= s.Width {
		return nil
	}
	return errs.New(errs.Invalid, "start transfer", path, fmt.Sprintf("a segment wants %d bytes out of every %d; expected 1 or more, out of as many or more", s.Width, s.Stride))
}
