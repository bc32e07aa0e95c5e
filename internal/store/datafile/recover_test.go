// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"bytes"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sys/unix"
)

// TestRecoverWithoutSpaceForNames: files that cannot get their places are readable, and get them when there is space.
func TestRecoverWithoutSpaceForNames(t *testing.T) {
	mem := vfs.NewMem()
	f, err := Open(Options{FS: mem, Dir: "store"})
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("content"), 1000)
	w, err := f.Create(7, int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.Fill(t.Context(), bytes.NewReader(content), int64(len(content)), false)
	if err == nil {
		err = w.Sync(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil { // committed, and not settled: the process ended
		t.Fatal(err)
	}

	full, failed := true, 0
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full && op.Kind == errorfs.OpLink {
			return unix.ENOSPC
		}
		return nil
	}))
	f = open(t, Options{FS: fs, Dir: "store", Failed: func(ID, error) { failed++ }})
	r, err := f.Recover(func(ID) bool { return true })
	if err != nil || len(r.Settled) != 0 || len(r.Removed) != 0 || failed != 1 {
		t.Fatalf("%+v, %v, %d failures told, expected nothing done and one told", r, err, failed)
	}
	reader, err := f.OpenRead(7, got.Size, func() ([]uint64, error) { return got.Sums, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	body, err := reader.Section(0, got.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if read, err := io.ReadAll(body); err != nil || !bytes.Equal(read, content) {
		t.Fatalf("%d bytes, %v", len(read), err)
	}
	full = false
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if all := names(t, f); len(all) != 1 || all[0] != "data/00/00/0000000000000007" {
		t.Errorf("%v", all)
	}
}
