// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/test/effort"
)

// TestEncodeGolden compares with bytes as the reference writer makes them.
func TestEncodeGolden(t *testing.T) {
	ts := []format.Tensor{{Name: "b", DType: format.F32, Shape: []int64{2}}, {Name: "a", DType: format.U8}}
	for _, c := range []struct {
		meta  map[string]string
		align int64
		want  string
	}{
		{nil, 0, `{"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}`},
		{map[string]string{"format": "pt"}, 8,
			`{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}`},
		{map[string]string{"k\n\x01\x7f": "é\"\\", "a": "\b\f\r\t"}, 4096,
			`{"__metadata__":{"a":"\b\f\r\t","k\n\u0001` + "\x7f" +
				`":"é\"\\"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}`},
	} {
		got, err := EncodeHeader(ts, c.meta, c.align)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(got))%max(c.align, 8) != 0 || int64(len(got)-8-len(c.want)) >= max(c.align, 8) {
			t.Errorf("align %d: the header has %d bytes", c.align, len(got))
		}
		if want := file(c.want+strings.Repeat(" ", len(got)-8-len(c.want)), 0); !bytes.Equal(got, want) {
			t.Errorf("header is\n\t%q\nexpected\n\t%q", got, want)
		}
	}
	if b, err := EncodeHeader(nil, map[string]string{}, 0); err != nil || string(b[8:]) != `{"__metadata__":{}}     ` {
		t.Errorf("header of empty metadata is %q, %v", b, err)
	}
	empty, err := EncodeHeader(nil, nil, 0)
	if err != nil || string(empty) != "\x08\x00\x00\x00\x00\x00\x00\x00{}      " {
		t.Errorf("empty header is %q, %v", empty, err)
	}
}

func TestEncodeErrors(t *testing.T) {
	effort.SingleThreaded(t)
	one := func(name string, d format.DType, shape ...int64) []format.Tensor {
		return []format.Tensor{{Name: name, DType: d, Shape: shape}}
	}
	ok := one("a", format.U8, 1)
	for want, c := range map[string]struct {
		ts    []format.Tensor
		meta  map[string]string
		align int64
	}{
		"the alignment is 12, expected a multiple of 8": {ok, nil, 12},
		"the alignment is -8":                           {ok, nil, -8},
		"the alignment is 33554432":                     {ok, nil, 32 << 20},
		`tensor name "__metadata__" is reserved`:        {one("__metadata__", format.U8), nil, 0},
		`tensor name "\xff" is not UTF-8`:               {one("\xff", format.U8), nil, 0},
		`tensor name "\x00" holds NUL`:                  {one("\x00", format.U8), nil, 0},
		"(5000 bytes) is too long": {one(strings.Repeat("n", 5000), format.U8), nil,
			0},
		`tensor name "a" is a duplicate`:                                     {append(ok, ok...), nil, 0},
		`tensor "a": dtype is "X", expected one of BOOL, F4`:                 {one("a", "X"), nil, 0},
		`tensor "a": shape[1] is -1, expected 0 to 281474976710655`:          {one("a", format.U8, 1, -1), nil, 0},
		`tensor "a": shape [3] of F4 has 12 bits`:                            {one("a", format.F4, 3), nil, 0},
		`tensor "a": shape [281474976710655,281474976710655] overflows`:      {one("a", format.U8, MaxInt, MaxInt), nil, 0},
		`tensor "a": shape [281474976710655] of U16 takes 562949953421310 b`: {one("a", format.U16, MaxInt), nil, 0},
		`tensor "a": shape has 65 dimensions, expected at most 64`: {one("a", format.U8, make([]int64, 65)...), nil,
			0},
		`tensor "b": its 1 bytes at offset 281474976710655 end past`: {append(one("a", format.U8, MaxInt),
			one("b", format.U8, 1)...), nil, 0},
		`metadata key "k" or its value is not UTF-8`: {ok, map[string]string{"k": "\xff"}, 0},
		"bytes, expected at most 100000000": {ok,
			map[string]string{"k": strings.Repeat("v", MaxHeader)}, 0},
	} {
		_, err := EncodeHeader(c.ts, c.meta, c.align)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %.300v, expected it to contain %q", err, want)
		}
	}
	if n, err := SizeOf(format.F6E2M3, []int64{4, 5}); n != 15 || err != nil {
		t.Error(n, err)
	}
	if _, err := SizeOf("X", nil); !errs.Is(err, errs.Invalid) {
		t.Error(err)
	}
}

// randomTensors makes legal tensors of every sort.
func randomTensors(rng *rand.Rand) []format.Tensor {
	alphabet := []rune("abc.0_\"\\/\n\t\x01\x7fé中😀\u2028 ")
	types := format.DTypes()
	seen := map[string]bool{}
	var ts []format.Tensor
	for range rng.IntN(40) {
		var name strings.Builder
		for range rng.IntN(12) {
			name.WriteRune(alphabet[rng.IntN(len(alphabet))])
		}
		if seen[name.String()] {
			continue
		}
		seen[name.String()] = true
		shape := make([]int64, rng.IntN(5))
		for i := range shape {
			shape[i] = rng.Int64N(6)
		}
		d := types[rng.IntN(len(types))]
		if d.Bits()%8 != 0 {
			shape = append(shape, 4)
		}
		ts = append(ts, format.Tensor{Name: name.String(), DType: d, Shape: shape})
	}
	return ts
}

// TestRoundTrip writes random tensors and parses what it wrote.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		want := randomTensors(rng)
		if rng.IntN(2) == 0 {
			SortReference(want)
		}
		meta := map[string]string(nil)
		if n := rng.IntN(4) - 1; n >= 0 {
			meta = map[string]string{}
			for i := range n {
				meta[fmt.Sprintf("k%d\x00\n", i)] = strings.Repeat("é\"", i)
			}
		}
		align := []int64{0, 8, 16, 24, 4096}[rng.IntN(5)]
		b, err := EncodeHeader(want, meta, align)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		start := int64(len(b))
		if start%max(align, 8) != 0 || b[8] != '{' || !json.Valid(b[8:]) {
			t.Fatalf("seed %d: header is %q", seed, b)
		}
		end := start
		for i := range want {
			want[i].Offset = end
			want[i].Size, _ = SizeOf(want[i].DType, want[i].Shape)
			end += want[i].Size
		}
		b = append(b, make([]byte, end-start)...)
		got, err := parseBytes(b, Strict)
		if err != nil {
			t.Fatalf("seed %d: %v\n%q", seed, err, b[:start])
		}
		// Tensors without bytes come before one that begins at the same place.
		sortByOffset(want)
		if len(got.Tensors) != len(want) || len(want) > 0 && !reflect.DeepEqual(got.Tensors, want) ||
			!reflect.DeepEqual(got.Metadata, meta) {
			t.Fatalf("seed %d: parsed\n\t%+v\nexpected\n\t%+v", seed, got, want)
		}
	}
}

func TestSortReference(t *testing.T) {
	for seed := range uint64(100) {
		ts := randomTensors(rand.New(rand.NewPCG(seed, 1)))
		SortReference(ts)
		for i := 1; i < len(ts); i++ {
			a, b := ts[i-1], ts[i]
			ra, rb := slices.Index(format.DTypes(), a.DType), slices.Index(format.DTypes(), b.DType)
			if ra < rb || ra == rb && a.Name >= b.Name {
				t.Fatalf("%v comes before %v", a, b)
			}
		}
		b, err := EncodeHeader(ts, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range ts {
			n, _ := SizeOf(x.DType, x.Shape)
			b = append(b, make([]byte, n)...)
		}
		f, err := parseBytes(b, Strict)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range Inspect(f) {
			if p.Severity == Warn {
				t.Fatalf("the reference order left %+v", p)
			}
		}
	}
}

// qwen3 makes the header of a published model of 311 tensors.
func qwen3() []format.Tensor {
	var ts []format.Tensor
	add := func(name string, shape ...int64) {
		ts = append(ts, format.Tensor{Name: name, DType: format.BF16, Shape: shape})
	}
	add("model.embed_tokens.weight", 151936, 1024)
	add("lm_head.weight", 151936, 1024)
	add("model.norm.weight", 1024)
	for i := range 28 {
		for _, n := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
			"self_attn.q_norm", "self_attn.k_norm",
			"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm"} {
			add(fmt.Sprintf("model.layers.%d.%s.weight", i, n), 3072, 1024)
		}
	}
	SortReference(ts)
	return ts
}

// BenchmarkParse311 parses the header of a small published model.
func BenchmarkParse311(b *testing.B) {
	header, err := EncodeHeader(qwen3(), map[string]string{"format": "pt"}, 0)
	if err != nil {
		b.Fatal(err)
	}
	size := int64(len(header))
	for _, t := range qwen3() {
		n, _ := SizeOf(t.DType, t.Shape)
		size += n
	}
	b.SetBytes(int64(len(header)))
	b.ReportAllocs()
	for b.Loop() {
		f, err := Parse(hole{header}, size, "m.safetensors", Strict)
		if err != nil || len(f.Tensors) != 311 {
			b.Fatal(err)
		}
	}
}
