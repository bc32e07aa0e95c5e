// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// coldFile writes a file, and opens it with no page in the page cache and without readahead.
func coldFile(t *testing.T, data []byte) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(data); err == nil {
		err = w.Sync()
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if left, err := f.DropCache(); err != nil || left > 0 {
		t.Skipf("the page cache keeps %d bytes: %v", left, err)
	}
	f.ExpectRandom(true)
	return f
}

// TestPagesOnTheirWayAreNotForgotten drops the new pages of a partly cached file while the kernel is still reading some
// of them. mincore does not report such pages.
func TestPagesOnTheirWayAreNotForgotten(t *testing.T) {
	const size, there = 64 << 20, 1 << 20
	f := coldFile(t, make([]byte, size))
	if how, why := f.Probe(); how != ProbeCachestat {
		t.Skipf("the kernel reports cached pages by %s: %s", how, why)
	}
	if _, err := f.ReadAt(make([]byte, there), 0); err != nil {
		t.Fatal(err)
	}
	before, err := f.CachedPages()
	if err != nil {
		t.Fatal(err)
	}
	was := before.In(0, size)
	f.ExpectRandom(false)
	missed := 0
	for range 20 {
		if err := unix.Fadvise(f.BufferedFD(), there, size-there, unix.FADV_WILLNEED); err != nil {
			t.Fatal(err)
		}
		left, err := f.DropSince(before)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := f.Residency(0, size); err != nil || r.Cached > was+left {
			t.Errorf("%d bytes are cached, of which %d were there before and %d are left: %v", r.Cached, was, left, err)
		}
		if left > 0 {
			missed++
		}
	}
	t.Logf("in %d of 20 rounds the disk took too long", missed)
}
