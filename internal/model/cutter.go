// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// cutter finds the slice or shard of each tensor. Plain names are looked up in a map and only globs are tried one by
// one, because a caller may give a slice for each of many tensors.
type cutter struct {
	rules []rule
	names map[string][]int // rules by the text of their glob, which may be a name
	globs []int            // rules that are more than a name
	runs  int64
}

// rule is a slice or a shard.
type rule struct {
	glob  string
	name  fmt.Stringer
	box   func(format.Tensor) ([]Range, error)
	taken bool
}

func newCutter(ss []Slice, hs []Shard) (*cutter, error) {
	c := &cutter{names: map[string][]int{}}
	for _, s := range ss {
		for i, r := range s.Ranges {
			if r.Start < 0 || r.Stop < -1 {
				return nil, errs.New(errs.Invalid, "slice tensors", s.String(),
					fmt.Sprintf("range %d is [%d, %d); expected a start of 0 or more, and a stop behind it or -1 for the end", i,
						r.Start, r.Stop))
			}
		}
		c.rules = append(c.rules, rule{glob: s.Tensor, name: s,
			box: func(format.Tensor) ([]Range, error) { return s.Ranges, nil }})
	}
	for _, h := range hs {
		if h.World < 1 || h.Rank < 0 || h.Rank >= h.World || h.Dim < 0 {
			return nil, errs.New(errs.Invalid, "slice tensors", h.String(),
				"is not possible; expected a dimension of 0 or more, a world of 1 or more and a rank from 0 to below it")
		}
		c.rules = append(c.rules, rule{glob: h.Tensor, name: h, box: h.ranges})
	}
	for i, r := range c.rules {
		if _, err := path.Match(r.glob, ""); err != nil {
			return nil, errs.New(errs.Invalid, "slice tensors", strconv.Quote(r.glob),
				"is not a glob; expected * ? [a-z] and literal text")
		}
		c.names[r.glob] = append(c.names[r.glob], i)
		if strings.ContainsAny(r.glob, `*?[\`) {
			c.globs = append(c.globs, i)
		}
	}
	return c, nil
}

// part returns the part of a tensor that is loaded.
func (c *cutter) part(t format.Tensor) (part, error) {
	if len(c.rules) == 0 {
		return all(t), nil
	}
	found := -1
	match := func(i int) error {
		if found >= 0 && found != i {
			return errs.New(errs.Invalid, "slice tensors", strconv.Quote(t.Name),
				fmt.Sprintf("is chosen by %s and by %s; expected one", c.rules[found].name, c.rules[i].name))
		}
		found = i
		c.rules[i].taken = true
		return nil
	}
	for _, i := range c.names[t.Name] {
		if err := match(i); err != nil {
			return part{}, err
		}
	}
	for _, i := range c.globs {
		if ok, _ := path.Match(c.rules[i].glob, t.Name); ok {
			if err := match(i); err != nil {
				return part{}, err
			}
		}
	}
	if found < 0 {
		return all(t), nil
	}
	r := &c.rules[found]
	ranges, err := r.box(t)
	if err != nil {
		return part{}, err
	}
	p, err := sliceTensor(t, ranges, r.name.String())
	if err != nil {
		return part{}, err
	}
	if c.runs += p.runs(); c.runs > maxRuns {
		return part{}, errs.New(errs.Invalid, "slice tensor", fmt.Sprintf("%q of shape %v", t.Name, t.Shape),
			fmt.Sprintf("%s brings the model to more than %d separate runs of bytes", r.name, maxRuns)).
			WithFix("take more of the inner dimensions, or all of them, and cut the tensor in memory")
	}
	return p, nil
}

// unused returns an error for a slice that matches no chosen tensor.
func (c *cutter) unused(model string) error {
	for _, r := range c.rules {
		if !r.taken {
			return errs.New(errs.NotFound, "slice tensors", strconv.Quote(r.glob), "matches no chosen tensor of "+
				model).WithFix("list the names with: nebulaio inspect " + model)
		}
	}
	return nil
}
