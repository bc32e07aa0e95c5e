// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

// storeWithAFile makes a store with one object in a file, and returns the path of that file.
func storeWithAFile(t *testing.T, dir string) (s *disk.Store, file string, content []byte) {
	t.Helper()
	s, err := disk.Open(t.Context(), backupOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateBucket(t.Context(), object.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	content = storetest.Bytes(1, 300_000)
	if _, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: "victim", Size: int64(len(content)),
		Body: bytes.NewReader(content)}); err != nil {
		t.Fatal(err)
	}
	// At a stop the file comes to its place.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = disk.Open(t.Context(), backupOptions(dir)); err != nil {
		t.Fatal(err)
	}
	return s, dataFile(t, dir), content
}

// dataFile is the one file of content below a directory.
func dataFile(t *testing.T, dir string) (file string) {
	t.Helper()
	for _, sub := range []string{"data", "tmp"} {
		err := filepath.WalkDir(filepath.Join(dir, sub), func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				file = path
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if file == "" {
		t.Fatal("there is no file of content")
	}
	return file
}

// A file that is shorter than its record says is named by backup and restore, also without a look at its content.
func TestBackupNamesAShortFile(t *testing.T) {
	root := t.TempDir()
	dir, out := filepath.Join(root, "store"), filepath.Join(root, "backup")
	s, file, _ := storeWithAFile(t, dir)
	if _, err := s.Backup(t.Context(), backup.Options{To: out}); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(dataFile(t, out), 1000); err != nil {
		t.Fatal(err)
	}
	_, err := restored(t.Context(), out, backupOptions(filepath.Join(root, "back")), backup.RestoreOptions{})
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "victim") ||
		!strings.Contains(err.Error(), "1000 bytes") {
		t.Errorf("restore: %v", err)
	}
	if err := os.Truncate(file, 200_000); err != nil {
		t.Fatal(err)
	}
	_, err = s.Backup(t.Context(), backup.Options{To: filepath.Join(root, "second")})
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "victim") ||
		!strings.Contains(err.Error(), "200000 bytes") || errs.FixOf(err) == "" {
		t.Errorf("backup: %v (fix: %s)", err, errs.FixOf(err))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Of a file that is longer than its record says, a backup has what the record says.
func TestBackupOfALongFile(t *testing.T) {
	root := t.TempDir()
	dir, out, back := filepath.Join(root, "store"), filepath.Join(root, "backup"), filepath.Join(root, "back")
	s, file, content := storeWithAFile(t, dir)
	if err := os.Truncate(file, 8<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(t.Context(), backup.Options{To: out, Verify: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dataFile(t, out)); err != nil || info.Size() != int64(len(content)) {
		t.Fatalf("the copy: %v, %v", info.Size(), err)
	}
	if _, err := restored(t.Context(), out, backupOptions(back), backup.RestoreOptions{Verify: true}); err != nil {
		t.Fatal(err)
	}
	wantClean(t, backupOptions(back))
}

// fingerprint is everything about the files below a directory that a read must not change.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&out, "%s %v %d %d.%09d %d.%09d", path, info.Mode(), info.Size(), st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec,
			st.Ctim.Nsec)
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %x", hashOf(string(b)))
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Salvage leaves the old store as it was: not a byte, not a time of a file changes, and no file is made.
func TestSalvageTouchesNothing(t *testing.T) {
	for _, withLock := range []bool{true, false} {
		root := t.TempDir()
		dir := filepath.Join(root, "store")
		s, _, _ := storeWithAFile(t, dir)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if !withLock {
			if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
				t.Fatal(err)
			}
		}
		before := fingerprint(t, dir)
		r, err := saved(t.Context(), disk.Options{Dir: dir}, salvage.Options{To: filepath.Join(root, "new")})
		if err != nil || r.Objects != 1 || r.Lost != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		if after := fingerprint(t, dir); after != before {
			t.Errorf("the old store was\n%s\nand is\n%s", before, after)
		}
	}
}

// A store that somebody has open is not salvaged.
func TestSalvageOfAnOpenStore(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "store")
	s, _, _ := storeWithAFile(t, dir)
	defer func() { _ = s.Close() }()
	_, err := saved(t.Context(), disk.Options{Dir: dir}, salvage.Options{To: filepath.Join(root, "new")})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "open") {
		t.Errorf("salvage of an open store: %v", err)
	}
}

// readOnlyFS refuses all changes below a directory, as a read-only mount does.
type readOnlyFS struct {
	vfs.FS
	dir string
}

func (f readOnlyFS) refuse(name string) error {
	if name == f.dir || strings.HasPrefix(name, f.dir+"/") {
		return &fs.PathError{Op: "change", Path: name, Err: syscall.EROFS}
	}
	return nil
}

func (f readOnlyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.refuse(name); err != nil {
		return nil, err
	}
	return f.FS.Create(name, c)
}

func (f readOnlyFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if err := f.refuse(name); err != nil {
		return nil, err
	}
	return f.FS.OpenReadWrite(name, c, o...)
}

func (f readOnlyFS) MkdirAll(name string, mode os.FileMode) error {
	if err := f.refuse(name); err != nil {
		return err
	}
	return f.FS.MkdirAll(name, mode)
}

func (f readOnlyFS) Remove(name string) error {
	if err := f.refuse(name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f readOnlyFS) Rename(from, to string) error {
	if err := f.refuse(from); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// A damaged store on a read-only file system is salvaged.
func TestSalvageOfAReadOnlyStore(t *testing.T) {
	d := makeDamaged(t, false)
	o := damageOptions(readOnlyFS{d.fs, "store"})
	r, err := saved(t.Context(), o, salvage.Options{To: "new"})
	if err != nil || r.Lost != 0 || int(r.Objects) != len(d.want) {
		t.Fatalf("%d of %d, %+v, %v", r.Objects, len(d.want), r.Warnings, err)
	}
}
