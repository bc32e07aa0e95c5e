// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"iter"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/units"
)

// DefaultGap is the smallest number of unwanted bytes between two segments for which two reads from storage are faster
// than one read across the gap. A disk that reads 4 GB/s with 16 reads in flight reads fewer than DefaultGap bytes
// faster than it begins another read. For the page cache, the limit is smaller: see Weave.ByRows.
const DefaultGap = 64 * units.KiB

// StorageBlock is the size of one read from storage in bytes. On measured disks, 16 reads of 512 KiB in flight are at
// least as fast as fewer reads of 4 MiB, and the first bytes arrive sooner.
const StorageBlock = 512 * units.KiB

// longSegment is the size in bytes from which on a segment is read by itself on every device. cuFile can then read the
// segment into the memory of a GPU. What is read together is packed in host memory.
const longSegment = 16 * units.MiB

// Run is a contiguous range of a file that is read as a whole.
type Run struct {
	Segment        // range in the file; its Dst is used only if every byte is wanted
	Weave   *Weave // the wanted segments of the run; nil if every byte is wanted
	Extra   bool   // true if the bytes are read only for the checksums of their blocks
}

// Runs yields the file ranges to read for the segments. Neighbouring segments are read together if fewer than `gap`
// unwanted bytes are between them. If `gap` or more unwanted bytes are between the rows of a strided segment, each row
// is a run of its own. But if joint returns true for the file, these rows are one run with a Weave that is Apart.
// Segments of 16 MiB or more are not read together with others. If the CPU can address the destination, shorter
// segments are not either, because the copy from a staging slot would cost more than a second read.
func Runs(segs []Segment, gap int64, addressable bool, joint func(file int) bool) iter.Seq[Run] {
	through := func(s *Segment) bool { return !s.Strided() || s.Stride-s.Width < gap }
	long := int64(longSegment)
	if addressable {
		long = StorageBlock
	}
	joins := func(s *Segment) bool { return s.Len > 0 && through(s) && (s.Strided() || s.Len < long) }
	return func(yield func(Run) bool) {
		for i := 0; i < len(segs); {
			s := &segs[i]
			if !through(s) && joint(s.File) {
				x := Run{Segment: Segment{File: s.File, Off: s.Off, Len: s.Len},
					Weave: &Weave{Segs: segs[i : i+1 : i+1], Apart: true}}
				if s.Len > 0 && !yield(x) {
					return
				}
				i++
				continue
			}
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
				x.Weave = &Weave{Segs: segs[i:j:j]}
			}
			if s.Len > 0 && !yield(x) {
				return
			}
			i = j
		}
	}
}
