// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// done waits for a job and returns its report.
func done(t *testing.T, table *Table, job uint64, into any) {
	t.Helper()
	if running, done, total, err := table.Wait(job, -1); running || err != nil || done != total {
		t.Fatalf("running %v, %d of %d, %v", running, done, total, err)
	}
	text, err := table.Report(job)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err == nil {
		err = table.Release(job)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestGathersAndWritesAreJobs(t *testing.T) {
	var table Table
	ranges := Ranges{Table: &table}
	system, err := table.OpenSystem(`{"devices":"off"}`)
	if err != nil {
		t.Fatal(err)
	}
	data, out := bytes.Repeat([]byte("0123456789abcdef"), 20_000), make([]byte, 320_000)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&data[0])
	pin.Pin(&out[0])
	at := func(b []byte) nebulaio.Ptr { return nebulaio.Ptr(uintptr(unsafe.Pointer(&b[0]))) }
	path := filepath.Join(t.TempDir(), "a")
	pieces := []nebulaio.Piece{{Ptr: at(data), Size: int64(len(data)), Device: "host"}, {Device: "cpu"}}
	job, err := ranges.StartWritePieces(system, path, pieces, 0, `{"route":"auto","checksum":true}`)
	if err != nil {
		t.Fatal(err)
	}
	var w nebulaio.WriteReport
	done(t, &table, job, &w)
	if w.CRC64NVME != fmt.Sprintf("%016x", checksum.Of(data)) || w.Pieces != 2 || w.Direction != "save" {
		t.Errorf("%+v", w)
	}
	segments := []nebulaio.GatherSegment{{Size: int64(len(data)), Ptr: at(out), Label: "t"}}
	job, err = ranges.StartGather(system, []string{path}, segments, 0, `{"device":"host","verify":true,"cache":"keep"}`)
	if err != nil {
		t.Fatal(err)
	}
	var g nebulaio.GatherReport
	done(t, &table, job, &g)
	if !bytes.Equal(out, data) || g.Segments != 1 || g.Verify == nil || g.Direction != "load" {
		t.Errorf("%+v", g)
	}
	for _, bad := range []nebulaio.GatherSegment{{File: -1}, {Offset: -1}, {Size: -1}, {Width: -1}, {Stride: -1}} {
		_, err := ranges.StartGather(system, []string{path}, []nebulaio.GatherSegment{bad}, 0, "")
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "18446744073709551615") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := ranges.StartWritePieces(system, path, []nebulaio.Piece{{Size: -5}}, 0, ""); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "18446744073709551611") {
		t.Error(err)
	}
	for options, want := range map[string]errs.Kind{`{"align":3}`: errs.Invalid, `{"verify":1}`: errs.Invalid,
		`{"client":{"timeout_ms":-1}}`: errs.Invalid, `{"device":"x"}`: errs.Invalid, `{"device":"cuda"}`: errs.NotFound} {
		if _, err := ranges.StartGather(system, []string{path}, segments, 0, options); !errs.Is(err, want) {
			t.Errorf("gather %s: %v", options, err)
		}
	}
	for options, want := range map[string]errs.Kind{`{"align":3}`: errs.Invalid, `{"checksum":1}`: errs.Invalid,
		`{"client":{"timeout_ms":-1}}`: errs.Invalid, `{"streams":{"x":1}}`: errs.Invalid,
		`{"streams":{"cuda":1}}`: errs.NotFound, `{"route":"cufile"}`: errs.Invalid} {
		if _, err := ranges.StartWritePieces(system, path, pieces, 0, options); !errs.Is(err, want) {
			t.Errorf("write %s: %v", options, err)
		}
	}
	if _, err := ranges.StartGather(system+99, nil, nil, 0, ""); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	if _, err := ranges.StartWritePieces(system+99, path, nil, 0, ""); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, data) {
		t.Errorf("the file changed: %v", err)
	}
	if err := table.Release(system); err != nil {
		t.Error(err)
	}
}

// FuzzGatherOptions holds that options of gathers and writes are read or refused as Invalid.
func FuzzGatherOptions(f *testing.F) {
	f.Add(`{"device": "host", "verify": true, "client": {"endpoint": "http://h:1", "verify": false}}`)
	f.Add(`{"checksum": false, "streams": {"cuda:0": 18446744073709551615}, "client": {"timeout_ms": 9}}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, into := range []any{&gatherOptions{}, &writePiecesOptions{}} {
			if err := decode(text, into); err != nil && !errs.Is(err, errs.Invalid) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
