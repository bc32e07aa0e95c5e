// SPDX-License-Identifier: Apache-2.0

// Package order computes in which order a training loop reads its samples, without storing that order.
package order

import "math/bits"

// rounds is the number of Feistel rounds. Four make a permutation that looks random in theory; six also do so for
// few elements, where the halves of a number have few bits.
const rounds = 6

// smallestHalf is the fewest bits of one half of a number. With fewer bits, some orders of few elements would be more
// frequent than others.
const smallestHalf = 4

// Permutation is a pseudo-random order of the numbers from 0 to n-1. The same n and key give the same order on every
// machine. Copies are cheap, and all methods may be called by several goroutines.
type Permutation struct {
	n    uint64
	half uint
	keys [rounds]uint64
}

// NewPermutation returns the order of n elements that key chooses. The number n must be positive.
func NewPermutation(n int64, key uint64) Permutation {
	p := Permutation{n: uint64(n), half: max(smallestHalf, uint(bits.Len64(uint64(max(n-1, 1)))+1)/2)}
	for i := range p.keys {
		key += golden
		p.keys[i] = Mix(key)
	}
	return p
}

// Len returns the number of elements.
func (p Permutation) Len() int64 { return int64(p.n) }

// At returns the element at position i, which must be from 0 to n-1.
//
// At applies a Feistel network over the next power of four until the result is below n.
func (p Permutation) At(i int64) int64 {
	mask := uint64(1)<<p.half - 1
	for x := uint64(i); ; {
		l, r := x>>p.half, x&mask
		for _, k := range p.keys {
			l, r = r, l^(Mix(r^k)&mask)
		}
		if x = l<<p.half | r; x < p.n {
			return int64(x)
		}
	}
}

// Find returns the position of an element, which must be from 0 to n-1. Find is the inverse of At.
func (p Permutation) Find(element int64) int64 {
	mask := uint64(1)<<p.half - 1
	for x := uint64(element); ; {
		l, r := x>>p.half, x&mask
		for i := rounds - 1; i >= 0; i-- {
			l, r = r^(Mix(l^p.keys[i])&mask), l
		}
		if x = l<<p.half | r; x < p.n {
			return int64(x)
		}
	}
}

// golden is the increment of SplitMix64, an odd number near 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// Mix applies the finaliser of SplitMix64 to x, so that every bit of x affects the whole result.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// key returns the key of one purpose from a seed and numbers such as the epoch.
func key(seed uint64, numbers ...uint64) uint64 {
	k := Mix(seed + golden)
	for _, n := range numbers {
		k = Mix(k ^ Mix(n+golden))
	}
	return k
}
