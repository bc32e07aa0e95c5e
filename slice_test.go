// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/synth"
)

// A slice is verified as all loads are: by whole blocks, and a bit that differs
// in one that holds a wanted byte is found though nobody wants the bit.
func TestSlicesAreLoadedAndVerified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	const rows, columns = 600, 400
	files, err := synth.Write(t.Context(), path, synth.Options{Seed: 9, Shapes: []format.Tensor{
		{Name: "a", DType: format.F32, Shape: []int64{rows, columns}, Size: rows * columns * 4},
		{Name: "b", DType: format.F32, Shape: []int64{rows, columns}, Size: rows * columns * 4}}})
	if err != nil {
		t.Fatal(err)
	}
	sums, err := checksum.Compute(t.Context(), path, checksum.MinBlock, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sums.Write(path); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: "off"})
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	o := nebulaio.LoadOptions{Device: "host", Verify: true,
		Slices: []nebulaio.Slice{{Tensor: "a", Ranges: []nebulaio.Range{{Start: 10, Stop: 100}, {Start: 5, Stop: 25}}}},
		Shards: []nebulaio.Shard{{Tensor: "b", Dim: 0, Rank: 7, World: 8}}}
	m, err := sys.Load(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	a, b := files[0].Tensors[0], files[0].Tensors[1]
	var want []byte
	for i := 10; i < 100; i++ {
		want = append(want, raw[int(a.Offset)+(i*columns+5)*4:][:20*4]...)
	}
	for name, want := range map[string][]byte{"a": want, "b": raw[b.Offset+525*columns*4:]} {
		got, err := m.Read(name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
	if x, _ := m.Tensor("a"); x.Shape[0] != 90 || x.Shape[1] != 20 || x.Size != 90*20*4 {
		t.Errorf("%+v", x)
	}
	r := m.Report()
	if r.Wanted != 90*20*4+75*columns*4 || r.Read <= r.Wanted || r.Verify == nil || r.Verify.Blocks == 0 {
		t.Errorf("%+v %+v", r.ReadTotals, r.Verify)
	}
	if err := m.Free(); err != nil {
		t.Error(err)
	}
	raw[int(a.Offset)+50*columns*4] ^= 1 // column 0, which is not wanted
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sys.Load(context.Background(), path, o); !errs.Is(err, errs.Corrupt) ||
		!strings.Contains(err.Error(), `tensor "a"`) {
		t.Errorf("got %v", err)
	}
}
