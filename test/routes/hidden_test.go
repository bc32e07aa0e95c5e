// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// TestPagesThatMincoreLeavesOutAreDropped makes pages in the page cache that have only a part of their content. mincore
// does not report such pages, and does not report the empty pages that squashfs may leave. A load must drop them too.
func TestPagesThatMincoreLeavesOutAreDropped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting file systems needs root")
	}
	if os.Getenv(inNamespace) == "" {
		aside(t)
		return
	}
	l := &lab{t: t, dir: t.TempDir()}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), l.mayMount()); err != nil {
		t.Skipf("this process may not mount: %v", err)
	}
	p, err := l.disk(place{name: "ext4", fs: "ext4"}, false, 64<<20, []string{"mkfs.ext4", "-q", "-F", "-b", "1024"}, "")
	if err != nil {
		t.Skip(err)
	}
	l.detach()
	for _, there := range []int64{0, fileSize / 2} {
		t.Run(fmt.Sprintf("%d cached", there), func(t *testing.T) { dropHidden(t, p, there) })
	}
}

// dropHidden writes parts of pages, so that mincore does not report these pages, and then drops them. The first `there`
// bytes of the file are in the page cache before and after.
func dropHidden(t *testing.T, p place, there int64) {
	f, err := vfs.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if how, why := f.Probe(); how != vfs.ProbeCachestat {
		t.Skipf("the kernel reports cached pages by %s: %s", how, why)
	}
	if left, err := f.DropCache(); err != nil || left > 0 {
		t.Skipf("the page cache keeps %d bytes: %v", left, err)
	}
	f.ExpectRandom(true)
	if _, err := f.ReadBuffered(make([]byte, there), 0); err != nil {
		t.Fatal(err)
	}
	before, err := f.CachedPages()
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(p.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for at := int64(fileSize / 2); at < fileSize; at += 8192 {
		if _, err := w.WriteAt(content()[at:at+1024], at); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	r, err := f.Residency(0, fileSize)
	if err != nil {
		t.Fatal(err)
	}
	seen := count(resident(t, p.path))
	t.Logf("%d bytes are cached, of which mincore reports %d", r.Cached, seen)
	if r.Cached != there+fileSize/4 || seen != there {
		t.Skip("the kernel reads whole pages for writes of a part")
	}
	left, err := f.DropSince(before)
	if err != nil || left > 0 {
		t.Errorf("%d bytes are left, expected none: %v", left, err)
	}
	if r, err := f.Residency(0, fileSize); err != nil || r.Cached != there {
		t.Errorf("%d bytes are cached, expected the %d from before: %v", r.Cached, there, err)
	}
}
