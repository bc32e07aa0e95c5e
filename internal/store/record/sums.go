// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// BlocksOf returns the number of blocks in `size` bytes, which is also the number of checksums.
func BlocksOf(size int64) int64 { return (size + BlockSize - 1) / BlockSize }

// ChunksOf returns the number of chunk keys that the checksums of `size` bytes need. ChunksOf returns 0 if the
// version's record itself holds the checksums.
func ChunksOf(size int64) int64 {
	n := BlocksOf(size)
	if n <= SumsInRecord {
		return 0
	}
	return (n + SumsPerChunk - 1) / SumsPerChunk
}

// JoinSums computes the checksum of the whole content, `size` bytes, from the checksums of its blocks.
func JoinSums(j *checksum.Joiner, sums []uint64, size int64) uint64 {
	var whole uint64
	for i, sum := range sums {
		n := min(BlockSize, size-int64(i)*BlockSize)
		whole = j.After(whole, n) ^ sum
	}
	return whole
}

// EncodeSums returns the record of one chunk of a file's checksums, at most SumsPerChunk.
func EncodeSums(sums []uint64) []byte {
	p := make(codec.Encoder, 0, 1+8*len(sums))
	p.Byte(Format)
	p.RawWords(sums)
	return p
}

// DecodeSums appends the checksums in the record b to the slice sums. DecodeSums returns false if the record is
// damaged.
func DecodeSums(b []byte, sums []uint64) (all []uint64, ok bool) {
	t := codec.Decoder{Rest: b}
	if t.Byte() != Format || len(t.Rest)%8 != 0 || len(t.Rest) > 8*SumsPerChunk {
		return sums, false
	}
	for len(t.Rest) > 0 {
		sums = append(sums, t.Word())
	}
	return sums, true
}
