// SPDX-License-Identifier: Apache-2.0

// Package shuffle computes a random order of n elements without storing that order. Package shuffle computes the same
// order for the same seed.
package shuffle

import "math/bits"

// Order is a permutation of [0, n).
type Order struct {
	n    uint64
	half uint
	keys [4]uint64
}

// New returns a pseudo-random order of n elements, determined by seed. The number n of elements must be positive.
func New(n int64, seed uint64) Order {
	o := Order{n: uint64(n), half: uint(bits.Len64(uint64(max(n-1, 1)))+1) / 2}
	for i := range o.keys {
		seed += golden
		o.keys[i] = Mix(seed)
	}
	return o
}

// At returns the element at position i of the random order. At applies a small Feistel network over the next power of
// four until the value is below n, at most four times on average.
func (o Order) At(i int64) int64 {
	mask := uint64(1)<<o.half - 1
	x := uint64(i)
	for {
		l, r := x>>o.half, x&mask
		for _, k := range o.keys {
			l, r = r, l^(Mix(r^k)&mask)
		}
		if x = l<<o.half | r; x < o.n {
			return int64(x)
		}
	}
}

// golden is the increment of SplitMix64, an odd number near 2^64 divided by the
// golden ratio.
const golden = 0x9e3779b97f4a7c15

// Mix applies the finaliser of SplitMix64 to x, so that every bit of x affects the whole result.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
