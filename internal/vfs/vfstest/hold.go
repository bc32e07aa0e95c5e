// SPDX-License-Identifier: Apache-2.0

package vfstest

import (
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Hold brings the bytes [off, off+n) of the file at path into the page cache, without readahead, and keeps them there
// until `release` is called or the test ends. A kernel takes clean pages that were only read at any time: where DAMON
// reclaims memory, every few seconds. Mapped and locked pages stay.
func Hold(tb testing.TB, path string, off, n int64) (release func()) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	start := off &^ int64(os.Getpagesize()-1)
	pages, err := unix.Mmap(int(f.Fd()), start, int(off+n-start), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		tb.Fatalf("map %s at %d: %v", path, start, err)
	}
	release = sync.OnceFunc(func() {
		if err := unix.Munmap(pages); err != nil {
			tb.Errorf("unmap %s: %v", path, err)
		}
	})
	tb.Cleanup(release)
	if err := unix.Madvise(pages, unix.MADV_RANDOM); err != nil {
		tb.Fatalf("turn the readahead of %s off: %v", path, err)
	}
	if unix.Mlock(pages) == nil {
		return release
	}
	// A user who may lock only little memory reads the pages. Mapped pages are the last ones that a kernel takes.
	if err := unix.Madvise(pages, unix.MADV_POPULATE_READ); err != nil {
		tb.Fatalf("read the pages of %s: %v", path, err)
	}
	return release
}
