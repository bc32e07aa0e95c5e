// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestSaveIsAJob(t *testing.T) {
	var table Table
	system, err := table.OpenSystem(`{"devices":"off","write_block_size":65536,"write_depth":3}`)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&data[0])
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	tensors := []nebulaio.SaveTensor{
		{Name: "t", DType: "U8", Shape: []int64{int64(len(data))}, Device: "host",
			Ptr: nebulaio.Ptr(uintptr(unsafe.Pointer(&data[0]))), Size: int64(len(data))},
		{Name: "none", DType: "F32", Shape: []int64{0, 5}, Device: "host"},
	}
	job, err := table.StartSave(system, path, tensors, 0, `{"metadata":{"a":"b"},"align":512,"route":"auto"}`)
	if err != nil {
		t.Fatal(err)
	}
	if running, done, total, err := table.Wait(job, -1); running || err != nil || done != total ||
		total <= int64(len(data)) {
		t.Fatalf("running %v, %d of %d, %v", running, done, total, err)
	}
	text, err := table.Report(job)
	if err != nil {
		t.Fatal(err)
	}
	var r nebulaio.ModelReport
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if r.Direction != "save" || r.Save == nil || r.Engine.BlockSize != 65536 || r.Engine.QueueDepth != 3 ||
		r.Tensors != 2 {
		t.Errorf("report: %s", text)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file[len(file)-len(data):], data) || (len(file)-len(data))%512 != 0 {
		t.Error("the file does not end in the tensor at an aligned place")
	}
	for options, want := range map[string]errs.Kind{
		`{"checksums":true}`:     errs.Invalid,
		`{"align":3}`:            errs.Invalid,
		`{"route":"fast"}`:       errs.Invalid,
		`{"metadata":{"a":1}}`:   errs.Invalid,
		`{"streams":{"x":1}}`:    errs.Invalid,
		`{"checksum":"yes"}`:     errs.Invalid,
		`{} {}`:                  errs.Invalid,
		`{"streams":{"cuda":0}}`: errs.NotFound,
	} {
		if _, err := table.StartSave(system, path, tensors, 0, options); !errs.Is(err, want) {
			t.Errorf("%s: %v, expected %v", options, err, want)
		}
	}
	for name, bad := range map[string]nebulaio.SaveTensor{
		"short":     {Name: "t", DType: "F32", Shape: []int64{2}, Device: "host", Ptr: 1, Size: 7},
		"no dtype":  {Name: "t", Shape: []int64{2}, Device: "host", Ptr: 1, Size: 8},
		"address 0": {Name: "t", DType: "F32", Shape: []int64{2}, Device: "host", Size: 8},
		"device":    {Name: "t", DType: "F32", Shape: []int64{2}, Device: "", Ptr: 1, Size: 8},
		"auto":      {Name: "t", DType: "F32", Shape: []int64{2}, Device: "auto", Ptr: 1, Size: 8},
	} {
		if _, err := table.StartSave(system, path, []nebulaio.SaveTensor{bad}, 0, ""); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := table.StartSave(job, path, nil, 0, ""); !errs.Is(err, errs.Closed) {
		t.Errorf("a job as a system: %v", err)
	}
	for _, h := range []uint64{job, system} {
		if err := table.Release(h); err != nil {
			t.Error(err)
		}
	}
}

// TestStreamsByDevice: a device has one stream whatever it is called, and the
// caller's word counts most.
func TestStreamsByDevice(t *testing.T) {
	on := func(ids ...string) []string { return ids }
	for _, c := range []struct {
		devices []string
		told    map[string]uint64
		want    map[string]uint64
	}{
		{on("host"), nil, map[string]uint64{}},
		{on("host", "cpu", "cuda", "cuda:0", "cuda:1"), nil, map[string]uint64{"cuda:0": 7, "cuda:1": 0}},
		{on("cuda:0", "cuda"), nil, map[string]uint64{"cuda:0": 7}},
		{on("cuda", "cuda:1"), map[string]uint64{"cuda:0": 8, "cuda:1": 9}, map[string]uint64{"cuda:0": 8, "cuda:1": 9}},
	} {
		if got := streamsOf(c.devices, 7, c.told); !maps.Equal(got, c.want) {
			t.Errorf("%+v and %v: %v, expected %v", c.devices, c.told, got, c.want)
		}
	}
}
