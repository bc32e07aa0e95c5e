// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// The sums of files that nobody reads take a bounded room, however large the files are.
func TestSumsOfIdleFilesAreBounded(t *testing.T) {
	f := open(t, Options{FS: vfs.NewMem(), Dir: "store"})
	f.cache.most = 7
	var outs []Written
	for id := range ID(5) {
		outs = append(outs, write(t, f, id+1, noise(3*Block, byte(id))))
	}
	touch := func(id ID) { // one block of three, so that the sums are still needed
		t.Helper()
		if _, err := read(t, f, id, outs[id-1], 0, 10); err != nil {
			t.Fatal(err)
		}
	}
	for id := range ID(5) {
		touch(id + 1)
		touch(1)
		kept := 0
		for _, e := range f.cache.entries {
			kept += len(e.sums)
		}
		if kept > 7 || kept != f.cache.sums || len(f.cache.entries) != min(int(id)+1, 2) {
			t.Fatalf("%d sums are kept and %d counted, of %d files", kept, f.cache.sums, len(f.cache.entries))
		}
	}
	if f.cache.entries[1] == nil {
		t.Error("the file that was used last is not kept")
	}
	if _, err := f.Remove(1); err != nil {
		t.Fatal(err)
	}
	if f.cache.sums != 3 {
		t.Errorf("%d sums are counted after one of two files is gone", f.cache.sums)
	}
}

// A section of a reader that is closed would read from whatever file has its descriptor by then.
func TestAClosedReaderHasNoSections(t *testing.T) {
	f := open(t, Options{FS: vfs.NewMem(), Dir: "store"})
	r := reader(t, f, 1, write(t, f, 1, noise(100, 1)))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Section(0, 1); errs.KindOf(err) != errs.Closed {
		t.Errorf("a section of a closed reader: %v", err)
	}
}
