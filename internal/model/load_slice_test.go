// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/model"
	"github.com/nebulaio/nebulaio/internal/synth"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/closing"
	"github.com/nebulaio/nebulaio/test/effort"
)

// boxOf takes a box out of a tensor's bytes, element by element.
func boxOf(data []byte, shape []int64, bits int64, box []model.Range) []byte {
	if len(shape) == 0 {
		return data
	}
	if len(shape) == 1 { // elements may be smaller than a byte
		return data[box[0].Start*bits/8 : box[0].Stop*bits/8]
	}
	each := int64(len(data)) / shape[0]
	var out []byte
	for i := box[0].Start; i < box[0].Stop; i++ {
		out = append(out, boxOf(data[i*each:(i+1)*each], shape[1:], bits, box[1:])...)
	}
	return out
}

// tensor is one to be written.
func tensor(name string, d format.DType, shape ...int64) format.Tensor {
	n := int64(d.Bits())
	for _, s := range shape {
		n *= s
	}
	return format.Tensor{Name: name, DType: d, Shape: shape, Size: n / 8}
}

// place is a device and a look into its memory.
type place struct {
	dev  device.Device
	read func(p device.Ptr, n int64) []byte
}

func places(t *testing.T) map[string]place {
	g := fakegpu.Build(t, fakegpu.Options{})
	onHost := func(p device.Ptr, n int64) []byte { return host.New().Map(p, n) }
	return map[string]place{"in place": {host.New(), onHost}, "staged": {host.Staged(), onHost},
		"gpu": {g.Open("cuda:0"), g.Bytes}}
}

// wide is a model of all dtypes in which rows are long enough to be apart.
func wide() []format.Tensor {
	var out []format.Tensor
	for i, d := range format.DTypes() {
		for k, shape := range [][]int64{{24, 640}, {5, 16, 80}, {3, 2, 8, 40}, {4000}, {}} {
			if len(shape) == 0 && d.Bits() < 8 {
				continue
			}
			out = append(out, tensor(fmt.Sprintf("t%d.%d", i, k), d, shape...))
		}
	}
	return append(out, tensor("far", format.U8, []int64{6, 70_000}...))
}

// write makes the model on a disk and returns its path and its data by tensor.
func write(t *testing.T, name string, shard int64) (string, map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	files, err := synth.Write(context.Background(), path, synth.Options{Shapes: wide(), Seed: 3, ShardSize: shard})
	if err != nil {
		t.Fatal(err)
	}
	data := map[string][]byte{}
	for _, f := range files {
		raw, err := os.ReadFile(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range f.Tensors {
			data[x.Name] = raw[x.Offset : x.Offset+x.Size]
		}
	}
	return path, data
}

// drawSlices gives some tensors a box, and tells for each the box in full.
func drawSlices(rng *rand.Rand, tensors []format.Tensor) ([]model.Slice, map[string][]model.Range) {
	var out []model.Slice
	full := map[string][]model.Range{}
	for _, x := range tensors {
		var box []model.Range
		for i, n := range x.Shape {
			a := rng.Int64N(n)
			b := a + 1 + rng.Int64N(n-a)
			if x.DType.Bits() < 8 && i == len(x.Shape)-1 { // eight elements are whole bytes of any dtype
				a, b = a/8*8, min((b+7)/8*8, n)
			}
			if rng.IntN(3) == 0 {
				a, b = 0, n
			}
			box = append(box, model.Range{Start: a, Stop: b})
		}
		if rng.IntN(4) == 0 || len(box) == 0 {
			box = nil
			for _, n := range x.Shape {
				box = append(box, model.Range{Stop: n})
			}
		} else {
			out = append(out, model.Slice{Tensor: x.Name, Ranges: box})
		}
		full[x.Name] = box
	}
	return out, full
}

// TestSlicesOfEveryDTypeArrive loads random boxes of all tensors of a model, on
// every device, by every route, with chunks that are smaller than rows and
// larger, and compares them with a slicer that goes index by index.
func TestSlicesOfEveryDTypeArrive(t *testing.T) {
	path, data := write(t, "m.safetensors", 0)
	sharded, other := write(t, "sharded", 100_000)
	rng := rand.New(rand.NewPCG(8, 9))
	rounds := effort.Rounds{Test: 2, CI: 4}.Of(t)
	shapes := map[string][]int64{}
	for _, x := range wide() {
		shapes[x.Name] = x.Shape
	}
	for pname, p := range places(t) {
		for _, io := range []transfer.IO{transfer.IOPread, transfer.IOUring} {
			for _, route := range []report.Route{report.RouteAuto, report.RouteBuffered, report.RouteDirect} {
				t.Run(fmt.Sprintf("%s/%s/%s", pname, io, route), func(t *testing.T) {
					e, err := transfer.New(transfer.Options{IO: io, PoolSize: units.MiB, MaxTransfer: 64 * units.KiB, Poison: true})
					if err != nil {
						t.Fatal(err)
					}
					defer e.Close()
					for round := range rounds {
						name, data := path, data
						if round%2 == 1 {
							name, data = sharded, other
						}
						ss, boxes := drawSlices(rng, wide())
						_, addressable := p.dev.(device.Mapper)
						m := open(t, name, model.Options{Slices: ss, Addressable: addressable})
						loadAndCompare(t, e, p, m, route, func(x model.Placement) []byte {
							return boxOf(data[x.Name], shapes[x.Name], int64(x.DType.Bits()), boxes[x.Name])
						})
					}
				})
			}
		}
	}
}

// loadAndCompare loads a model cold and compares each tensor.
func loadAndCompare(t *testing.T, e *transfer.Engine, p place, m *model.Model, route report.Route,
	want func(model.Placement) []byte) report.Report {
	t.Helper()
	if _, err := m.DropCache(); err != nil && !errs.Is(err, errs.Unsupported) {
		t.Fatal(err)
	}
	var dst []model.Destination
	for _, l := range m.Layouts {
		if l.Size == 0 {
			dst = append(dst, model.Destination{})
			continue
		}
		b, err := p.dev.Alloc(l.Size)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Free()
		dst = append(dst, model.Destination{Ptr: b.Ptr(), Size: l.Size})
	}
	tr, err := m.Start(context.Background(), e, p.dev, dst, model.LoadOptions{Route: route, Cache: report.CacheBypass})
	if errs.Is(err, errs.Unsupported) {
		t.Skipf("no direct reads here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	for _, x := range m.Tensors {
		if w := want(x); int64(len(w)) != x.Size || !bytes.Equal(p.read(dst[x.File].Ptr+device.Ptr(x.At), x.Size), w) {
			t.Fatalf("%s %v differs: shape %v, from %v, of %v", x.Name, x.DType, x.Shape, x.Start, x.Whole)
		}
	}
	r := tr.Report()
	if r.Wanted != m.Bytes() || r.Bytes != m.Bytes() || r.Read < r.Wanted {
		t.Fatalf("%d bytes wanted, %d delivered, %d read, expected %d", r.Wanted, r.Bytes, r.Read, m.Bytes())
	}
	return r
}

// writeModel writes tensors of these shapes to one file. It returns the file's path, its description and its bytes.
func writeModel(t *testing.T, shapes []format.Tensor) (path string, file *format.File, raw []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "m.safetensors")
	files, err := synth.Write(context.Background(), path, synth.Options{Shapes: shapes, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, files[0], raw
}

// The ranks of a sharded load together have every row, or column, once, and
// rows cost no more than they are.
func TestShardsOfAllRanksAreTheModel(t *testing.T) {
	var shapes []format.Tensor
	for i := range 4 {
		shapes = append(shapes, tensor(fmt.Sprintf("w%d", i), format.BF16, []int64{509, 1024}...),
			tensor(fmt.Sprintf("n%d", i), format.BF16, []int64{1024}...))
	}
	path, file, raw := writeModel(t, shapes)
	all := places(t) // closed after the engine
	e, err := transfer.New(transfer.Options{})
	closing.AtEnd(t, e, err)
	const world = 8
	for pname, p := range all {
		for dim := range 2 {
			t.Run(fmt.Sprintf("%s/%d", pname, dim), func(t *testing.T) {
				var sum int64
				for rank := range world {
					_, addressable := p.dev.(device.Mapper)
					m := open(t, path, model.Options{Tensors: []string{"w*"},
						Shards: []model.Shard{{Tensor: "w*", Dim: dim, Rank: rank, World: world}}, Addressable: addressable})
					r := loadAndCompare(t, e, p, m, report.RouteAuto, func(x model.Placement) []byte {
						i := slices.IndexFunc(file.Tensors, func(f format.Tensor) bool { return f.Name == x.Name })
						f := file.Tensors[i]
						box := []model.Range{{Stop: 509}, {Stop: 1024}}
						n := f.Shape[dim]
						box[dim] = model.Range{Start: n * int64(rank) / world, Stop: n * int64(rank+1) / world}
						return boxOf(raw[f.Offset:f.Offset+f.Size], f.Shape, 16, box)
					})
					sum += r.Wanted
					if dim == 0 && r.Amplification > 1.5 {
						t.Errorf("rank %d read %d bytes for %d of rows", rank, r.Read, r.Wanted)
					}
					if room := m.Layouts[0].Size - m.Bytes(); room > int64(len(m.Tensors)+1)*4096 {
						t.Errorf("the destination has %d bytes more than are wanted", room)
					}
				}
				if sum != 4*509*1024*2 {
					t.Errorf("all ranks together have %d bytes", sum)
				}
			})
		}
	}
}

func TestChosenTensorsWithSmallGapsAreOneRead(t *testing.T) {
	var shapes []format.Tensor
	for i := range 20 {
		shapes = append(shapes, tensor(fmt.Sprintf("%02d.take", i), format.U8, []int64{1000}...),
			tensor(fmt.Sprintf("%02d.leave", i), format.U8, []int64{500}...))
	}
	path, file, raw := writeModel(t, shapes)
	all := places(t) // closed after the engine
	e, err := transfer.New(transfer.Options{})
	closing.AtEnd(t, e, err)
	for pname, p := range all {
		t.Run(pname, func(t *testing.T) {
			m := open(t, path, model.Options{Tensors: []string{"*.take"}})
			r := loadAndCompare(t, e, p, m, report.RouteBuffered, func(x model.Placement) []byte {
				i := slices.IndexFunc(file.Tensors, func(f format.Tensor) bool { return f.Name == x.Name })
				return raw[file.Tensors[i].Offset:][:x.Size]
			})
			first, last := m.Tensors[0], m.Tensors[len(m.Tensors)-1]
			if span := last.Offset + last.Size - first.Offset; r.Wanted != 20_000 || r.Read != span {
				t.Errorf("%d bytes wanted and %d read, expected 20000 and %d", r.Wanted, r.Read, span)
			}
			chunks := int64(0)
			for _, x := range r.Routes {
				chunks += x.Chunks
			}
			if chunks > 4 {
				t.Errorf("20 tensors with small gaps took %d reads", chunks)
			}
		})
	}
}

func TestSlicesThatDoNotFitTheModel(t *testing.T) {
	path, _ := write(t, "m.safetensors", 0)
	for want, o := range map[string]model.Options{
		`"t0.0" of shape [24 640]`: {Slices: []model.Slice{{Tensor: "t0.*",
			Ranges: []model.Range{{Start: 3, Stop: 25}}}}},
		`"none*": matches no chosen tensor of`: {Slices: []model.Slice{{Tensor: "none*"}}},
		`"t0.0": matches no chosen tensor of`: {Tensors: []string{"t1.*"},
			Slices: []model.Slice{{Tensor: "t0.0"}}},
		`is chosen by slice "t0.*" and by shard "t?.0" (dimension 0, rank 0 of 2)`: {Slices: []model.Slice{{Tensor: "t0.*"}},
			Shards: []model.Shard{{Tensor: "t?.0", World: 2}}},
		"cuts inside a byte": {Slices: []model.Slice{{Tensor: "t1.0",
			Ranges: []model.Range{{Stop: -1}, {Start: 1, Stop: 3}}}}},
	} {
		if _, err := model.Open(context.Background(), path, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
