// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/synth"
)

// TestEverySingleBitFlipIsFound flips one bit at a time anywhere in a file and
// loads it onto the card, through the page cache and past it.
func TestEverySingleBitFlipIsFound(t *testing.T) {
	const flips = 1000
	sys := open(t, nebulaio.Options{})
	path := filepath.Join(dir(t), "m.safetensors")
	all, err := synth.Shapes("qwen3-0.6b")
	if err != nil {
		t.Fatal(err)
	}
	// One layer, 31 MB: matrices of many blocks and small tensors that share one.
	layer := slices.DeleteFunc(all, func(x format.Tensor) bool { return !strings.HasPrefix(x.Name, "model.layers.0.") })
	if _, err := synth.Write(t.Context(), path, synth.Options{Shapes: layer, Seed: 5}); err != nil {
		t.Fatal(err)
	}
	sums, err := checksum.Compute(t.Context(), path, checksum.DefaultBlock, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sums.Write(path); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	load := func(route nebulaio.Route) error {
		m, err := sys.Load(t.Context(), path, nebulaio.LoadOptions{Device: "cuda:0", Route: route, Verify: true})
		if err == nil {
			err = m.Free()
		}
		return err
	}
	for _, route := range []nebulaio.Route{"auto", "direct"} {
		if err := load(route); err != nil {
			t.Fatalf("as it was made: %v", err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	named := 0
	for i := range flips {
		at, bit := r.Int64N(sums.Size), byte(1)<<r.IntN(8)
		var b [1]byte
		if _, err := f.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{b[0] ^ bit}, at); err != nil {
			t.Fatal(err)
		}
		route := []nebulaio.Route{"auto", "direct"}[i%2]
		if route == "direct" {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if err := load(route); !errs.Is(err, errs.Corrupt) {
			t.Fatalf("flip %d, bit %#x of byte %d, route %s: %v", i, bit, at, route, err)
		} else if strings.Contains(err.Error(), `it holds tensor "`) && strings.Contains(err.Error(), path) {
			named++
		}
		if _, err := f.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d single-bit flips found, %d of them with file, block and tensor", flips, flips, named)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := load("direct"); err != nil {
		t.Fatalf("with every bit put back: %v", err)
	}
}
