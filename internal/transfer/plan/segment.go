// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Segment is a range of one file and its destination in device memory.
type Segment struct {
	File int // index into Request.Files
	Off  int64
	Len  int64
	Dst  device.Ptr
	// Width and Stride, in bytes, select rows of a segment. If Stride is not 0, only the first Width bytes of every
	// Stride bytes, counted from Off, are wanted. The wanted bytes are copied to Dst without gaps between them.
	Width, Stride int64
}

// Strided reports whether s has unwanted bytes between its rows.
func (s *Segment) Strided() bool { return s.Stride > s.Width && s.Len > s.Width }

// plain returns s without Width and Stride. s must not be strided.
func (s Segment) plain() Segment {
	s.Width, s.Stride = 0, 0
	return s
}

// Wanted returns the number of bytes of the segment that are copied to the destination.
func (s *Segment) Wanted() int64 { return s.Before(s.Off + s.Len) }

// Before returns the number of wanted bytes of the segment s before file offset x. The result is also the position in
// the destination of the byte at file offset x.
func (s *Segment) Before(x int64) int64 {
	x = min(max(x-s.Off, 0), s.Len)
	if s.Stride == 0 {
		return x
	}
	return x/s.Stride*s.Width + min(x%s.Stride, s.Width)
}

// first returns the offset of the first wanted byte at or after x. If there is none, the result may be behind the
// segment.
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

// last returns the end of the last wanted byte before x. x must be greater than s.Off.
func (s *Segment) last(x int64) int64 {
	n := min(x-s.Off, s.Len)
	if s.Stride > 0 {
		row := (n - 1) / s.Stride * s.Stride
		n = row + min(n-row, s.Width)
	}
	return s.Off + n
}

// Pack copies the wanted bytes of src to dst without gaps, and returns the number of bytes copied. The slice src holds
// the bytes of the file from offset lo on. The slice dst may overlap src, but must not begin after the first wanted
// byte.
func (s *Segment) Pack(dst, src []byte, lo int64) int64 {
	from, to := max(lo, s.Off)-lo, min(lo+int64(len(src)), s.Off+s.Len)-lo
	if from >= to {
		return 0
	}
	if s.Stride == 0 {
		return int64(copy(dst, src[from:to]))
	}
	n := 0
	if in := (lo + from - s.Off) % s.Stride; in > 0 { // the end of a row
		if in < s.Width {
			n = copy(dst, src[from:min(to, from+s.Width-in)])
		}
		from += s.Stride - in
	}
	for ; from+s.Width <= to; from += s.Stride {
		n += copy(dst[n:], src[from:from+s.Width])
	}
	if from < to { // the beginning of a row
		n += copy(dst[n:], src[from:to])
	}
	return int64(n)
}

// Check returns an error if Width and Stride of the segment are not valid.
func (s *Segment) Check(path string) error {
	if s.Stride == 0 && s.Width == 0 || s.Width > 0 && s.Stride >= s.Width {
		return nil
	}
	return errs.New(errs.Invalid, "start transfer", path,
		fmt.Sprintf("a segment wants %d bytes out of every %d; expected 1 or more, out of as many or more", s.Width,
			s.Stride))
}
