// SPDX-License-Identifier: Apache-2.0

package nebulaio

import "github.com/nebulaio/nebulaio/internal/model"

// Slice chooses a range of indices in each dimension of every tensor whose name matches a glob.
type Slice struct {
	// Tensor is a glob pattern for path.Match, or an exact tensor name.
	Tensor string
	// Ranges holds one range for each of the first len(Ranges) dimensions. Dimensions without an entry in Ranges are
	// loaded whole.
	Ranges []Range
}

// Range is a range of indices of one dimension, from Start up to but not including Stop. A Stop of -1 means the end
// of the dimension.
type Range struct{ Start, Stop int64 }

// Shard chooses one rank's share of every tensor whose name matches a glob. Dimension Dim of the tensor is split among
// World ranks. The share has the indices from size*Rank/World up to but not including size*(Rank+1)/World, where size
// is the length of the dimension.
type Shard struct {
	Tensor           string // glob pattern or name of tensors, as in Slice.Tensor
	Dim, Rank, World int
}

func slicesOf(in []Slice) []model.Slice {
	return convert(in, func(s Slice) model.Slice {
		return model.Slice{Tensor: s.Tensor, Ranges: convert(s.Ranges, func(r Range) model.Range { return model.Range(r) })}
	})
}

func shardsOf(in []Shard) []model.Shard {
	return convert(in, func(s Shard) model.Shard { return model.Shard(s) })
}
