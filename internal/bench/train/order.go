// SPDX-License-Identifier: Apache-2.0

package train

import (
	"fmt"
	"math"
	"math/bits"
	"sort"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// layout says where each sample of the data set lies.
type layout struct {
	stride int64
	first  []int64 // number of each file's first sample
	total  int64
}

func newLayout(files []*vfs.File, sample, stride int64) (layout, error) {
	l := layout{stride: stride, first: make([]int64, len(files))}
	for i, f := range files {
		if f == nil {
			return l, errs.New(errs.Invalid, "configure training run", fmt.Sprintf("files[%d]", i), "is not an open file")
		}
		l.first[i] = l.total
		if f.Size() >= sample {
			l.total += (f.Size()-sample)/stride + 1
		}
	}
	return l, nil
}

// at is the file and offset of sample n.
func (l *layout) at(n int64) (file int, off int64) {
	file = sort.Search(len(l.first), func(i int) bool { return l.first[i] > n }) - 1
	return file, (n - l.first[file]) * l.stride
}

// order turns a position in the endless row of samples into a sample: each
// epoch has each sample once. Random orders are computed, not stored, so that
// a data set of any size needs no memory.
type order struct {
	total  int64
	random bool
	seed   uint64
}

// epoch is the number of the epoch that position pos lies in.
func (o order) epoch(pos int64) int64 { return pos / o.total }

// sample is the sample at position pos.
func (o order) sample(pos int64) int64 {
	i, e := pos%o.total, uint64(pos/o.total)
	if !o.random || o.total < 2 {
		return i
	}
	return permute(i, o.total, mix(o.seed^mix(e+1)))
}

// permute maps [0, n) onto itself: a Feistel network over the next power of
// four, walked until it lands inside, which takes four tries at most on average.
func permute(i, n int64, key uint64) int64 {
	half := uint(bits.Len64(uint64(n-1))+1) / 2
	mask := uint64(1)<<half - 1
	x := uint64(i)
	for {
		l, r := x>>half, x&mask
		for round := range uint64(4) {
			l, r = r, l^(mix(key+round*0x9e3779b97f4a7c15^r)&mask)
		}
		if x = l<<half | r; x < uint64(n) && x <= math.MaxInt64 {
			return int64(x)
		}
	}
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
