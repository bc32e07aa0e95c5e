// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"iter"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/units"
)

// DefaultGap is the least number of unwanted bytes that is worth a second read:
// a disk that gives 4 GB/s with 16 reads in flight passes over fewer of them
// sooner than it begins another read, and so does a copy out of the page cache.
const DefaultGap = 64 * units.KiB

// StorageBlock is the size of one read from storage. Measured disks give the
// same or more with 16 reads of 512 KiB in flight than with fewer of 4 MiB, and
// the first bytes arrive sooner.
const StorageBlock = 512 * units.KiB

// Run is a stretch of a file that is read as one.
type Run struct {
	Segment        // its range; where every byte is wanted, also their place
	Weave   *Weave // nil: every byte is wanted
	Extra   bool   // read for the sums of its blocks alone
}

// Runs yields what is to be read for the segments: neighbours with fewer than
// gap unwanted bytes between them together, and the rows of a strided segment
// with more between them one by one. Where memory is addressable, long segments
// stay by themselves: they are read into place, and another read is cheaper
// than a second copy.
func Runs(segs []Segment, gap int64, addressable bool) iter.Seq[Run] {
	through := func(s *Segment) bool { return !s.Strided() || s.Stride-s.Width < gap }
	joins := func(s *Segment) bool {
		return s.Len > 0 && through(s) && (s.Strided() || !addressable || s.Len < StorageBlock)
	}
	return func(yield func(Run) bool) {
		for i := 0; i < len(segs); {
			s := &segs[i]
			if !through(s) {
				for off := int64(0); off < s.Len; off += s.Stride {
					row := Segment{File: s.File, Off: s.Off + off, Len: min(s.Width, s.Len-off),
						Dst: s.Dst + device.Ptr(s.Before(s.Off+off))}
					if !yield(Run{Segment: row}) {
						return
					}
				}
				i++
				continue
			}
			j, end := i+1, s.Off+s.Len
			for joins(s) && j < len(segs) && joins(&segs[j]) && segs[j].File == s.File && segs[j].Off >= end &&
				segs[j].Off-end < gap {
				end = segs[j].Off + segs[j].Len
				j++
			}
			x := Run{Segment: s.plain()}
			if j > i+1 || s.Strided() {
				x.Segment = Segment{File: s.File, Off: s.Off, Len: end - s.Off}
				x.Weave = &Weave{segs[i:j:j]}
			}
			if s.Len > 0 && !yield(x) {
				return
			}
			i = j
		}
	}
}
