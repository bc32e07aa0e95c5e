// SPDX-License-Identifier: Apache-2.0

package synth

import "encoding/binary"

const (
	// step is the increment of SplitMix64, an odd number near 2^64 divided by
	// the golden ratio.
	step = 0x9e3779b97f4a7c15
	// The multiples of step that fit one turn of the loop, modulo 2^64.
	step2 = step * 2 % (1 << 64)
	step3 = step * 3 % (1 << 64)
	step4 = step * 4 % (1 << 64)
	// clear and set fix two bits of every byte, so that no float type reads
	// NaN or infinity: the top exponent bit of each 16, 32 and 64-bit float is
	// bit 6 of some byte, and 8-bit floats lose their all-ones and their
	// negative-zero codes. What is left has magnitudes from 2^-63 to 2 as BF16.
	clear = 0x4040404040404040
	set   = 0x2020202020202020
)

// Content fills dst with the data of a generated file with this seed, from fileOffset on. fileOffset counts from the
// start of the file. Each aligned 8-byte word depends only on seed and offset, so ranges can be generated in any
// order, in parallel and repeatedly. Values of all float types are finite. BOOL bytes are not limited to 0 and 1.
func Content(seed uint64, fileOffset int64, dst []byte) {
	// Mixing the seed first keeps seeds that differ by a multiple of step from
	// giving shifted copies of one stream.
	x := mix(seed+step) + uint64(fileOffset)/8*step
	if skip := int(fileOffset % 8); skip != 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], word(x))
		dst = dst[copy(dst, w[skip:]):]
		x += step
	}
	for len(dst) >= 32 {
		d := dst[:32:32]
		binary.LittleEndian.PutUint64(d[0:], word(x))
		binary.LittleEndian.PutUint64(d[8:], word(x+step))
		binary.LittleEndian.PutUint64(d[16:], word(x+step2))
		binary.LittleEndian.PutUint64(d[24:], word(x+step3))
		dst = dst[32:]
		x += step4
	}
	for len(dst) > 0 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], word(x))
		dst = dst[copy(dst, w[:]):]
		x += step
	}
}

// FileSeed returns the seed of the k-th file of a model, counted from 0. The first file has the model's seed. Each
// file has its own seed, so that shards do not have the same bytes at the same offset.
func FileSeed(seed uint64, k int) uint64 {
	if k == 0 {
		return seed
	}
	return mix(seed ^ mix(uint64(k)))
}

func word(x uint64) uint64 { return mix(x)&^clear | set }

// mix is the output function of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
