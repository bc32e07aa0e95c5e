// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const mountTable = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 7:1 / /mnt/old rw,relatime shared:5 - ext2 /dev/loop1 rw
41 22 0:41 / /mnt/with\040space rw - fuse.bindfs /src rw,user_id=0
42 22 0:45 / /merged rw - overlay overlay rw,lowerdir=/a\134:b:/c,upperdir=/up,workdir=/w
broken line
`

func TestMountsAreFoundByNumberThenByDevice(t *testing.T) {
	for _, c := range []struct {
		id           uint64
		major, minor uint32
		fs, point    string
	}{
		{40, 0, 0, "ext2", "/mnt/old"},
		{999, 254, 0, "ext4", "/"},
		{41, 254, 0, "fuse.bindfs", "/mnt/with space"},
		{999, 9, 9, "", ""},
	} {
		if m := chooseMount(mountTable, c.id, c.major, c.minor); m.fs != c.fs || m.point != c.point {
			t.Errorf("mount %d on %d:%d: %+v", c.id, c.major, c.minor, m)
		}
	}
}

func TestLayersOfAnOverlay(t *testing.T) {
	for options, want := range map[string][]string{
		"rw,lowerdir=/a:/b,upperdir=/up,workdir=/w": {"/up", "/a", "/b"},
		`ro,lowerdir=/a\:b:/c`:                      {"/a:b", "/c"},
		"ro,lowerdir+=/a,lowerdir+=/b":              {"/a", "/b"},
		"rw":                                        nil,
	} {
		if got := layersOf(options); !slices.Equal(got, want) {
			t.Errorf("%s: %q", options, got)
		}
	}
}

func FuzzMounts(f *testing.F) {
	f.Add(mountTable)
	f.Add(`1 1 0:0 / / - overlay o lowerdir=\\:\:,upperdir=\777`)
	f.Fuzz(func(t *testing.T, text string) {
		m := chooseMount(text, 1, 0, 1)
		for _, l := range layersOf(m.options) {
			if len(l) > len(text) {
				t.Errorf("%q of %q", l, text)
			}
		}
	})
}

func TestFileSystemsHaveNames(t *testing.T) {
	for magic, want := range map[uint64]FSType{
		unix.TMPFS_MAGIC: {"tmpfs", true}, unix.XFS_SUPER_MAGIC: {Name: "xfs"}, unix.EROFS_SUPER_MAGIC_V1: {Name: "erofs"},
		0xca451a4e: {Name: "bcachefs"}, unix.V9FS_MAGIC: {Name: "9p"}, 0x1234567: {Name: "0x1234567"},
	} {
		if got := typeOfMagic(magic); got != want {
			t.Errorf("0x%x: %+v", magic, got)
		}
	}
}

func TestWhatHidesItsStorage(t *testing.T) {
	for _, fs := range []string{"fuse", "fuse.bindfs", "fuseblk", "virtiofs", "9p", "nfs", "nfs4", "cifs", "ceph",
		"lustre", "zfs"} {
		if hides(fs) == "" {
			t.Errorf("%s shows nothing of its storage", fs)
		}
	}
	for _, fs := range []string{"ext4", "xfs", "btrfs", "squashfs", "erofs", "f2fs", "bcachefs"} {
		if why := hides(fs); why != "" {
			t.Errorf("%s: %s", fs, why)
		}
	}
	if !keepsDirect("xfs", false) || !keepsDirect("ext4", true) || keepsDirect("ext4", false) ||
		keepsDirect("btrfs", true) {
		t.Error("which file systems keep to O_DIRECT")
	}
}

func TestStoragesRememberAndAgree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s Storages
	first := s.Of(f.BufferedFD())
	for range 3 {
		if got := s.Of(f.BufferedFD()); got != first || got != f.Storage() {
			t.Errorf("%+v, then %+v", first, got)
		}
	}
}

func TestPagesThatCameSinceAreDroppedAlone(t *testing.T) {
	data := bytes.Repeat([]byte("page"), 1<<20)
	f := coldFile(t, data)
	buf := make([]byte, len(data))
	if _, err := f.ReadAt(buf[:1<<20], 1<<20); err != nil {
		t.Fatal(err)
	}
	before, err := f.CachedPages()
	if err != nil {
		t.Fatal(err)
	}
	if n := before.In(0, f.Size()); n != 1<<20 {
		t.Errorf("%d bytes were there", n)
	}
	if n := before.In(1<<20+100, 5000); n != 5000 {
		t.Errorf("%d bytes of 5000 in the middle", n)
	}
	if _, err := f.ReadAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Since(before, 0, f.Size()); err != nil || n != 3<<20 {
		t.Errorf("%d bytes came since: %v", n, err)
	}
	if n, err := f.Since(before, 1<<20, 1<<20); err != nil || n != 0 {
		t.Errorf("%d bytes came since, of those that were there: %v", n, err)
	}
	if left, err := f.DropSince(before); err != nil || left != 0 {
		t.Errorf("%d bytes are left: %v", left, err)
	}
	r, err := f.Residency(0, f.Size())
	if err != nil || r.Cached != 1<<20 {
		t.Errorf("%d bytes are cached, expected those that were there before: %v", r.Cached, err)
	}
}

// TestStorageFoundLater: the function that Later returns needs no open file, and fills the cache for other calls. Calls
// at the same time have one result.
func TestStorageFoundLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var s Storages
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	want := StorageOf(f.BufferedFD())
	ask := s.Later(f)
	if ask == nil {
		t.Fatal("nothing is asked, although nothing is known")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(ask)
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for range 8 {
		wg.Go(func() {
			if got := s.OfFile(again); got != want {
				t.Errorf("below the file lies %+v, expected %+v", got, want)
			}
		})
	}
	wg.Wait()
	if got := s.OfFile(again); got != want {
		t.Errorf("later, below the file lies %+v, expected %+v", got, want)
	}
	if ask := s.Later(again); ask != nil {
		ask() // on a file system whose storage may change, nothing is cached
	}
}
