// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/object"
	store "github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

// TestDraftsShareBlocks edits an object on file systems with and without reflinks. Where there are reflinks, the
// private copy takes no space, and elsewhere it is copied.
func TestDraftsShareBlocks(t *testing.T) {
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
	for _, kind := range []struct {
		place
		shares bool
		mkfs   []string
	}{
		{place{name: "ext4", fs: "ext4"}, false, []string{"mkfs.ext4", "-q", "-F", "-E",
			"lazy_itable_init=0,lazy_journal_init=0"}},
		{place{name: "xfs", fs: "xfs"}, true, []string{"mkfs.xfs", "-q", "-f", "-m", "reflink=1"}},
		{place{name: "btrfs", fs: "btrfs"}, true, []string{"mkfs.btrfs", "-q", "-f"}},
	} {
		p, err := l.disk(kind.place, false, 512<<20, kind.mkfs, "")
		if err != nil {
			t.Logf("not tried: %s: %v", kind.name, err)
			continue
		}
		t.Run(kind.name, func(t *testing.T) { editOn(t, filepath.Join(filepath.Dir(p.path), "store"), kind.shares) })
	}
	l.detach()
}

// editOn changes an object of a store in dir.
func editOn(t *testing.T, dir string, shares bool) {
	s, err := store.Open(t.Context(), store.Options{Dir: dir, Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	old := bytes.Repeat(content()[:1<<20], 64)
	copy(old[5<<20:], "not all blocks are equal")
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: "k", Size: int64(len(old)),
		Body: bytes.NewReader(old)}); err != nil {
		t.Fatal(err)
	}
	h, err := s.Handle(t.Context(), object.Ref{Bucket: "b", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	onDisk(t, dir)
	before := free(t, dir)
	d, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: "k", Size: int64(len(old)) + 7, Grows: true, From: h,
		Condition: object.Condition{IfMatch: h.Info().ETag}})
	if err != nil {
		t.Fatal(err)
	}
	onDisk(t, dir)
	took := before - free(t, dir)
	if want := map[bool]int64{true: 0, false: int64(len(old))}[shares]; d.Copied() != want {
		t.Errorf("%d bytes were copied, expected %d", d.Copied(), want)
	}
	if shares && took > 8<<20 || !shares && took < 32<<20 {
		t.Errorf("the private copy of %d bytes takes %d", len(old), took)
	}
	f, err := d.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	want := append(append([]byte{}, old...), "the end"...)
	copy(want[1<<20+5:], "changed")
	for at, piece := range map[int64]string{1<<20 + 5: "changed", int64(len(old)): "the end"} {
		if _, err := f.WriteAt([]byte(piece), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Commit(t.Context(), storetest.Seal(want)); err != nil {
		t.Fatal(err)
	}
	is := func(what string, h object.Handle, want []byte) {
		f, err := h.Open(false)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the %s object has other bytes: %d, %v", what, len(got), err)
		}
	}
	is("old", h, old)
	next, err := s.Handle(t.Context(), object.Ref{Bucket: "b", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	is("new", next, want)
}

// free returns the free space of a file system in bytes.
func free(t *testing.T, dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}

// onDisk writes what the file system of dir has in memory.
func onDisk(t *testing.T, dir string) {
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		t.Fatal(err)
	}
}
