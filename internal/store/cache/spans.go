// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"slices"
)

// span is the numbers of neighbouring blocks: from, and all up to the one before to.
type span struct{ from, to int64 }

// spans is a set of block numbers. The spans are in ascending order, and there is a gap between two of them.
type spans []span

// after returns the first number from n on that is not in the set.
func (s spans) after(n int64) int64 {
	i, found := slices.BinarySearchFunc(s, n, func(p span, n int64) int { return cmp.Compare(p.from, n) })
	if !found {
		i--
	}
	if i >= 0 && n < s[i].to {
		return s[i].to
	}
	return n
}

// with returns the set with the numbers from `from` to the one before `to`. with may change s.
func (s spans) with(from, to int64) spans {
	// The spans from i up to the one before j touch the new one.
	i, _ := slices.BinarySearchFunc(s, from, func(p span, n int64) int { return cmp.Compare(p.to, n) })
	j := i
	for ; j < len(s) && s[j].from <= to; j++ {
		from, to = min(from, s[j].from), max(to, s[j].to)
	}
	return slices.Replace(s, i, j, span{from, to})
}
