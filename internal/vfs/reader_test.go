// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAReaderThatDropsReadsNothingAhead reads the first blocks of a cold file in order. What another Reader has read
// and dropped would otherwise come back into the page cache.
func TestAReaderThatDropsReadsNothingAhead(t *testing.T) {
	const size, block = 8 << 20, 512 << 10
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if left, err := f.DropCache(); err != nil || left != 0 {
		t.Skipf("%d bytes stay in the page cache: %v", left, err)
	}
	r, err := f.NewReader(true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := make([]byte, block)
	for off := int64(0); off < 3*block; off += block {
		if err := r.ReadFull(p, off); err != nil {
			t.Fatal(err)
		}
	}
	if got, known := f.CachedBytes(3*block, size-3*block); !known {
		t.Skip("the kernel does not tell which pages are cached")
	} else if got > 0 {
		t.Errorf("%d bytes behind those that were read are in the page cache", got)
	}
}
