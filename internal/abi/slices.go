// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"fmt"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// sliceOptions is a part of a tensor: [start, stop] for each of the first dimensions, or null for a whole dimension.
type sliceOptions struct {
	Tensor string     `json:"tensor"`
	Ranges []*[]int64 `json:"ranges"`
}

// shardOptions is the part of a tensor for one rank. A missing field is an error and not 0, because otherwise every
// rank would load the part of rank 0.
type shardOptions struct {
	Tensor string `json:"tensor"`
	Dim    *int   `json:"dim"`
	Rank   *int   `json:"rank"`
	World  *int   `json:"world"`
}

// parts converts the slices and shards to those of the Go library.
func (o *modelOptions) parts() ([]nebulaio.Slice, []nebulaio.Shard, error) {
	bad := func(key string, i int, why string) error {
		return errs.New(errs.Invalid, "read options", fmt.Sprintf("%s[%d]", key, i),
			why).WithFix("see nebulaio.h for the keys and their types")
	}
	var ss []nebulaio.Slice
	for i, s := range o.Slices {
		if s.Tensor == "" {
			return nil, nil, bad("slices", i, `has no "tensor"; expected a glob or a name`)
		}
		x := nebulaio.Slice{Tensor: s.Tensor}
		for k, r := range s.Ranges {
			switch {
			case r == nil:
				x.Ranges = append(x.Ranges, nebulaio.Range{Stop: -1})
			case len(*r) == 2:
				x.Ranges = append(x.Ranges, nebulaio.Range{Start: (*r)[0], Stop: (*r)[1]})
			default:
				return nil, nil, bad("slices", i, fmt.Sprintf("range %d has %d numbers; expected [start, stop] or null", k,
					len(*r)))
			}
		}
		ss = append(ss, x)
	}
	var hs []nebulaio.Shard
	for i, h := range o.Shards {
		if h.Tensor == "" || h.Dim == nil || h.Rank == nil || h.World == nil {
			return nil, nil, bad("shards", i, `is not whole; expected "tensor", "dim", "rank" and "world"`)
		}
		hs = append(hs, nebulaio.Shard{Tensor: h.Tensor, Dim: *h.Dim, Rank: *h.Rank, World: *h.World})
	}
	return ss, hs, nil
}
