// SPDX-License-Identifier: Apache-2.0

// Package gather reads many ranges of many files into device memory as one job.
package gather

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Segment is a range of one file, its destination and its name in errors. File is an index into Request.Files.
type Segment struct {
	transfer.Segment
	Label string // name of the content, such as the name of a tensor; may be empty
}

// name returns the name of segment i in errors.
func (s *Segment) name(i int) string {
	if s.Label == "" {
		return fmt.Sprintf("segment %d", i)
	}
	return fmt.Sprintf("segment %d (%q)", i, s.Label)
}

// Opened is an open file with the checksums of its blocks. Sums is nil if the request does not verify.
type Opened struct {
	File *vfs.File
	Sums *checksum.Sums
}

// Opener opens the files of a request, a few at a time.
type Opener interface {
	// Open opens files; its two results have an entry for each name. If verify is set, each file comes with its checksums,
	// or with an error of kind NotFound. The caller closes the files.
	Open(ctx context.Context, names []string, verify bool) ([]Opened, []error)
}

// Request is a request to read ranges of files into the memory of one device.
type Request struct {
	Device device.Device
	Files  []string // names that Opener.Open takes; files without a segment are not opened
	// Segments may be in any order, and may overlap in the file. Destinations that overlap receive bytes of any of
	// their segments.
	Segments []Segment
	Opener   Opener
	Route    report.Route
	Cache    report.CachePolicy
	// Stream is a CUDA stream of the caller and is used if HasStream is set. Copies begin after the work that is
	// already queued on the stream.
	Stream    uint64
	HasStream bool
	// Verify compares every file block that has a byte of a segment with the file's checksums.
	Verify bool
	// Gap is the smallest number of unwanted bytes in a file across which nothing is read; 0 means transfer.DefaultGap.
	Gap int64
}

// gap returns the gap of the request.
func (r *Request) gap() int64 {
	if r.Gap == 0 {
		return transfer.DefaultGap
	}
	return r.Gap
}

// Limits of a request.
const (
	// mostOffset is the largest accepted end of a segment in its file.
	mostOffset = 1 << 62
	// mostRows bounds the rows of all segments that are read one by one, because each row is an entry of the plan.
	mostRows = 4 << 20
)

// check returns the number of wanted bytes, or an error if the request is not valid.
func (r *Request) check() (total int64, err error) {
	if r.Route == report.RouteCuFile && r.Verify {
		return 0, errs.New(errs.Invalid, "gather", "route cufile",
			"cannot be verified: cuFile reads into place, and the rest of a block has none").WithFix("use route auto")
	}
	if r.Gap < 0 {
		return 0, errs.New(errs.Invalid, "gather", fmt.Sprintf("gap %d", r.Gap), "is negative; expected bytes from 0 up")
	}
	rows := int64(0)
	for i := range r.Segments {
		s := &r.Segments[i]
		bad := func(msg string) error {
			on := s.name(i)
			if s.File >= 0 && s.File < len(r.Files) {
				on += " of " + r.Files[s.File]
			}
			return errs.New(errs.Invalid, "gather", on, msg)
		}
		switch {
		case s.File < 0 || s.File >= len(r.Files):
			return 0, bad(fmt.Sprintf("names file %d; expected one of the %d files, counted from 0", s.File, len(r.Files)))
		case s.Off < 0 || s.Len < 0 || s.Off > mostOffset || s.Len > mostOffset-s.Off:
			return 0, bad(fmt.Sprintf("has %d bytes at offset %d; expected both from 0 up, and an end of at most 2^62",
				s.Len, s.Off))
		case s.Check(r.Files[s.File]) != nil:
			return 0, bad(fmt.Sprintf("wants %d bytes out of every %d; expected a width of 1 or more, and a stride of as "+
				"many or more (or 0 for both)", s.Width, s.Stride))
		}
		n := s.Wanted()
		switch {
		case !s.Dst.Holds(n):
			return 0, bad(fmt.Sprintf("has the address 0x%x; expected an address that %d bytes can begin at", uint64(s.Dst), n))
		case n > mostOffset-total:
			return 0, bad("brings the request to more than 2^62 bytes")
		}
		total += n
		if s.Strided() && s.Stride-s.Width >= r.gap() {
			if rows += (s.Len + s.Stride - 1) / s.Stride; rows > mostRows {
				return 0, errs.New(errs.Invalid, "gather", s.name(i)+" of "+r.Files[s.File], fmt.Sprintf(
					"brings the request to more than %d rows that are read one by one", mostRows)).
					WithFix("read whole rows and cut them in memory, or gather in several calls")
			}
		}
	}
	return total, nil
}

// part is what one open file delivers: segments of one name, in order of offset.
type part struct {
	name string
	segs []Segment
	at   []int // index of each segment in Request.Segments
}

// parts groups the segments by file, in the order of the files, and sorts them by offset. The segments of a verified
// file must not overlap in one transfer, so overlapping segments become further parts of the same name.
func (r *Request) parts() []part {
	byFile := make([][]int, len(r.Files))
	for i := range r.Segments {
		byFile[r.Segments[i].File] = append(byFile[r.Segments[i].File], i)
	}
	var out []part
	for file, list := range byFile {
		slices.SortStableFunc(list, func(a, b int) int {
			x, y := &r.Segments[a], &r.Segments[b]
			return cmp.Or(cmp.Compare(x.Off, y.Off), cmp.Compare(x.Len, y.Len))
		})
		first := len(out)
		var ends []int64 // end of the last segment of each part of this file
		for _, i := range list {
			s := r.Segments[i]
			k := 0
			for r.Verify && k < len(ends) && ends[k] > s.Off {
				k++
			}
			if k == len(ends) {
				out, ends = append(out, part{name: r.Files[file]}), append(ends, 0)
			}
			p := &out[first+k]
			p.segs, p.at, ends[k] = append(p.segs, s), append(p.at, i), max(ends[k], s.Off+s.Len)
		}
	}
	return out
}
