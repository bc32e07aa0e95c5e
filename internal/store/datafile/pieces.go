// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Piece is the checksum of N bytes at offset Off of a file. The N bytes of a Piece lie within one block.
type Piece struct {
	Off, N int64
	CRC64  uint64
}

// Written describes content after its last byte was written.
type Written struct {
	Size  int64
	CRC64 uint64   // CRC-64/NVME of all bytes written
	Sums  []uint64 // checksums of the file's blocks; nil for a region of a file, which has its checksums in Pieces
	// Pieces are the checksums of a region, split at the block boundaries of the file, in order. Pieces is nil for a
	// whole file.
	Pieces []Piece
	MD5    []byte // MD5 of all bytes written; nil if it was not requested
}

// JoinPieces computes the block checksums of a file from the pieces of its regions, given in any order. The pieces must
// cover the file from its first byte without gap or overlap. The result whole is the checksum of the whole file, and
// the result size is its length in bytes. JoinPieces reads no content.
func JoinPieces(pieces []Piece) (sums []uint64, whole uint64, size int64, err error) {
	const op = "join checksums"
	join := checksum.NewJoiner()
	sorted := slices.Clone(pieces)
	slices.SortFunc(sorted, func(a, b Piece) int { return cmp.Compare(a.Off, b.Off) })
	for _, p := range sorted {
		if p.N <= 0 || p.Off < 0 || p.Off > MaxSize-Block || p.N > Block-p.Off%Block {
			return nil, 0, 0, errs.New(errs.Invalid, op, "",
				fmt.Sprintf("piece [%d, +%d) does not lie within one block of %d bytes", p.Off, p.N, Block))
		}
		if p.Off != size {
			return nil, 0, 0, errs.New(errs.Invalid, op, "",
				fmt.Sprintf("a piece begins at %d, the one before ends at %d", p.Off, size))
		}
		if p.Off%Block == 0 {
			sums = append(sums, p.CRC64)
		} else {
			last := &sums[len(sums)-1]
			*last = join.After(*last, p.N) ^ p.CRC64
		}
		whole = join.After(whole, p.N) ^ p.CRC64
		size += p.N
	}
	return sums, whole, size, nil
}

// grid sums consecutive bytes from some offset, block by block.
type grid struct {
	join   *checksum.Joiner
	off    int64 // of the next byte
	pieces []Piece
	whole  uint64
}

// add sums p, which must not cross the end of the block in which it begins.
func (g *grid) add(p []byte) { g.know(int64(len(p)), checksum.Of(p)) }

// know adds n bytes with a known sum; the bytes lie within one block.
func (g *grid) know(n int64, sum uint64) {
	if n == 0 {
		return
	}
	if k := len(g.pieces); k > 0 && g.off%Block != 0 {
		last := &g.pieces[k-1]
		last.CRC64 = g.join.After(last.CRC64, n) ^ sum
		last.N += n
	} else {
		g.pieces = append(g.pieces, Piece{Off: g.off, N: n, CRC64: sum})
	}
	g.whole = g.join.After(g.whole, n) ^ sum
	g.off += n
}

// left returns how many bytes are missing until the end of the current block.
func (g *grid) left() int64 { return Block - g.off%Block }

// sums returns the sums of the blocks, for a file that was summed from its first byte.
func (g *grid) sums() []uint64 {
	s := make([]uint64, len(g.pieces))
	for i, p := range g.pieces {
		s[i] = p.CRC64
	}
	return s
}
