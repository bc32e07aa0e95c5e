// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/nebulaio/nebulaio"
)

// pick returns a range of rows or columns of a matrix in host memory.
func pick(data []byte, shape []int64, dim int, lo, hi int64) []byte {
	row := int64(len(data)) / shape[0]
	if dim == 0 {
		return data[lo*row : hi*row]
	}
	element := row / shape[1]
	out := make([]byte, 0, shape[0]*(hi-lo)*element)
	for i := range shape[0] {
		out = append(out, data[i*row+lo*element:i*row+hi*element]...)
	}
	return out
}

// TestSlicesOfEveryRankAreExact loads each rank's rows and columns of every matrix of a model, warm and cold. It
// compares them with the same part of a whole load.
func TestSlicesOfEveryRankAreExact(t *testing.T) {
	const world = 8
	sys := open(t, nebulaio.Options{})
	path := filepath.Join(dir(t), "m.safetensors")
	generate(t, path, "qwen3-0.6b", 11, 0)
	src, err := sys.OpenSource(t.Context(), path, nebulaio.SourceOptions{Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	all, err := src.Load(t.Context(), nebulaio.SourceLoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Free()
	data := map[string][]byte{}
	var names []string
	for _, x := range src.Tensors() {
		if len(x.Shape) == 2 {
			names = append(names, x.Name)
			if data[x.Name], err = all.Read(x.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, how := range []struct {
		name string
		cold bool
	}{{"warm", false}, {"cold", true}} { // warm first: the page cache has been filled
		for dim, what := range []string{"rows", "columns"} {
			t.Run(how.name+"/"+what, func(t *testing.T) {
				for rank := range world {
					var shards []nebulaio.Shard
					for _, n := range names {
						shards = append(shards, nebulaio.Shard{Tensor: n, Dim: dim, Rank: rank, World: world})
					}
					part, err := sys.OpenSource(t.Context(), path,
						nebulaio.SourceOptions{Device: "cuda:0", Tensors: names, Shards: shards})
					if err != nil {
						t.Fatal(err)
					}
					if how.cold {
						if _, err := part.DropCache(); err != nil {
							t.Fatal(err)
						}
					}
					m, err := part.Load(t.Context(), nebulaio.SourceLoadOptions{Cache: "bypass"})
					if err != nil {
						t.Fatal(err)
					}
					for _, x := range part.Tensors() {
						got, err := m.Read(x.Name)
						if err != nil {
							t.Fatal(err)
						}
						if want := pick(data[x.Name], x.Whole, dim, x.Start[dim], x.Start[dim]+x.Shape[dim]); !bytes.Equal(got, want) {
							t.Fatalf("rank %d of %s differs", rank, x.Name)
						}
					}
					r := m.Report()
					if dim == 0 && r.Amplification > 1.5 {
						t.Errorf("rank %d read %d bytes for %d of rows", rank, r.Read, r.Wanted)
					}
					if rank == 0 || rank == world-1 {
						t.Logf("rank %d of %d: read %d of wanted %d (%.3f x), %.2f GB/s wanted, %.2f GB/s read, limiting %s, routes %+v",
							rank, world, r.Read, r.Wanted, r.Amplification, r.GBps, r.GBps*r.Amplification, r.Limiting, r.Routes)
					}
					if err := m.Free(); err != nil {
						t.Error(err)
					}
					if err := part.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}
