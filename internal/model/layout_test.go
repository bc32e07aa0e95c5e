// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/format"
)

// tensors places sizes of a dtype one behind the other from off on.
func tensors(off int64, d format.DType, sizes ...int64) []part {
	var out []part
	for i, n := range sizes {
		out = append(out, all(format.Tensor{Name: fmt.Sprint(i), DType: d, Offset: off, Size: n}))
		off += n
	}
	return out
}

func TestNeighboursInTheFileAreOneRun(t *testing.T) {
	for _, c := range []struct {
		name        string
		addressable bool
		want        Layout
		at          []int64
	}{
		{"GPU", false, Layout{Size: 92, Align: 256, Segments: []Run{{Off: 1000, Len: 92, At: 0}}}, []int64{0, 16, 64}},
		{"host keeps the offset in the page", true, Layout{Size: 1092, Align: 4096,
			Segments: []Run{{Off: 1000, Len: 92, At: 1000}}}, []int64{1000, 1016, 1064}},
	} {
		l, at := layout(tensors(1000, format.BF16, 16, 48, 28), c.addressable)
		if fmt.Sprint(l) != fmt.Sprint(c.want) || !slices.Equal(at, c.at) {
			t.Errorf("%s: %+v %v", c.name, l, at)
		}
	}
}

func TestAMisalignedTensorHasARunOfItsOwn(t *testing.T) {
	ts := append(tensors(0, format.U8, 3), tensors(3, format.F32, 8, 8)...)
	l, at := layout(ts, false)
	if !slices.Equal(at, []int64{0, 256, 264}) || len(l.Segments) != 2 || l.Size != 272 {
		t.Errorf("%+v %v", l, at)
	}
	// On the host the offset in the page cannot be kept and aligned at once.
	l, at = layout(ts, true)
	if !slices.Equal(at, []int64{0, 256, 264}) || len(l.Segments) != 2 {
		t.Errorf("host: %+v %v", l, at)
	}
}

// A scale of 4 bytes must not leave the matrices after it where kernels refuse them. Small tensors keep their place.
func TestTensorsOfAGPUAreAlignedForKernels(t *testing.T) {
	ts := tensors(8, format.U8, 4, 4, 64, 4, 8, 32)
	l, at := layout(ts, false)
	if !slices.Equal(at, []int64{0, 4, 256, 320, 324, 512}) || len(l.Segments) != 3 || l.Size != 544 {
		t.Errorf("GPU: %+v %v", l, at)
	}
	l, at = layout(ts, true)
	if len(l.Segments) != 1 || !slices.Equal(at, []int64{8, 12, 16, 80, 84, 92}) {
		t.Errorf("host: %+v %v", l, at)
	}
}

func TestAGapInTheFileIsNotRead(t *testing.T) {
	ts := append(tensors(100, format.U8, 50), tensors(5000, format.U8, 50)...)
	l, at := layout(ts, false)
	if len(l.Segments) != 2 || !slices.Equal(at, []int64{0, 256}) || l.Size != 306 {
		t.Errorf("%+v %v", l, at)
	}
	l, at = layout(ts, true)
	if len(l.Segments) != 2 || !slices.Equal(at, []int64{100, 904}) || l.Size != 954 {
		t.Errorf("host: %+v %v", l, at)
	}
}

func TestNothingToPlace(t *testing.T) {
	if l, at := layout(nil, false); l.Size != 0 || len(l.Segments) != 0 || len(at) != 0 {
		t.Errorf("%+v %v", l, at)
	}
	l, at := layout(tensors(800, format.I64, 0, 16, 0), false)
	if l.Size != 16 || len(l.Segments) != 1 || !slices.Equal(at, []int64{0, 0, 16}) {
		t.Errorf("empty tensors: %+v %v", l, at)
	}
}

// Whatever the file, no two tensors overlap, each is aligned for its dtype, and
// each byte of it is in one run, at its place.
func TestLayoutKeepsItsPromises(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	dtypes := format.DTypes()
	for range 20_000 {
		var ts []part
		off := rng.Int64N(5000)
		for range 1 + rng.IntN(12) {
			d := dtypes[rng.IntN(len(dtypes))]
			n := rng.Int64N(300) * d.Align()
			if rng.IntN(4) == 0 {
				n = 0
			}
			ts = append(ts, all(format.Tensor{DType: d, Offset: off, Size: n}))
			off += n
			if rng.IntN(3) == 0 {
				off += rng.Int64N(9000)
			}
		}
		addressable := rng.IntN(2) == 0
		l, at := layout(ts, addressable)
		end := int64(0)
		for i, x := range ts {
			if at[i]%x.DType.Align() != 0 || at[i]+x.Size > l.Size {
				t.Fatalf("%+v lies at %d of %d", x, at[i], l.Size)
			}
			if x.Size == 0 {
				continue
			}
			if at[i] < end {
				t.Fatalf("%+v at %d overlaps what ends at %d", x, at[i], end)
			}
			end = at[i] + x.Size
			runs := 0
			for _, r := range l.Segments {
				if r.Off <= x.Offset && x.Offset+x.Size <= r.Off+r.Len && r.At+x.Offset-r.Off == at[i] {
					runs++
				}
			}
			if runs != 1 {
				t.Fatalf("%+v at %d is in %d runs: %+v", x, at[i], runs, l.Segments)
			}
		}
		sum := int64(0)
		for _, r := range l.Segments {
			sum += r.Len
			if addressable && r.At%pageAlign != r.Off%pageAlign && r.Off%8 == 0 {
				t.Fatalf("the run %+v does not keep its offset in the page", r)
			}
		}
		for _, x := range ts {
			sum -= x.Size
		}
		if sum != 0 {
			t.Fatalf("the runs have %d bytes more than the tensors", sum)
		}
	}
}
