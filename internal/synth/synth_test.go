// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"bytes"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
)

// TestPublished compares counts and bytes with the published files.
func TestPublished(t *testing.T) {
	for _, c := range []struct {
		name  string
		count int
		data  int64
		file  int64 // of the one published file, 0 if it is sharded
	}{
		{"qwen3-0.6b", 311, 1503264768, 1503300328},
		{"qwen2.5-7b", 339, 15231233024, 0},
	} {
		ts, err := Shapes(c.name)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		names := map[string]bool{}
		for _, x := range ts {
			sum += x.Size
			names[x.Name] = true
			if x.DType != format.BF16 {
				t.Errorf("%s: %+v is not BF16", c.name, x)
			}
		}
		if len(ts) != c.count || len(names) != c.count || sum != c.data {
			t.Errorf("%s: %d tensors, %d names, %d bytes, expected %d and %d", c.name, len(ts), len(names), sum, c.count, c.data)
		}
		if !names["model.layers.27.self_attn.q_proj.weight"] || !names["lm_head.weight"] {
			t.Errorf("%s: names are wrong", c.name)
		}
		plans, err := plan("m.safetensors", Options{Shapes: ts})
		if err != nil {
			t.Fatal(err)
		}
		// The header too is as long as the published one.
		if size := plans[0].file.Size; c.file != 0 && size != c.file {
			t.Errorf("%s: the file would have %d bytes, expected %d", c.name, size, c.file)
		}
	}
}

func TestTiny(t *testing.T) {
	ts, err := Shapes("tiny")
	if err != nil {
		t.Fatal(err)
	}
	types := map[format.DType]bool{}
	var scalar, empty bool
	for _, x := range ts {
		types[x.DType] = true
		scalar = scalar || len(x.Shape) == 0
		empty = empty || x.Size == 0
	}
	if len(ts) < 24 || len(types) != len(format.DTypes()) || !scalar || !empty {
		t.Errorf("%d tensors of %d dtypes, scalar %v, empty %v", len(ts), len(types), scalar, empty)
	}
	if _, err := safetensors.EncodeHeader(ts, nil, 0); err != nil {
		t.Error(err)
	}
	if _, err := Shapes("gpt-9"); !errs.Is(err, errs.NotFound) ||
		!strings.Contains(err.Error(), `"gpt-9", expected one of qwen3-0.6b, qwen2.5-7b, tiny`) {
		t.Error(err)
	}
	for _, name := range Models() {
		if _, err := Shapes(name); err != nil {
			t.Error(err)
		}
	}
}

// TestContentRanges makes random ranges and compares them with the whole.
func TestContentRanges(t *testing.T) {
	const base, size = 1<<40 + 3, 4096
	whole := make([]byte, size)
	Content(7, base, whole)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		from := rng.IntN(size)
		part := make([]byte, rng.IntN(size-from+1))
		Content(7, base+int64(from), part)
		if !bytes.Equal(part, whole[from:from+len(part)]) {
			t.Fatalf("bytes %d to %d differ", from, from+len(part))
		}
	}
	// Tests in other languages rely on these very bytes.
	golden := make([]byte, 16)
	Content(1, 8, golden)
	if got := hex.EncodeToString(golden); got != "3e21393428ab213eaeb12c3da92cadb1" {
		t.Errorf("content is %s", got)
	}
	other := make([]byte, size)
	for _, seed := range []uint64{8, FileSeed(7, 1), FileSeed(7, 2), 7 + step} {
		Content(seed, base, other)
		same := 0
		for i := range other {
			if other[i] == whole[i] {
				same++
			}
		}
		// One in 64 by chance, since a byte has 6 free bits.
		if same > size/24 {
			t.Errorf("seed %d shares %d of %d bytes", seed, same, size)
		}
	}
	if FileSeed(7, 0) != 7 {
		t.Error("the first file has not the model's seed")
	}
}

// TestContentFinite reads the content as every float type.
func TestContentFinite(t *testing.T) {
	b := make([]byte, 1<<20)
	Content(3, 0, b)
	seen := map[byte]bool{}
	for i := range b {
		seen[b[i]] = true
		// E5M2: exponent all ones; E4M3: all ones; E8M0: all ones; FNUZ: negative zero.
		if b[i]&0x7c == 0x7c || b[i]&0x7f == 0x7f || b[i] == 0x80 {
			t.Fatalf("byte 0x%02x is no finite 8-bit float", b[i])
		}
	}
	if len(seen) != 64 {
		t.Errorf("%d byte values occur, expected 64", len(seen))
	}
	for i := 0; i < len(b); i += 8 {
		var w uint64
		for j := range 8 {
			w |= uint64(b[i+j]) << (8 * j)
		}
		for s := 0; s < 64; s += 16 {
			h := uint16(w >> s)
			v := float64(math.Float32frombits(uint32(h) << 16))
			if math.IsNaN(v) || math.Abs(v) >= 2 || math.Abs(v) < math.Ldexp(1, -63) || h>>10&31 == 31 {
				t.Fatalf("0x%04x is %v as BF16", h, v)
			}
		}
		for _, v := range []float64{math.Float64frombits(w), float64(math.Float32frombits(uint32(w))),
			float64(math.Float32frombits(uint32(w >> 32)))} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("0x%016x is %v", w, v)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	ts := []format.Tensor{tensor("a", format.U8, 6), tensor("b", format.U8, 4), tensor("c", format.U8, 1),
		tensor("d", format.U8, 30), tensor("e", format.U8, 0), tensor("f", format.U8, 2)}
	groups, err := split("m", ts, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range groups {
		names := ""
		for _, x := range g {
			names += x.Name
		}
		got = append(got, names)
	}
	if !slices.Equal(got, []string{"ab", "c", "d", "ef"}) {
		t.Errorf("shards are %q", got)
	}
}

// BenchmarkContent fills a piece as Write does.
func BenchmarkContent(b *testing.B) {
	buf := make([]byte, piece)
	b.SetBytes(piece)
	for b.Loop() {
		Content(1, 0, buf)
	}
}
