// SPDX-License-Identifier: Apache-2.0

package nebulaio

import "github.com/nebulaio/nebulaio/internal/model"

// Slice chooses a box out of each tensor that a glob matches.
type Slice struct {
	// Tensor is a glob as of path.Match, or an exact name.
	Tensor string
	// Ranges are those of the first dimensions. The other dimensions are taken whole.
	Ranges []Range
}

// Range is the indices from Start up to Stop, without Stop, of one dimension. A Stop of -1 is the dimension's end.
type Range struct{ Start, Stop int64 }

// Shard chooses one rank's part of each tensor that a glob matches. Dimension Dim is split among World ranks. The part
// is the indices from size*Rank/World up to size*(Rank+1)/World.
type Shard struct {
	Tensor           string // as in Slice
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
