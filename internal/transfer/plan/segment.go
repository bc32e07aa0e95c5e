// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
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

// Strided reports whether s has bytes that are not wanted.
func (s *Segment) Strided() bool { return s.Stride > s.Width && s.Len > s.Width }

// plain is s, which is not strided, without a stride.
func (s Segment) plain() Segment {
	s.Width, s.Stride = 0, 0
	return s
}

// Wanted is how many bytes of the segment go to its place.
func (s *Segment) Wanted() int64 { return s.Before(s.Off + s.Len) }

// Before is how many wanted bytes of s lie before offset x of the file; it is
// also where in the destination the byte at x goes.
func (s *Segment) Before(x int64) int64 {
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

// Pack copies what s wants of src, the bytes of the file from lo on, to dst and
// returns how many bytes that were. dst may be src or begin inside it, but not
// behind the first wanted byte: bytes only move to the left.
func (s *Segment) Pack(dst, src []byte, lo int64) int64 {
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

// Check refuses a segment whose rows make no sense.
func (s *Segment) Check(path string) error {
	if s.Stride == 0 && s.Width == 0 || s.Width > 0 && s.Stride >= s.Width {
		return nil
	}
	return errs.New(errs.Invalid, "start transfer", path,
		fmt.Sprintf("a segment wants %d bytes out of every %d; expected 1 or more, out of as many or more", s.Width,
			s.Stride))
}
