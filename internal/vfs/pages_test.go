// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPagesOnTheirWayAreNotForgotten drops the pages of a partly cached file while the kernel reads others of them
// ahead. mincore does not report a page before its bytes have arrived.
func TestPagesOnTheirWayAreNotForgotten(t *testing.T) {
	const size, there = 64 << 20, 1 << 20
	path := filepath.Join(t.TempDir(), "file")
	o, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = o.Write(make([]byte, size)); err == nil {
		err = o.Sync()
	}
	if err != nil || o.Close() != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if how, why := f.Probe(); how != ProbeCachestat {
		t.Skipf("the kernel reports cached pages by %s: %s", how, why)
	}
	if left, err := f.DropCache(); err != nil || left != 0 {
		t.Skipf("%d bytes stay in the page cache: %v", left, err)
	}
	f.ExpectRandom(true)
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
