// SPDX-License-Identifier: Apache-2.0

// Package charset has the character classes that the reference tokenizers use.
package charset

import "unicode/utf8"

// Range is a run of code points, from Lo to Hi inclusive.
type Range struct{ Lo, Hi rune }

// pageBits is the logarithm of the number of code points in a page of a Set.
const pageBits = 8

// page is a bitmap of the code points of one page.
type page [1 << pageBits / 64]uint64

// Set is a set of code points. A Set is immutable, and is safe for use by several goroutines.
type Set struct {
	ascii [2]uint64
	index []uint16 // page number of each group of code points
	pages []page
}

// NewSet returns the set of the code points in the given ranges. Code points above utf8.MaxRune are left out.
func NewSet(ranges ...Range) *Set {
	bits := make([]page, (utf8.MaxRune+1)>>pageBits)
	for _, r := range ranges {
		for c := max(r.Lo, 0); c <= min(r.Hi, utf8.MaxRune); c++ {
			bits[c>>pageBits][c&(1<<pageBits-1)>>6] |= 1 << (c & 63)
		}
	}
	return pack(bits)
}

// pack stores each distinct page once.
func pack(bits []page) *Set {
	s := &Set{index: make([]uint16, len(bits))}
	seen := map[page]uint16{}
	for i, p := range bits {
		at, ok := seen[p]
		if !ok {
			at = uint16(len(s.pages))
			seen[p] = at
			s.pages = append(s.pages, p)
		}
		s.index[i] = at
	}
	s.ascii = [2]uint64{bits[0][0], bits[0][1]}
	return s
}

// Has reports whether r is in the set. A negative r, or an r above utf8.MaxRune, is in no set.
func (s *Set) Has(r rune) bool {
	if uint32(r) < utf8.RuneSelf {
		return s.ascii[r>>6]>>(uint(r)&63)&1 != 0
	}
	if uint32(r) > utf8.MaxRune {
		return false
	}
	return s.pages[s.index[r>>pageBits]][r&(1<<pageBits-1)>>6]>>(uint(r)&63)&1 != 0
}

// combine returns the set whose pages are made from the pages of s and t by f.
func (s *Set) combine(t *Set, f func(a, b uint64) uint64) *Set {
	bits := make([]page, len(s.index))
	for i := range bits {
		a, b := &s.pages[s.index[i]], &t.pages[t.index[i]]
		for j := range bits[i] {
			bits[i][j] = f(a[j], b[j])
		}
	}
	return pack(bits)
}

// Union returns the set of the code points that are in s or in t.
func (s *Set) Union(t *Set) *Set { return s.combine(t, func(a, b uint64) uint64 { return a | b }) }

// Intersect returns the set of the code points that are in both s and t.
func (s *Set) Intersect(t *Set) *Set { return s.combine(t, func(a, b uint64) uint64 { return a & b }) }

// Negate returns the set of the code points that are not in s.
func (s *Set) Negate() *Set { return s.combine(s, func(a, _ uint64) uint64 { return ^a }) }
