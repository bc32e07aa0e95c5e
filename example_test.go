// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/nebulaio/nebulaio"
)

// writeModel writes a model of two tensors and returns its name.
func writeModel(dir string) string {
	header := `{"bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}}`
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range byte(32) {
		b = append(b, i)
	}
	path := filepath.Join(dir, "model.safetensors")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		log.Fatal(err)
	}
	return path
}

// A model is loaded to a device; its report says which way the bytes went. Here
// the GPU is left alone, so the device is host memory.
func ExampleSystem_Load() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	m, err := sys.Load(context.Background(), writeModel(dir), nebulaio.LoadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Free()

	for _, name := range m.Names() {
		t, _ := m.Tensor(name)
		fmt.Println(t.Name, t.DType, t.Shape, t.Size)
	}
	bias, err := m.Read("bias")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bias)
	r := m.Report()
	fmt.Println(r.Tensors, "tensors,", r.Bytes, "bytes on", r.Device.ID)
	for _, route := range r.Routes {
		fmt.Println(route.Route, route.Bytes)
	}
	// Output:
	// bias F32 [2] 8
	// weight F32 [2 3] 24
	// [0 1 2 3 4 5 6 7]
	// 2 tensors, 32 bytes on host
	// page_cache 32
}

// A source is read into memory of the caller, which a framework's own
// allocator would give.
func ExampleSystem_OpenSource() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	src, err := sys.OpenSource(context.Background(), writeModel(dir), nebulaio.SourceOptions{Tensors: []string{"w*"}})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	for _, t := range src.Tensors() {
		fmt.Println(t.Name, t.DType, t.Shape)
	}
	fmt.Println(src.Bytes(), "bytes in", len(src.Files()), "file")
	// Output:
	// weight F32 [2 3]
	// 24 bytes in 1 file
}

// A slice takes the second column of a tensor, and a shard one rank's rows. The other tensors are left out by name.
func ExampleSystem_Load_slices() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	path := writeModel(dir)
	column := nebulaio.Slice{Tensor: "weight", Ranges: []nebulaio.Range{{Start: 0, Stop: -1}, {Start: 1, Stop: 2}}}
	half := nebulaio.Shard{Tensor: "weight", Dim: 0, Rank: 1, World: 2}
	for _, o := range []nebulaio.LoadOptions{
		{Tensors: []string{"weight"}, Slices: []nebulaio.Slice{column}},
		{Tensors: []string{"weight"}, Shards: []nebulaio.Shard{half}},
	} {
		m, err := sys.Load(context.Background(), path, o)
		if err != nil {
			log.Fatal(err)
		}
		weight, _ := m.Tensor("weight")
		content, err := m.Read("weight")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(weight.Shape, content)
		if err := m.Free(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// [2 1] [12 13 14 15 24 25 26 27]
	// [1 3] [20 21 22 23 24 25 26 27 28 29 30 31]
}

// Tensors of the caller's memory become a file, with checksums beside it that a verified load reads.
func ExampleSystem_Save() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "saved.safetensors")

	ctx := context.Background()
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	tensor := nebulaio.SaveTensor{Name: "scale", DType: nebulaio.U8, Shape: []int64{3}, Bytes: []byte{1, 2, 3}}
	report, err := sys.Save(ctx, path, []nebulaio.SaveTensor{tensor},
		nebulaio.SaveOptions{Metadata: map[string]string{"step": "7"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Tensors, "tensor, checksums in", filepath.Base(report.Save.Checksums))

	m, err := sys.Load(ctx, path, nebulaio.LoadOptions{Verify: true})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Free()
	content, err := m.Read("scale")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(content, "verified:", m.Report().Verify.Blocks, "block")
	// Output:
	// 1 tensor, checksums in saved.safetensors.crc64nvme
	// [1 2 3] verified: 1 block
}

// A survey says what was looked for and, where there is no GPU, why.
func ExampleSystem_Survey() {
	sys, err := nebulaio.NewSystem(nebulaio.Options{CUDALibrary: "no-such-library.so"})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	s := sys.Survey()
	for _, d := range s.Devices {
		fmt.Println(d.ID)
	}
	fmt.Println(s.Fix)
	// Output:
	// host
	// install the NVIDIA driver (nvidia-smi must work); in a container pass the GPU through (--gpus all)
}
