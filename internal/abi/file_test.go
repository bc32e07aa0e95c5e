// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

func TestFiles(t *testing.T) {
	var table abi.Table
	c := &caller{T: t}
	system, err := table.OpenSystem(`{"devices":"off"}`)
	c.must(err)
	r, err := hostmem.Map(1 << 20)
	c.must(err)
	defer r.Unmap()
	mem := r.Bytes()
	ptr := nebulaio.Ptr(uintptr(unsafe.Pointer(&mem[0])))
	path := filepath.Join(t.TempDir(), "f")
	copy(mem, "what is written")
	file, err := table.OpenFile(system, path, "w", `{"device":"host"}`)
	c.must(err)
	move := func(write bool, n, off uint64) (int64, error) {
		t.Helper()
		job, err := table.StartMove(file, write, ptr, n, off, 0, "")
		if err != nil {
			return 0, err
		}
		_, done, _, err := table.Wait(job, -1)
		if text, rerr := table.Report(job); rerr != nil || !json.Valid(text) {
			t.Errorf("report %s, %v", text, rerr)
		}
		c.must(table.Release(job))
		return done, err
	}
	if n, err := move(true, 15, 5); n != 15 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	c.must(table.SyncFile(file))
	if n, err := table.FileSize(file); n != 20 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	clear(mem)
	if n, err := move(false, 100, 10); n != 10 || err != nil || string(mem[:10]) != "is written" {
		t.Errorf("%d, %v, %q", n, err, mem[:10])
	}
	if _, err := move(false, 1<<63, 0); !errs.Is(err, errs.Invalid) {
		t.Error(err)
	}
	// A release waits for the move that runs.
	job, err := table.StartMove(file, true, ptr, 1<<20, 0, 0, `{"route":"buffered"}`)
	c.must(err)
	c.must(table.Release(file))
	if running, done, _, err := table.Wait(job, 0*time.Second); running || done != 1<<20 || err != nil {
		t.Errorf("%v, %d, %v", running, done, err)
	}
	c.must(table.Release(job))
	for _, bad := range []struct{ flags, options string }{{"a", ""}, {"", ""}, {"r", `{"mode":1}`},
		{"r", `{"route":"fast"}`}} {
		if _, err := table.OpenFile(system, path, bad.flags, bad.options); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := table.StartMove(file, true, ptr, 1, 0, 0, ""); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	for _, k := range []struct {
		flags string
		size  int64
	}{{"r", 1 << 20}, {"r+", 1 << 20}, {"w+", 0}} {
		f, err := table.OpenFile(system, path, k.flags, "")
		c.must(err)
		if st, err := os.Stat(path); err != nil || st.Size() != k.size {
			t.Errorf("%s: %v, %v", k.flags, st, err)
		}
		c.must(table.Release(f))
	}
	c.must(table.Release(system))
}
