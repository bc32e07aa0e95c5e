// SPDX-License-Identifier: Apache-2.0

// Package checksum computes, stores and reads the checksums of a file: one
// CRC-64/NVME per block, in a sidecar beside the file.
//
// The sidecar of FILE is FILE.crc64nvme. All numbers are little-endian:
//
//	offset  bytes
//	0       8      magic "NIOCRC64"
//	8       8      version, 1
//	16      8      size of the file
//	24      8      block size, a power of two from 4 KiB to 64 MiB
//	32      8      count of blocks: the size divided by the block size, rounded up
//	40      8*n    the sum of each block in order; the last block may be short
//	40+8*n  8      the sum of everything before
//
// Nothing follows. The sums detect damage, not attacks: an attacker who can change
// the file can write new sums too.
package checksum

import (
	"fmt"
	"math/bits"
	"strconv"

	"github.com/minio/crc64nvme"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// DefaultBlock is the default block size. It is small enough to locate damage,
	// and large enough that the sums of a terabyte take only 8 MiB.
	DefaultBlock = 1 << 20
	// MinBlock and MaxBlock bound the block size.
	MinBlock = 4 << 10
	MaxBlock = 64 << 20
	// MaxBlocks bounds what a sidecar can make a reader allocate: 64 MiB of sums.
	MaxBlocks = 8 << 20
	// Suffix is appended to a file's name to form the name of its sidecar.
	Suffix = ".crc64nvme"
)

// Path returns the name of the sidecar of file.
func Path(file string) string { return file + Suffix }

// Sums are the checksums of one file. They are not changed after they were made.
type Sums struct {
	Size   int64 // of the file
	Block  int64 // bytes of each block but the last
	Blocks []uint64
	of     ID // the version that Compute read, zero if the sums have another origin
}

// Extent is where block i lies in the file; i is less than len(Blocks).
func (s *Sums) Extent(i int64) (off, n int64) {
	off = i * s.Block
	return off, min(s.Block, s.Size-off)
}

// CheckSize fails with kind Corrupt if the sums belong to a file of another size.
func (s *Sums) CheckSize(file string, size int64) error {
	if s.Size == size {
		return nil
	}
	return errs.New(errs.Corrupt, "verify", file, fmt.Sprintf("%s is stale: it was made of %d bytes, the file has %d",
		Path(file), s.Size, size)).
		WithFix("if the file is truncated, get a whole copy; if it was replaced on purpose: " + Remedy(file))
}

// Remedy returns the command that computes the sums of file again.
func Remedy(file string) string { return "nebulaio inspect " + file + " --checksum" }

// checkBlock refuses a block size that the format does not allow.
func checkBlock(n int64) error {
	if n < MinBlock || n > MaxBlock || n&(n-1) != 0 {
		return errs.New(errs.Invalid, "checksum", "block size "+strconv.FormatInt(n, 10),
			"is out of range; expected a power of two from 4096 to 67108864")
	}
	return nil
}

// blocksOf is how many blocks a file of size bytes has.
func blocksOf(size, block int64) int64 {
	n := size / block
	if size%block != 0 {
		n++
	}
	return n
}

// Of returns the checksum of p.
func Of(p []byte) uint64 { return crc64nvme.Checksum(p) }

// Joiner combines the sums of pieces, in any order, to the sum of a block. The sum
// of a block is the XOR of After(sum of piece, bytes after the piece) over all its
// pieces. It is safe for concurrent use.
type Joiner struct {
	// power[k] is x to the 8*2^k modulo the polynomial: what k more doublings
	// of a byte do to a sum.
	power [63]uint64
}

// polynomial is CRC-64/NVME's, with its lowest power in the highest bit.
const polynomial = 0x9a6c9329ac4bc9b5

// NewJoiner returns a joiner.
func NewJoiner() *Joiner {
	j := &Joiner{}
	j.power[0] = 1 << (63 - 8)
	for k := 1; k < len(j.power); k++ {
		j.power[k] = multiply(j.power[k-1], j.power[k-1], polynomial, 1<<63)
	}
	return j
}

// After returns the contribution of a piece to the sum of a block in which n bytes
// follow the piece.
func (j *Joiner) After(sum uint64, n int64) uint64 {
	for rest := uint64(n); rest != 0; rest &= rest - 1 {
		sum = multiply(j.power[bits.TrailingZeros64(rest)], sum, polynomial, 1<<63)
	}
	return sum
}

// multiply returns the product of the polynomials a and b modulo a third one. Each has its lowest power in the highest
// bit, which is top.
func multiply[T uint32 | uint64](a, b, modulus, top T) T {
	var p T
	for ; a != 0; a <<= 1 {
		if a&top != 0 {
			p ^= b
		}
		low := b & 1
		b >>= 1
		if low == 1 {
			b ^= modulus
		}
	}
	return p
}
