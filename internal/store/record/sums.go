// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// BlocksOf is how many blocks, and sums, size bytes have.
func BlocksOf(size int64) int64 { return (size + BlockSize - 1) / BlockSize }

// ChunksOf is how many keys the sums of size bytes take, 0 where they are in the record.
func ChunksOf(size int64) int64 {
	n := BlocksOf(size)
	if n <= SumsInRecord {
		return 0
	}
	return (n + SumsPerChunk - 1) / SumsPerChunk
}

// JoinSums is the checksum of content of size bytes, made of the sums of its blocks.
func JoinSums(j *checksum.Joiner, sums []uint64, size int64) uint64 {
	var whole uint64
	for i, sum := range sums {
		n := min(BlockSize, size-int64(i)*BlockSize)
		whole = j.After(whole, n) ^ sum
	}
	return whole
}

// EncodeSums is the record of up to SumsPerChunk sums of a file.
func EncodeSums(sums []uint64) []byte {
	p := make(codec.Encoder, 0, 1+8*len(sums))
	p.Byte(Format)
	p.RawWords(sums)
	return p
}

// DecodeSums appends the sums of a record to sums. ok is false if the record is damaged.
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
