// SPDX-License-Identifier: Apache-2.0

package client

import "slices"

// mostRanges limits the memory of ranges. When there are more, the smallest range is forgotten.
const mostRanges = 1024

// span is the bytes from off to end.
type span struct{ off, end int64 }

// ranges is a set of bytes of a file, as spans in ascending order that do not touch.
type ranges struct{ all []span }

// add adds n bytes at off, n > 0.
func (r *ranges) add(off, n int64) {
	s := span{off, off + n}
	if s.end < off { // beyond the largest offset
		return
	}
	first, _ := slices.BinarySearchFunc(r.all, s.off, func(x span, off int64) int {
		if x.end < off {
			return -1
		}
		return 1
	})
	last := first
	for last < len(r.all) && r.all[last].off <= s.end {
		s.off, s.end = min(s.off, r.all[last].off), max(s.end, r.all[last].end)
		last++
	}
	r.all = slices.Replace(r.all, first, last, s)
	if len(r.all) > mostRanges {
		least := 0
		for i, x := range r.all {
			if x.end-x.off < r.all[least].end-r.all[least].off {
				least = i
			}
		}
		r.all = slices.Delete(r.all, least, least+1)
	}
}

// covers reports whether all n bytes at off are in the set.
func (r *ranges) covers(off, n int64) bool {
	for _, x := range r.all {
		if x.off <= off && x.end >= off+n {
			return true
		}
	}
	return false
}
