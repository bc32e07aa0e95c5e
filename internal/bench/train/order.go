// SPDX-License-Identifier: Apache-2.0

package train

import (
	"fmt"
	"sort"

	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// layout maps each sample of the data set to its file and offset.
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

// at returns the file and offset of sample n.
func (l *layout) at(n int64) (file int, off int64) {
	file = sort.Search(len(l.first), func(i int) bool { return l.first[i] > n }) - 1
	return file, (n - l.first[file]) * l.stride
}

// epochs maps a position in the endless sequence of samples to a sample. Each epoch contains each sample once. Random
// orders are computed, not stored, so a data set of any size needs no memory.
type epochs struct {
	total  int64
	random bool
	seed   uint64
}

// epoch returns the number of the epoch that contains position pos.
func (o epochs) epoch(pos int64) int64 { return pos / o.total }

// sample returns the sample at position pos.
func (o epochs) sample(pos int64) int64 {
	i, e := pos%o.total, uint64(pos/o.total)
	if !o.random || o.total < 2 {
		return i
	}
	return order.NewPermutation(o.total, o.seed^order.Mix(e+1)).At(i)
}
