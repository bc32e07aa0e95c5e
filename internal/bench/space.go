// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"sort"

	"github.com/nebulaio/nebulaio/internal/bench/dataset"
)

// block is one request.
type block struct {
	group, file int
	off         int64
	len         int64
}

// space numbers the blocks of a set as one stripe. Blocks with neighbouring numbers are in different groups, so a
// sequential reader keeps every member busy.
type space struct {
	size   int64
	groups []groupSpace
	even   int64 // blocks of each group that are dealt out in turn
	total  int64
}

type groupSpace struct {
	ends  []int64 // of each file, in blocks from the start of the group
	sizes []int64
	odd   int64 // number of its first block after the even part
}

func newSpace(s *dataset.Set, size int64) *space {
	sp := &space{size: size, even: -1}
	for _, g := range s.Groups {
		var gs groupSpace
		n := int64(0)
		for _, f := range g.Files {
			n += (f.Size() + size - 1) / size
			gs.ends = append(gs.ends, n)
			gs.sizes = append(gs.sizes, f.Size())
		}
		sp.groups = append(sp.groups, gs)
		if sp.even < 0 || n < sp.even {
			sp.even = n
		}
	}
	sp.number()
	return sp
}

// number assigns numbers to the blocks after the even part.
func (sp *space) number() {
	at := sp.even * int64(len(sp.groups))
	for i := range sp.groups {
		g := &sp.groups[i]
		g.odd = at
		at += g.count() - sp.even
	}
	sp.total = at
}

func (g groupSpace) count() int64 { return g.ends[len(g.ends)-1] }

// block returns the i-th block. The last block of a file may be short.
func (sp *space) block(i int64) block {
	n := int64(len(sp.groups))
	if i < sp.even*n {
		return sp.inGroup(int(i%n), i/n)
	}
	for k := len(sp.groups) - 1; ; k-- {
		if g := sp.groups[k]; i >= g.odd && g.count() > sp.even {
			return sp.inGroup(k, sp.even+i-g.odd)
		}
	}
}

func (sp *space) inGroup(k int, i int64) block {
	g := sp.groups[k]
	f := sort.Search(len(g.ends), func(j int) bool { return g.ends[j] > i })
	if f > 0 {
		i -= g.ends[f-1]
	}
	off := i * sp.size
	return block{group: k, file: f, off: off, len: min(sp.size, g.sizes[f]-off)}
}
