// SPDX-License-Identifier: Apache-2.0

// Package verify compares the bytes that a load reads with the checksums of its files, block by block.
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

// Extent is a range of bytes of one file.
type Extent struct {
	File int // index into the list of the load's files
	Off  int64
	Len  int64
}

// File is one file of a load, with its checksums.
type File struct {
	Path string
	Size int64
	Sums *checksum.Sums // checksums of the file; nil if the file is not verified
}

// Block identifies a block of a file by the index of the file and of the block.
type Block struct {
	File  int
	Index int64
}

// Judge receives the result of each comparison of a block with its checksum. Any goroutine may call the methods of a
// Judge.
type Judge interface {
	// Right is called for each block that matches its checksum.
	Right(b Block)
	// Wrong returns the error for a block with a wrong checksum. The parameter `sum` is the checksum that was
	// computed. The parameter `on` is the device that computed the last part of the checksum; empty means the CPU.
	Wrong(b Block, sum uint64, on string) error
}

// Proof compares the bytes of a load with the checksums of its files. Each block with a byte of the load is compared
// as a whole. Bytes of a compared block that the load does not want are also read, and then dropped.
//
// A read may cover any part of a block. The checksums of the parts of a block are joined in any order, and the block
// is compared when the checksum of its last part is known.
type Proof struct {
	join  *checksum.Joiner
	judge Judge
	files []fileProof // one per file
	// want counts the blocks to compare, and got the blocks that matched. The load succeeds only if both are equal.
	want int64
	got  atomic.Int64

	mu   sync.Mutex
	open map[Block]*blockSum // blocks of which some bytes are summed
}

type fileProof struct {
	sums *checksum.Sums // checksums of the file; nil if the file is not verified
	// gaps are the bytes of blocks to compare that the load does not want.
	gaps []Extent
}

// blockSum is the checksum of the bytes of a block so far.
type blockSum struct {
	sum  uint64
	left int64 // bytes that are not summed yet
}

// NewProof returns a Proof for the file ranges `loads`, which are loaded, and the file ranges `also`, which are
// verified but not loaded. NewProof fails if the checksums of a file were computed for another file size, or if a byte
// is loaded twice.
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

// cover finds the bytes that must be read besides loads, so that each block with a byte of touched is complete. loads
// is sorted by offset.
func (p *Proof) cover(file int, loads, touched []Extent) {
	f := &p.files[file]
	slices.SortFunc(touched, byOffset)
	next := int64(0) // index of the first block that is not covered
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
				break // the rest of the extent is in the next blocks
			}
			loads = loads[1:]
		}
		gap(at, stop)
	}
}

// Verifies reports whether a file has checksums to compare. A nil Proof verifies nothing.
func (p *Proof) Verifies(file int) bool { return p != nil && p.files[file].sums != nil }

// Gaps returns, for each file, the byte ranges that must be read only for checksums, sorted by offset. The caller may
// reslice the slices that Gaps returns. A nil Proof has no gaps.
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

// Files returns the number of files that are verified.
func (p *Proof) Files() (n int) {
	for _, f := range p.files {
		if f.sums != nil {
			n++
		}
	}
	return n
}

// Blocks returns the number of blocks that have matched their checksums so far.
func (p *Proof) Blocks() int64 { return p.got.Load() }

// Settled returns an error if every byte was read but some block was not compared with its checksum.
func (p *Proof) Settled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.got.Load(); got != p.want || len(p.open) > 0 {
		return errs.New(errs.Other, "verify", "",
			fmt.Sprintf("%d of %d blocks were checked without an error; this is a defect", got, p.want))
	}
	return nil
}
