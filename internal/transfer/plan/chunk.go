// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"iter"
	"sort"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Way is the method by which a worker reads a chunk.
type Way uint8

const (
	// ViaCache is a read through the page cache, for bytes that are or may be in it.
	ViaCache Way = iota
	// ViaFill is a read through the page cache, for bytes that are known not to be in it. With ViaFill, the bytes come
	// from storage and stay in the page cache.
	ViaFill
	// ViaDirect reads with O_DIRECT into a staging slot.
	ViaDirect
	// ViaDirectInPlace reads with O_DIRECT directly into the destination.
	ViaDirectInPlace
	// ViaWrite copies bytes from devices and writes them to a file.
	ViaWrite
	// ViaCuFile lets libcufile read directly into the destination.
	ViaCuFile
	// ViaNetwork reads the body of a server's reply into a staging slot or into the destination.
	ViaNetwork
	// Ways is the number of values of Way.
	Ways
)

// Verdict is the planner's decision on how a file range is read.
type Verdict struct {
	Way Way
	// NoWait is set if it is unknown which bytes of the range are in the page cache. With NoWait, the reader first
	// reads the cached bytes with RWF_NOWAIT; all other bytes are read with O_DIRECT or cuFile.
	NoWait bool
	// If NoWait and CuFile are set, libcufile reads the bytes that are not in the page cache.
	CuFile bool
}

// Chunk is a file range for one read and one copy. A chunk does not cross a multiple of the chunk size, so the chunk
// fits into one staging slot even when its ends are extended to the alignment of O_DIRECT.
type Chunk struct {
	File int
	Off  int64
	Len  int64
	Dst  device.Ptr
	// Extra is set if the bytes of the chunk are read only for the checksum of their block. The bytes of an Extra
	// chunk are read into a staging slot and not copied to the device.
	Extra bool
	// Weave, if not nil, says which bytes of the chunk are wanted, and their destinations. With a Weave, the chunk is
	// read into a staging slot, where the wanted bytes are packed, and Dst is the destination of the first wanted
	// byte.
	Weave *Weave
	// Fetched is the number of bytes of the chunk that the load itself has just brought from storage into the page
	// cache.
	Fetched int64
	// Exchanged is set if the bytes of the chunk are in memory that the load shares with loads in other processes.
	Exchanged bool
	// Summed is set if the checksums of the chunk's bytes were already compared during the read.
	Summed bool
	Verdict
}

// Places yields the destinations of the wanted bytes of a chunk, in order. Each destination is an address and a
// number of bytes.
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

// Weave lists the segments of a file range that has unwanted bytes between its segments. The segments of a Weave are
// sorted by offset and do not overlap.
type Weave struct {
	Segs []Segment
	// Apart is set if no unwanted byte may be read. The Weave is then only in chunks that are read from the page cache;
	// otherwise each row is a chunk.
	Apart bool
}

// Rows yields the rows of wanted bytes in the file range [lo, hi), in order of offset. Each row is a segment without
// unwanted bytes.
func (w *Weave) Rows(lo, hi int64) iter.Seq[Segment] {
	return func(yield func(Segment) bool) {
		segs := w.Touching(lo, hi)
		for i := range segs {
			s := &segs[i]
			for off, end := s.first(max(lo, s.Off)), min(hi, s.Off+s.Len); off < end; {
				stop := end
				if s.Strided() {
					stop = min(end, off+s.Width-(off-s.Off)%s.Stride)
				}
				row := Segment{File: s.File, Off: off, Len: stop - off, Dst: s.Dst + device.Ptr(s.Before(off))}
				if !yield(row) {
					return
				}
				off = s.first(stop)
			}
		}
	}
}

// wanted returns the number of wanted bytes of the file range [lo, hi).
func (w *Weave) wanted(lo, hi int64) (n int64) {
	segs := w.Touching(lo, hi)
	for i := range segs {
		n += segs[i].Before(hi) - segs[i].Before(lo)
	}
	return n
}

// rowGap is the smallest mean number of unwanted bytes between two rows for which the rows are copied from the page
// cache one by one. Fewer unwanted bytes are copied faster than another system call is made.
const rowGap = 4 * units.KiB

// ByRows reports whether the rows in the file range [lo, hi) are to be copied from the page cache one by one. If not,
// one read copies the rows and the unwanted bytes between them.
func (w *Weave) ByRows(lo, hi int64) bool {
	if w.Apart {
		return true
	}
	segs := w.Touching(lo, hi)
	rows := int64(len(segs))
	for i := range segs {
		if s := &segs[i]; s.Strided() {
			rows += (min(hi, s.Off+s.Len) - max(lo, s.Off)) / s.Stride
		}
	}
	return hi-lo-w.wanted(lo, hi) >= max(1, rows-1)*rowGap
}

// Touching returns the segments that have bytes in the file range [lo, hi).
func (w *Weave) Touching(lo, hi int64) []Segment {
	a := sort.Search(len(w.Segs), func(i int) bool { return w.Segs[i].Off+w.Segs[i].Len > lo })
	b := a + sort.Search(len(w.Segs)-a, func(i int) bool { return w.Segs[a+i].Off >= hi })
	return w.Segs[a:b]
}

// Narrow returns the part of chunk c that must be read, and false if nothing must be read. Narrow removes unwanted
// bytes at the ends of c, unless the parameter `keep` is set because checksums need these bytes. If every remaining
// byte is wanted and the destination is contiguous, the result has no Weave.
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
