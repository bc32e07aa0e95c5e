// SPDX-License-Identifier: Apache-2.0

// Package verify compares what a load reads with the checksums of its files, block by block.
package verify

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Extent is a run of bytes of one file.
type Extent struct {
	File int // index into the files of the load
	Off  int64
	Len  int64
}

// File is one file of a load.
type File struct {
	Path string
	Size int64
	Sums *checksum.Sums // nil: the file is not verified
}

// Block names a block of a file.
type Block struct {
	File  int
	Index int64
}

// Judge hears the verdict on each block, from any goroutine.
type Judge interface {
	// Right is told of a block that has its sum.
	Right(b Block)
	// Wrong returns the error for a block that has another sum. on is the device
	// that summed its last piece, empty: the CPU.
	Wrong(b Block, sum uint64, on string) error
}

// Proof checks what is read against the sums of its files. Each block with a byte
// of a load, or of what is verified besides, is checked as a whole: what of it
// nobody wants is read as well, and dropped.
//
// Pieces and blocks need not have the same bounds. The sums of a block's pieces are
// put together as they come, in any order, and the last piece brings the verdict.
type Proof struct {
	join  *checksum.Joiner
	judge Judge
	files []fileProof // one per file
	// want and got count blocks to check and found right: the load succeeds
	// only when they are equal.
	want int64
	got  atomic.Int64

	mu   sync.Mutex
	open map[Block]*blockSum // blocks of which some pieces have come
}

type fileProof struct {
	sums *checksum.Sums // nil: the file is not verified
	// gaps are the bytes that lie in blocks to be checked and in no load.
	gaps []Extent
}

// blockSum is what has come of a block.
type blockSum struct {
	sum  uint64
	left int64 // bytes yet to come
}

// NewProof checks that the sums fit their files and that no byte is loaded twice. The blocks of also are
// verified though nothing of them is loaded.
func NewProof(files []File, loads iter.Seq[Extent], also []Extent, join *checksum.Joiner, judge Judge) (*Proof, error) {
	p := &Proof{join: join, judge: judge, files: make([]fileProof, len(files)), open: map[Block]*blockSum{}}
	loaded := make([][]Extent, len(files))
	for x := range loads {
		loaded[x.File] = append(loaded[x.File], x)
	}
	touched := make([][]Extent, len(files))
	for _, x := range also {
		if x.File < 0 || x.File >= len(files) || x.Off < 0 || x.Len < 0 || x.Len > files[x.File].Size-x.Off {
			return nil, errs.New(errs.Invalid, "start transfer", fmt.Sprintf("bytes %d+%d of file %d", x.Off, x.Len,
				x.File), "are to be verified and do not exist")
		}
		if x.Len > 0 {
			touched[x.File] = append(touched[x.File], x)
		}
	}
	for i, f := range files {
		if f.Sums == nil {
			continue
		}
		if err := f.Sums.CheckSize(f.Path, f.Size); err != nil {
			return nil, err
		}
		slices.SortFunc(loaded[i], byOffset)
		for k, x := range loaded[i] {
			if k > 0 && loaded[i][k-1].Off+loaded[i][k-1].Len > x.Off {
				return nil, errs.New(errs.Invalid, "start transfer", f.Path,
					fmt.Sprintf("two segments hold byte %d; a transfer that verifies reads each byte once", x.Off))
			}
		}
		p.files[i] = fileProof{sums: f.Sums}
		p.cover(i, loaded[i], append(touched[i], loaded[i]...))
	}
	return p, nil
}

func byOffset(a, b Extent) int { return cmp.Compare(a.Off, b.Off) }

// cover finds what must be read besides loads, which are in order, so that each
// block with a byte of touched is whole.
func (p *Proof) cover(file int, loads, touched []Extent) {
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

// Verifies reports whether a file has sums. A nil proof verifies nothing.
func (p *Proof) Verifies(file int) bool { return p != nil && p.files[file].sums != nil }

// Gaps are, by file and in order of offset, the bytes that must be read besides
// the loads. The caller may cut the slices. A nil proof has none.
func (p *Proof) Gaps() [][]Extent {
	if p == nil {
		return nil
	}
	out := make([][]Extent, len(p.files))
	for i, f := range p.files {
		out[i] = f.gaps
	}
	return out
}

// Files is how many files are verified.
func (p *Proof) Files() (n int) {
	for _, f := range p.files {
		if f.sums != nil {
			n++
		}
	}
	return n
}

// Blocks is how many blocks were found right so far.
func (p *Proof) Blocks() int64 { return p.got.Load() }

// Settled fails when blocks are missing after every byte was read.
func (p *Proof) Settled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.got.Load(); got != p.want || len(p.open) > 0 {
		return errs.New(errs.Other, "verify", "",
			fmt.Sprintf("%d of %d blocks were checked without an error; this is a defect", got, p.want))
	}
	return nil
}
