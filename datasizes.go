// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"slices"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
)

// directAlignment is the offset to which direct reads from disk to GPU memory like parts to be aligned.
const directAlignment = 4096

// mostMedian is the most sizes of which a median is computed exactly. Of more sizes, every second, third and so on is
// taken.
const mostMedian = 1 << 26

// DataSizes describes the sizes of the parts of one column, or of whole samples.
type DataSizes struct {
	Column string `json:"column,omitempty"` // empty for whole samples
	Parts  int64  `json:"parts"`            // samples that have such a part
	Bytes  int64  `json:"bytes"`
	Min    int64  `json:"min"`
	Median int64  `json:"median"`
	Max    int64  `json:"max"`
	// Aligned is the number of parts that begin at a multiple of 4096 bytes in their file. Samples count if all of their
	// parts do.
	Aligned int64 `json:"aligned"`
}

// Sizes returns the sizes of whole samples, and then those of each column. Sizes reads no data.
func (d *Data) Sizes() []DataSizes {
	set := d.data.Set
	columns := make([]int, len(set.Columns()))
	for c := range columns {
		columns[c] = c
	}
	out := []DataSizes{sizesOf(set, columns)}
	for c, name := range set.Columns() {
		one := sizesOf(set, []int{c})
		one.Column = name
		out = append(out, one)
	}
	return out
}

// sizesOf returns the sizes of the parts of some columns, added up by sample.
func sizesOf(set *dataset.Set, columns []int) DataSizes {
	var s DataSizes
	var sizes []int64
	step := 1 + set.Len()/mostMedian
	for n := range set.Len() {
		size, parts, aligned := int64(0), 0, true
		for _, c := range columns {
			if _, e, ok := set.Part(n, c); ok {
				size, parts, aligned = size+e.Size, parts+1, aligned && e.Offset%directAlignment == 0
			}
		}
		if parts == 0 {
			continue
		}
		if s.Parts == 0 || size < s.Min {
			s.Min = size
		}
		s.Max, s.Bytes, s.Parts = max(s.Max, size), s.Bytes+size, s.Parts+1
		if aligned {
			s.Aligned++
		}
		if n%step == 0 {
			sizes = append(sizes, size)
		}
	}
	if len(sizes) > 0 {
		slices.Sort(sizes)
		s.Median = sizes[(len(sizes)-1)/2]
	}
	return s
}
