// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// Range is a range of indices in one dimension, from Start up to but not including Stop. A Stop of -1 means the end
// of the dimension.
type Range struct{ Start, Stop int64 }

// everything returns the range of all indices of a dimension.
func everything() Range { return Range{Stop: -1} }

// Slice selects a part of each tensor that a glob matches, by one range of indices per dimension.
type Slice struct {
	// Tensor is a tensor name, or a glob (see path.Match) for tensor names.
	Tensor string
	// Ranges has one range of indices for each of the first dimensions. Dimensions without a range are taken whole.
	Ranges []Range
}

// Shard selects one rank's part of each tensor that a glob matches. Dimension Dim is split among World ranks: rank
// Rank gets the indices from size*Rank/World up to size*(Rank+1)/World.
type Shard struct {
	Tensor           string // tensor name, or a glob for tensor names
	Dim, Rank, World int
}

// maxRuns bounds the number of runs that the slices of one model may need. Each run is a read or an entry of the plan
// in memory.
const maxRuns = 4 << 20

// part is the part of a tensor that is loaded. Its bytes are in rows of width bytes, stride bytes apart, the first at
// Offset. The rows repeat for each index of the outer dimensions.
type part struct {
	format.Tensor         // Shape, Size and Offset are those of the part
	whole         []int64 // the tensor's own shape; nil: all of it is taken
	start         []int64 // the first index taken of each dimension
	width, stride int64
	rows          int64
	outer         []level // outermost first
}

// level is one dimension, or several merged ones, that is traversed in steps.
type level struct{ count, stride int64 }

// all returns the part that is the whole tensor.
func all(t format.Tensor) part { return part{Tensor: t, width: t.Size, stride: t.Size, rows: 1} }

// contiguous reports whether the part is one run of the file.
func (p *part) contiguous() bool { return p.rows == 1 && len(p.outer) == 0 }

// runs returns how many reads or plan entries the part may need, up to a number that is too large in any case.
func (p *part) runs() int64 {
	n := int64(1)
	if p.stride-p.width >= transfer.DefaultGap {
		n = p.rows
	}
	for _, l := range p.outer {
		if n > maxRuns {
			break
		}
		n *= min(l.count, maxRuns+1)
	}
	return n
}

// each calls f with the file offset of each strided run, in order.
func (p *part) each(f func(off int64)) {
	var walk func(off int64, ls []level)
	walk = func(off int64, ls []level) {
		if len(ls) == 0 {
			f(off)
			return
		}
		for i := range ls[0].count {
			walk(off+i*ls[0].stride, ls[1:])
		}
	}
	walk(p.Offset, p.outer)
}

// sliceTensor returns the box of a tensor. by names the slice or shard in errors.
func sliceTensor(t format.Tensor, ranges []Range, by string) (part, error) {
	bad := func(format string, args ...any) (part, error) {
		return part{}, errs.New(errs.Invalid, "slice tensor", fmt.Sprintf("%q of shape %v", t.Name, t.Shape), by+" "+
			fmt.Sprintf(format, args...))
	}
	if len(ranges) > len(t.Shape) {
		return bad("has %d ranges, the tensor has %d dimensions", len(ranges), len(t.Shape))
	}
	p := part{Tensor: t, whole: t.Shape, start: make([]int64, len(t.Shape))}
	p.Shape = slices.Clone(t.Shape)
	for i, r := range ranges {
		if r == everything() {
			continue
		}
		n := t.Shape[i]
		if r.Stop == -1 {
			r.Stop = n
		}
		if r.Start < 0 || r.Stop > n {
			return bad("takes [%d, %d) of dimension %d, which has %d; expected a range inside it", r.Start, r.Stop, i, n)
		}
		if r.Start >= r.Stop {
			return bad("takes [%d, %d) of dimension %d, which is empty; expected one index or more", r.Start, r.Stop, i)
		}
		p.start[i], p.Shape[i] = r.Start, r.Stop-r.Start
	}
	if t.Size == 0 {
		p.width, p.stride, p.rows = 0, 0, 1
		return p, nil
	}
	if at, ok := p.measure(); !ok {
		return bad("cuts inside a byte: elements of %s have %d bits, and what is taken of dimension %d begins or ends "+
			"between two bytes; take a multiple of 8 bits", t.DType, t.DType.Bits(), at)
	}
	return p, nil
}

// measure computes the rows and levels of the box of a tensor that is not empty. It returns false and the dimension
// if a row or a step is not a whole number of bytes.
func (p *part) measure() (dim int, ok bool) {
	b := int64(p.DType.Bits())
	// in bytes: a count of elements is at most eight times the file's size, so
	// that its bits may not fit a number.
	bytes := func(elements int64) (int64, bool) {
		return elements/8*b + elements%8*b/8, elements%8*b%8 == 0
	}
	each := int64(1) // elements that one index of the dimension stands for
	run := int64(1)  // elements of the row so far
	cut := false     // a dimension was cut: what follows is levels
	var levels []level
	exact := true
	first := int64(0) // element that the part begins with
	for i := len(p.whole) - 1; i >= 0; i-- {
		n, take := p.whole[i], p.Shape[i]
		first += p.start[i] * each
		switch {
		case !cut:
			run *= take
			cut = take < n
			if cut {
				dim = i
			}
		case take > 1:
			step, ok := bytes(each)
			exact = exact && ok
			if k := len(levels) - 1; k >= 0 && levels[k].count*levels[k].stride == step {
				levels[k].count *= take // all of the dimension before was taken: one level
			} else {
				levels = append(levels, level{take, step})
			}
		}
		each *= n
	}
	var ok1, ok2, ok3 bool
	p.width, ok1 = bytes(run)
	off, ok2 := bytes(first)
	p.Offset += off
	total := int64(1)
	for _, n := range p.Shape {
		total *= n
	}
	p.Size, ok3 = bytes(total)
	p.rows, p.stride = 1, p.width
	if len(levels) > 0 { // the innermost is the strided one
		p.rows, p.stride = levels[0].count, levels[0].stride
		p.outer = levels[1:]
		slices.Reverse(p.outer)
	}
	return dim, exact && ok1 && ok2 && ok3
}

// ranges returns the shard's box of a tensor.
func (s Shard) ranges(t format.Tensor) ([]Range, error) {
	bad := func(format string, args ...any) ([]Range, error) {
		return nil, errs.New(errs.Invalid, "slice tensor", fmt.Sprintf("%q of shape %v", t.Name, t.Shape), s.String()+" "+
			fmt.Sprintf(format, args...))
	}
	if s.Dim < 0 || s.Dim >= len(t.Shape) {
		return bad("splits dimension %d, the tensor has %d", s.Dim, len(t.Shape))
	}
	n := t.Shape[s.Dim]
	r := Range{share(n, s.Rank, s.World), share(n, s.Rank+1, s.World)}
	if r.Start == r.Stop {
		return bad("gives rank %d nothing of dimension %d, which has %d", s.Rank, s.Dim, n)
	}
	return append(slices.Repeat([]Range{everything()}, s.Dim), r), nil
}

// share returns n*rank/world, which fits even if n*rank does not.
func share(n int64, rank, world int) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(rank))
	q, _ := bits.Div64(hi, lo, uint64(world))
	return int64(q)
}

// String describes the slice for error messages.
func (s Slice) String() string { return fmt.Sprintf("slice %q", s.Tensor) }

// String describes the shard for error messages.
func (s Shard) String() string {
	return fmt.Sprintf("shard %q (dimension %d, rank %d of %d)", s.Tensor, s.Dim, s.Rank, s.World)
}
