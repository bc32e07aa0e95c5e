// SPDX-License-Identifier: Apache-2.0

// Package checksum computes, stores and reads the checksums of a file: one CRC-64/NVME for each block. The checksums
// of a file are stored in a sidecar, which is a second file in the same directory.
//
// The sidecar of FILE is FILE.crc64nvme. All numbers in a sidecar are little-endian:
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
// The last field of a sidecar is the checksum of the sidecar itself. Checksums detect damage, not attacks: an attacker
// who can change a file can also write a new sidecar.
package checksum

import (
	"fmt"
	"math/bits"
	"strconv"

	"github.com/minio/crc64nvme"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// DefaultBlock is the default block size in bytes. A block of 1 MiB is small enough to locate damage, and large
	// enough that the checksums of a terabyte take only 8 MiB.
	DefaultBlock = 1 << 20
	// MinBlock and MaxBlock are the smallest and largest block size in bytes.
	MinBlock = 4 << 10
	MaxBlock = 64 << 20
	// MaxBlocks is the largest number of blocks in a sidecar. The checksums of MaxBlocks blocks take 64 MiB of memory.
	MaxBlocks = 8 << 20
	// Suffix is appended to a file's name to form the name of its sidecar.
	Suffix = ".crc64nvme"
)

// Path returns the path of the sidecar of file.
func Path(file string) string { return file + Suffix }

// Sums are the checksums of one file. A Sums value is not changed after it was made.
type Sums struct {
	Size   int64 // size of the file in bytes
	Block  int64 // size of a block in bytes; the last block may be shorter
	Blocks []uint64
	of     ID // the version of the file that Compute read; zero if the sums were not computed
}

// Extent returns the offset and length of block i in the file, in bytes. The block index i must be less than
// len(s.Blocks).
func (s *Sums) Extent(i int64) (off, n int64) {
	off = i * s.Block
	return off, min(s.Block, s.Size-off)
}

// CheckSize fails with kind Corrupt if the checksums were computed for a file of another size.
func (s *Sums) CheckSize(file string, size int64) error {
	if s.Size == size {
		return nil
	}
	return errs.New(errs.Corrupt, "verify", file, fmt.Sprintf("%s is stale: it was made of %d bytes, the file has %d",
		Path(file), s.Size, size)).
		WithFix("if the file is truncated, get a whole copy; if it was replaced on purpose: " + Remedy(file))
}

// Remedy returns the shell command that computes the checksums of file again.
func Remedy(file string) string { return "nebulaio inspect " + file + " --checksum" }

// checkBlock refuses a block size that the format does not allow.
func checkBlock(n int64) error {
	if n < MinBlock || n > MaxBlock || n&(n-1) != 0 {
		return errs.New(errs.Invalid, "checksum", "block size "+strconv.FormatInt(n, 10),
			"is out of range; expected a power of two from 4096 to 67108864")
	}
	return nil
}

// blocksOf returns the number of blocks in a file of size bytes.
func blocksOf(size, block int64) int64 {
	n := size / block
	if size%block != 0 {
		n++
	}
	return n
}

// Of returns the CRC-64/NVME checksum of p.
func Of(p []byte) uint64 { return crc64nvme.Checksum(p) }

// Add returns the CRC-64/NVME checksum of the bytes with the checksum sum and of p behind them.
func Add(sum uint64, p []byte) uint64 { return crc64nvme.Update(sum, p) }

// Joiner combines the checksums of byte ranges, in any order, into the checksum of a whole block. The checksum of a
// block is the XOR of After(sum, n) over all its ranges, where n is the number of bytes in the block after the range.
// A Joiner is safe for concurrent use.
type Joiner struct {
	// power[k] is x to the 8*2^k modulo the polynomial: the factor by which 2^k more bytes change a sum.
	power [63]uint64
}

// polynomial is the polynomial of CRC-64/NVME, with the lowest power in the highest bit.
const polynomial = 0x9a6c9329ac4bc9b5

// NewJoiner returns a Joiner for CRC-64/NVME.
func NewJoiner() *Joiner {
	j := &Joiner{}
	j.power[0] = 1 << (63 - 8)
	for k := 1; k < len(j.power); k++ {
		j.power[k] = multiply(j.power[k-1], j.power[k-1], polynomial, 1<<63)
	}
	return j
}

// After returns the contribution of a byte range to the checksum of its block. The parameter `sum` is the checksum of
// the range, and n is the number of bytes in the block after the range.
func (j *Joiner) After(sum uint64, n int64) uint64 {
	for rest := uint64(n); rest != 0; rest &= rest - 1 {
		sum = multiply(j.power[bits.TrailingZeros64(rest)], sum, polynomial, 1<<63)
	}
	return sum
}

// Whole returns the checksum of the whole file, joined from the checksums of its blocks.
func (s *Sums) Whole() uint64 {
	join := NewJoiner()
	var sum uint64
	for i, block := range s.Blocks {
		_, n := s.Extent(int64(i))
		sum = join.After(sum, n) ^ block
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
