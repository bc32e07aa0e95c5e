// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// tensorOf is a tensor of a shape at offset 1000.
func tensorOf(name string, d format.DType, shape ...int64) format.Tensor {
	n := int64(1)
	for _, s := range shape {
		n *= s
	}
	return format.Tensor{Name: name, DType: d, Shape: shape, Offset: 1000, Size: n * int64(d.Bits()) / 8}
}

// offsets lists the file offset of each byte of a part in its order.
func offsets(p part) []int64 {
	var out []int64
	p.each(func(off int64) {
		for r := range p.rows {
			for i := range p.width {
				out = append(out, off+r*p.stride+i)
			}
		}
	})
	return out
}

// slow lists the file offset of each byte of a box by going through all indices.
func slow(t format.Tensor, box []Range) []int64 {
	size := int64(t.DType.Bits() / 8)
	index := make([]int64, len(t.Shape))
	var out []int64
	for n := range t.Size / size {
		rest := n
		inside := true
		for i := len(index) - 1; i >= 0; i-- {
			index[i] = rest % t.Shape[i]
			rest /= t.Shape[i]
			inside = inside && index[i] >= box[i].Start && index[i] < box[i].Stop
		}
		if inside {
			for i := range size {
				out = append(out, t.Offset+n*size+i)
			}
		}
	}
	return out
}

func TestABoxIsTheBytesOfItsIndices(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 20_000 {
		var shape []int64
		var box []Range
		for range 1 + rng.IntN(5) {
			n := 1 + rng.Int64N(5)
			a := rng.Int64N(n)
			r := Range{a, a + 1 + rng.Int64N(n-a)}
			if rng.IntN(2) == 0 {
				r = Range{0, n}
			}
			shape, box = append(shape, n), append(box, r)
		}
		x := tensorOf("t", []format.DType{format.U8, format.BF16, format.F64}[rng.IntN(3)], shape...)
		asked := slices.Clone(box)
		for i := range asked { // the same, said in another way
			if asked[i].Stop == shape[i] && rng.IntN(2) == 0 {
				asked[i].Stop = -1
			}
		}
		for len(asked) > 0 && asked[len(asked)-1] == everything() {
			asked = asked[:len(asked)-1]
		}
		p, err := sliceTensor(x, asked, "it")
		if err != nil {
			t.Fatal(err)
		}
		want := slow(x, box)
		if got := offsets(p); !slices.Equal(got, want) || p.Size != int64(len(want)) || p.Offset != want[0] {
			t.Fatalf("%v of %v: %+v", box, shape, p)
		}
		if one := want[len(want)-1]-want[0]+1 == int64(len(want)); one != p.contiguous() {
			t.Fatalf("%v of %v is contiguous %v: %+v", box, shape, one, p)
		}
		for i, r := range box {
			if p.Shape[i] != r.Stop-r.Start || p.start[i] != r.Start || p.whole[i] != shape[i] {
				t.Fatalf("%v of %v: %+v", box, shape, p)
			}
		}
	}
}

func TestRowsAndColumnsAreOneRun(t *testing.T) {
	x := tensorOf("t", format.BF16, 100, 8, 64)
	for want, box := range map[string][]Range{
		"rows 1, width 1024, stride 1024, outer []":        {{1, 2}},
		"rows 1, width 25600, stride 25600, outer []":      {{0, 25}},
		"rows 100, width 128, stride 1024, outer []":       {everything(), {0, 1}},
		"rows 800, width 16, stride 128, outer []":         {everything(), everything(), {8, 16}},
		"rows 4, width 16, stride 128, outer [{100 1024}]": {everything(), {0, 4}, {8, 16}},
		"rows 1, width 16, stride 16, outer []":            {{5, 6}, {3, 4}, {8, 16}},
		"rows 100, width 16, stride 1024, outer []":        {everything(), {3, 4}, {8, 16}},
	} {
		p, err := sliceTensor(x, box, "it")
		if got := fmt.Sprintf("rows %d, width %d, stride %d, outer %v", p.rows, p.width, p.stride, p.outer); err != nil ||
			got != want {
			t.Errorf("%v: %s, expected %s (%v)", box, got, want, err)
		}
	}
}

func TestBoxesThatDoNotFit(t *testing.T) {
	x := tensorOf("w", format.F32, 10, 6)
	for want, box := range map[string][]Range{
		"has 3 ranges, the tensor has 2 dimensions":                           {everything(), everything(), everything()},
		"takes [0, 11) of dimension 0, which has 10":                          {{0, 11}},
		"takes [3, 3) of dimension 1, which is empty":                         {everything(), {3, 3}},
		"takes [4, 2) of dimension 0, which is empty":                         {{4, 2}},
		"takes [10, 10) of dimension 0, which is empty":                       {{10, -1}},
		"takes [-1, 3) of dimension 0, which has 10; expected a range inside": {{-1, 3}},
	} {
		_, err := sliceTensor(x, box, `slice "w*"`)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), `"w" of shape [10 6]: slice "w*"`) {
			t.Errorf("%v: %v", box, err)
		}
	}
}

func TestElementsBelowAByte(t *testing.T) {
	four, six := tensorOf("f", format.F4, 4, 6), tensorOf("s", format.F6E3M2, 3, 8)
	for _, c := range []struct {
		t    format.Tensor
		box  []Range
		size int64 // 0: it cannot be cut there
	}{
		{four, []Range{{1, 3}}, 6},
		{four, []Range{everything(), {2, 4}}, 4},
		{four, []Range{everything(), {1, 3}}, 0},
		{four, []Range{everything(), {2, 5}}, 0},
		{six, []Range{{1, 2}}, 6},
		{six, []Range{everything(), {0, 4}}, 9},
		{six, []Range{everything(), {4, 8}}, 9},
		{six, []Range{everything(), {0, 2}}, 0},
		{tensorOf("odd", format.F4, 2, 3), []Range{{0, 1}}, 0},
		{tensorOf("odd", format.F4, 4, 3), []Range{{2, 4}}, 3},
		{tensorOf("odd", format.F4, 4, 3), []Range{{0, 2}, {0, 1}}, 0},
	} {
		p, err := sliceTensor(c.t, c.box, "it")
		if c.size > 0 && (err != nil || p.Size != c.size || p.rows*p.width != c.size) {
			t.Errorf("%v of %v: %+v %v", c.box, c.t.Shape, p, err)
		}
		if c.size == 0 && (!errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), "cuts inside a byte: elements of F")) {
			t.Errorf("%v of %v: %v", c.box, c.t.Shape, err)
		}
	}
}

func TestShardsShareADimension(t *testing.T) {
	for _, world := range []int{1, 2, 3, 7, 8} {
		for _, n := range []int64{8, 9, 15, 1 << 40, 1<<62 + 5} {
			next := int64(0)
			for rank := range world {
				a, b := share(n, rank, world), share(n, rank+1, world)
				if a != next || b-a < n/int64(world) || b-a > n/int64(world)+1 {
					t.Errorf("rank %d of %d has [%d, %d) of %d", rank, world, a, b, n)
				}
				next = b
			}
			if next != n {
				t.Errorf("%d ranks have %d of %d", world, next, n)
			}
		}
	}
	x := tensorOf("w", format.F32, 4, 6)
	if r, err := (Shard{"w", 1, 1, 4}).ranges(x); err != nil || !slices.Equal(r, []Range{everything(), {1, 3}}) {
		t.Errorf("%v %v", r, err)
	}
	for want, s := range map[string]Shard{"splits dimension 2, the tensor has 2": {"w", 2, 0, 2},
		"gives rank 0 nothing of dimension 0, which has 4": {"w", 0, 0, 5}} {
		if _, err := s.ranges(x); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), `shard "w"`) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestEachTensorHasOneSlice(t *testing.T) {
	x := tensorOf("a.w[0]", format.F32, 4, 4)
	c, err := newCutter([]Slice{{"a.*", []Range{{0, 1}}}, {"b", nil}}, []Shard{{"*.w*", 0, 0, 2}, {"a.w[0]", 0, 1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.part(x); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(),
			`"a.w[0]": is chosen by shard "a.w[0]" (dimension 0, rank 1 of 2) and by slice "a.*"; expected one`) {
		t.Errorf("chosen twice: %v", err)
	}
	if p, err := c.part(tensorOf("c", format.F32, 4, 4)); err != nil || p.whole != nil || p.Size != 64 {
		t.Errorf("no slice: %+v %v", p, err)
	}
	c, _ = newCutter([]Slice{{"b", nil}}, nil)
	if err := c.unused("M"); !errs.Is(err, errs.NotFound) ||
		!strings.Contains(err.Error(), `"b": matches no chosen tensor of M`) {
		t.Errorf("a slice without a tensor: %v", err)
	}
	for want, s := range map[string]Slice{"is not a glob": {"[a", nil},
		"range 1 is [-1, 5)": {"a", []Range{{0, 1}, {-1, 5}}}, "range 0 is [0, -2)": {"a", []Range{{0, -2}}}} {
		if _, err := newCutter([]Slice{s}, nil); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, h := range []Shard{{"a", 0, 0, 0}, {"a", 0, 2, 2}, {"a", 0, -1, 2}, {"a", -1, 0, 2}} {
		if _, err := newCutter(nil, []Shard{h}); !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), "is not possible") {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

// A header of a few bytes must not make a plan of gigabytes.
func TestRunsAreBounded(t *testing.T) {
	box := []Slice{{"*", []Range{everything(), {0, 2}, {0, 2}}}}
	c, err := newCutter(box, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.part(tensorOf("fits", format.U8, maxRuns-1, 4, 4)); err != nil {
		t.Error(err)
	}
	if _, err := c.part(tensorOf("one more", format.U8, 1, 4, 4)); err != nil {
		t.Error(err)
	}
	if _, err := c.part(tensorOf("too many", format.U8, 2, 4, 4)); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "more than 4194304 separate runs") || errs.FixOf(err) == "" {
		t.Errorf("got %v", err)
	}
	// Far rows are one struct, and still a read each.
	c, _ = newCutter([]Slice{{"*", []Range{everything(), {0, 2}}}}, nil)
	if _, err := c.part(tensorOf("far", format.U8, maxRuns+1, 100_000)); !errs.Is(err, errs.Invalid) {
		t.Errorf("got %v", err)
	}
	c, _ = newCutter([]Slice{{"*", []Range{everything(), {0, 2}}}}, nil)
	if _, err := c.part(tensorOf("near", format.U8, maxRuns+1, 1000)); err != nil || c.runs != 1 {
		t.Errorf("%d runs: %v", c.runs, err)
	}
	p := part{rows: 1, outer: []level{{1 << 62, 1}, {1 << 62, 1}, {1 << 62, 1}}}
	if n := p.runs(); n <= maxRuns {
		t.Errorf("the count overflows to %d", n)
	}
}

// Parts that are packed lie behind each other and keep to their dtype; the
// destination holds what is wanted and the room that alignment takes.
func TestSlicesArePackedInTheLayout(t *testing.T) {
	rows, _ := sliceTensor(tensorOf("rows", format.F32, 64, 64), []Range{{8, 16}}, "it")
	cols, _ := sliceTensor(tensorOf("cols", format.F32, 64, 64), []Range{everything(), {8, 16}}, "it")
	deep, _ := sliceTensor(tensorOf("deep", format.F32, 4, 16, 64), []Range{everything(), {2, 4}, {8, 16}}, "it")
	cols.Offset += 16384
	deep.Offset += 32768
	l, at := layout([]part{rows, cols, deep}, false)
	if !slices.Equal(at, []int64{0, 2048, 4096}) || l.Size != 4096+256 {
		t.Errorf("%v, %d bytes", at, l.Size)
	}
	want := "[{3048 2048 0 0 0} {17416 16160 2048 32 256} {34312 288 4096 32 256} {38408 288 4160 32 256} {42504 288 " +
		"4224 32 256} {46600 288 4288 32 256}]"
	if got := fmt.Sprint(l.Segments); got != want {
		t.Errorf("segments %s, expected %s", got, want)
	}
}
