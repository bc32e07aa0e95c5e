// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Extent is a run of bytes of one file.
type Extent struct {
	File int // index into Request.Files
	Off  int64
	Len  int64
}

// proof checks what is read against the sums of its file. Each block that a
// segment or a Request.Also touches is checked as a whole: what of it nobody
// wants is read as well, and dropped.
//
// Chunks and blocks need not have the same bounds. A chunk is summed by the
// device that it was copied to (devicesum.go), or else by the worker that read it,
// while it is hot in that core's cache and before it is sent; the sums of a
// block's pieces are put together as they come, in any order, and the last piece
// brings the verdict.
type proof struct {
	join  *checksum.Joiner
	files []fileProof // one per file
	// want and got count blocks to check and found right: the transfer succeeds
	// only when they are equal.
	want int64
	got  atomic.Int64

	mu   sync.Mutex
	open map[blockID]*blockSum // blocks of which some pieces have come
}

type fileProof struct {
	sums *checksum.Sums // nil: the file is not verified
	// gaps are the bytes that lie in blocks to be checked and in no segment.
	gaps []Extent
}

type blockID struct {
	file  int
	block int64
}

// blockSum is what has come of a block.
type blockSum struct {
	sum  uint64
	left int64 // bytes yet to come
}

// newProof checks that the sums fit the request, and returns nil where it has none.
func newProof(r *Request, join *checksum.Joiner) (*proof, error) {
	if !slices.ContainsFunc(r.Verify, func(s *checksum.Sums) bool { return s != nil }) {
		return nil, nil
	}
	if len(r.Verify) != len(r.Files) {
		return nil, errs.New(errs.Invalid, "start transfer", "", fmt.Sprintf("sums of %d files given, expected %d, one per file", len(r.Verify), len(r.Files)))
	}
	p := &proof{join: join, files: make([]fileProof, len(r.Files)), open: map[blockID]*blockSum{}}
	loads := make([][]Extent, len(r.Files))
	for s := range r.runs() {
		loads[s.File] = append(loads[s.File], Extent{s.File, s.Off, s.Len})
	}
	touched := make([][]Extent, len(r.Files))
	for _, x := range r.Also {
		if x.File < 0 || x.File >= len(r.Files) || x.Off < 0 || x.Len < 0 || x.Len > r.Files[x.File].Size()-x.Off {
			return nil, errs.New(errs.Invalid, "start transfer", fmt.Sprintf("bytes %d+%d of file %d", x.Off, x.Len, x.File), "are to be verified and do not exist")
		}
		if x.Len > 0 {
			touched[x.File] = append(touched[x.File], x)
		}
	}
	for i, s := range r.Verify {
		if s == nil {
			continue
		}
		if err := s.CheckSize(r.Files[i].Path(), r.Files[i].Size()); err != nil {
			return nil, err
		}
		slices.SortFunc(loads[i], byOffset)
		for k, x := range loads[i] {
			if k > 0 && loads[i][k-1].Off+loads[i][k-1].Len > x.Off {
				return nil, errs.New(errs.Invalid, "start transfer", r.Files[i].Path(), fmt.Sprintf("two segments hold byte %d; a transfer that verifies reads each byte once", x.Off))
			}
		}
		p.files[i] = fileProof{sums: s}
		p.cover(i, loads[i], append(touched[i], loads[i]...))
	}
	return p, nil
}

func byOffset(a, b Extent) int { return cmp.Compare(a.Off, b.Off) }

// cover finds what must be read besides loads, which are in order, so that each
// block with a byte of touched is whole.
func (p *proof) cover(file int, loads, touched []Extent) {
	f := &p.files[file]
	slices.SortFunc(touched, byOffset)
	next := int64(0) // blocks before it are covered
	gap := func(lo, hi int64) {
		if lo < hi {
			f.gaps = append(f.gaps, Extent{file, lo, hi - lo})
		}
	}
	for _, x := range touched {
		first, end := max(next, x.Off/f.sums.Block), (x.Off+x.Len-1)/f.sums.Block+1
		if first >= end {
			continue
		}
		p.want += end - first
		next = end
		at, stop := first*f.sums.Block, min(end*f.sums.Block, f.sums.Size)
		for len(loads) > 0 && loads[0].Off < stop {
			l := loads[0]
			gap(at, l.Off)
			at = max(at, min(l.Off+l.Len, stop))
			if l.Off+l.Len > stop {
				break // the rest of it lies in the next run of blocks
			}
			loads = loads[1:]
		}
		gap(at, stop)
	}
}

// check sums data, the bytes of c, and compares each block that it completes.
func (t *Transfer) check(c plan.Chunk, data []byte) error {
	p := t.proof
	f := &p.files[c.File]
	if f.sums == nil {
		return nil
	}
	defer t.tally.verified(int64(len(data)), time.Now())
	for off := c.Off; len(data) > 0; {
		i := off / f.sums.Block
		lo, n := f.sums.Extent(i)
		part := data[:min(int64(len(data)), lo+n-off)]
		data = data[len(part):]
		off += int64(len(part))
		if err := t.checkPiece(c.File, i, off-int64(len(part)), off, checksum.Of(part), ""); err != nil {
			return err
		}
	}
	return nil
}

// checkPiece takes the sum of a piece of a block, from one offset of the file to
// another, and compares the block where it was the last. on is the device that
// summed it, empty: the CPU.
func (t *Transfer) checkPiece(file int, block, from, to int64, sum uint64, on string) error {
	p := t.proof
	s, id := p.files[file].sums, blockID{file, block}
	lo, n := s.Extent(block)
	if to < lo+n {
		sum = p.join.After(sum, lo+n-to)
	}
	sum, whole := p.add(id, n, to-from, sum)
	if !whole {
		return nil
	}
	if sum != s.Blocks[block] {
		return t.mismatch(file, block, sum, on)
	}
	p.got.Add(1)
	t.ready.right(id)
	return nil
}

// hotPiece is how much is read out of the page cache before it is summed. It is
// then still near the core that copied it, where summing is faster than over a
// whole chunk afterwards; smaller pieces cost more in calls than they gain.
const hotPiece = units.MiB

// readSummed reads a chunk of a verified file through the page cache to buf and
// checks it piece by piece.
func (t *Transfer) readSummed(c plan.Chunk, buf []byte) error {
	f := t.req.Files[c.File]
	var all vfs.Buffered
	var reading time.Duration
	hit, known := f.CachedBytes(c.Off, c.Len)
	for at := int64(0); at < c.Len; at += hotPiece {
		piece := c
		piece.Off, piece.Len = c.Off+at, min(hotPiece, c.Len-at)
		data := buf[at : at+piece.Len]
		start := time.Now()
		b, err := readPiece(f, data, piece.Off, known)
		if err != nil {
			return err
		}
		reading += time.Since(start)
		all.Cached, all.Missed = all.Cached+b.Cached, all.Missed+b.Missed
		if err := t.check(piece, data); err != nil {
			return err
		}
	}
	if known {
		all = vfs.Buffered{Cached: hit, Missed: c.Len - hit}
	}
	t.countBuffered(c, all, time.Now().Add(-reading))
	return nil
}

// readPiece reads through the page cache. Where it is known already what of the
// whole chunk was cached, nobody is asked again: the kernel reads ahead, and what
// one piece brings in would count as cached for the next.
func readPiece(f *vfs.File, p []byte, off int64, known bool) (vfs.Buffered, error) {
	if !known {
		return f.ReadBuffered(p, off)
	}
	_, err := f.ReadAt(p, off)
	return vfs.Buffered{}, err
}

// gapsByFile are the gaps of each file in order of offset; the caller may cut them.
func (p *proof) gapsByFile() [][]Extent {
	if p == nil {
		return nil
	}
	out := make([][]Extent, len(p.files))
	for i, f := range p.files {
		out[i] = f.gaps
	}
	return out
}

// add joins a piece of n bytes to its block of size bytes and tells, when the
// block is whole, its sum.
func (p *proof) add(id blockID, size, n int64, sum uint64) (uint64, bool) {
	if n == size {
		return sum, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.open[id]
	if b == nil {
		b = &blockSum{left: size}
		p.open[id] = b
	}
	b.sum ^= sum
	if b.left -= n; b.left > 0 {
		return 0, false
	}
	delete(p.open, id)
	return b.sum, true
}

func (t *Transfer) mismatch(file int, block int64, got uint64, on string) error {
	path, s := t.req.Files[file].Path(), t.req.Verify[file]
	off, n := s.Extent(block)
	msg := fmt.Sprintf("block %d, bytes %d to %d, differs from %s: its checksum is %016x, expected %016x",
		block, off, off+n, checksum.Path(path), got, s.Blocks[block])
	if f := t.req.Files[file]; f.Remote() != nil || f.Passed() {
		return t.remoteMismatch(file, block, got, on)
	}
	msg += summedOn(on)
	if t.req.Holds != nil {
		msg += "; it holds " + t.req.Holds(file, off, n)
	}
	return errs.New(errs.Corrupt, "verify", path, msg).
		WithFix("get the file again from a good copy; if it was changed on purpose: " + checksum.Remedy(path))
}

// summedOn is the word in an error that a device looked at what it had got.
func summedOn(on string) string {
	if on == "" {
		return ""
	}
	return ", summed on " + on + " where it had arrived"
}

// settled fails when blocks are missing after every chunk was delivered.
func (p *proof) settled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.got.Load(); got != p.want || len(p.open) > 0 {
		return errs.New(errs.Other, "verify", "", fmt.Sprintf("%d of %d blocks were checked without an error; this is a defect", got, p.want))
	}
	return nil
}

func (t *Transfer) describeVerify(r *report.Report) {
	p := t.proof
	if p == nil {
		return
	}
	v := &report.Verification{Algorithm: "crc64nvme"}
	for _, f := range p.files {
		if f.sums != nil {
			v.Files++
		}
	}
	v.Blocks = p.got.Load()
	t.tally.mu.Lock()
	v.Bytes, v.Extra, v.Busy = t.tally.verify.bytes, t.tally.extra.bytes, t.tally.verify.busy.Seconds()
	v.DeviceBytes = t.tally.onDevice
	t.tally.mu.Unlock()
	r.Verify = v
	t.describePlace(r, v)
}
