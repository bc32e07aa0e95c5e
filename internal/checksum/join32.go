// SPDX-License-Identifier: Apache-2.0

package checksum

import "math/bits"

// Joiner32 combines 32-bit CRCs of byte ranges into the CRC of a whole block, as Joiner does for CRC-64/NVME. A
// Joiner32 is safe for concurrent use.
type Joiner32 struct {
	polynomial uint32
	power      [63]uint32
}

// NewJoiner32 returns a Joiner32 for a polynomial in the form of package hash/crc32, with the coefficient of the
// lowest power in the highest bit.
func NewJoiner32(polynomial uint32) *Joiner32 {
	j := &Joiner32{polynomial: polynomial}
	j.power[0] = 1 << (31 - 8)
	for k := 1; k < len(j.power); k++ {
		j.power[k] = multiply(j.power[k-1], j.power[k-1], j.polynomial, 1<<31)
	}
	return j
}

// After returns the contribution of a byte range to the CRC of its block. The parameter `sum` is the CRC of the range,
// and n is the number of bytes in the block after the range.
func (j *Joiner32) After(sum uint32, n int64) uint32 {
	for rest := uint64(n); rest != 0; rest &= rest - 1 {
		sum = multiply(j.power[bits.TrailingZeros64(rest)], sum, j.polynomial, 1<<31)
	}
	return sum
}
