// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

// soon fails the test where f waits for something that never comes.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

// oneFile makes a store with one object in a file, and returns that file's path.
func oneFile(t *testing.T) (dir, file string) {
	t.Helper()
	ctx := t.Context()
	dir = filepath.Join(t.TempDir(), "store")
	s, err := disk.Open(ctx, backupOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateBucket(ctx, object.Bucket{Name: "bucket"}); err != nil {
		t.Fatal(err)
	}
	b := storetest.Bytes(1, 40_000)
	if _, err := s.Put(ctx, object.Put{Bucket: "bucket", Key: "key", Size: int64(len(b)),
		Body: bytes.NewReader(b)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(dir, "data"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			file = path
		}
		return err
	})
	if err != nil || file == "" {
		t.Fatalf("no data file: %v", err)
	}
	return dir, file
}

// A pipe or a directory in the place of a data file is damage: nothing waits for it, and repair leaves it where it is.
func TestIrregularDataFile(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"pipe":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			dir, file := oneFile(t)
			if err := errors.Join(os.Remove(file), make(file)); err != nil {
				t.Fatal(err)
			}
			soon(t, "check", func() {
				r, err := disk.Check(ctx, backupOptions(dir), check.Options{Content: true})
				if err != nil || r.Found == 0 {
					t.Errorf("check: %v, %+v", err, r)
				}
			})
			soon(t, "repair", func() {
				r, err := disk.Check(ctx, backupOptions(dir), check.Options{Repair: true})
				if err != nil || r.Repaired != 0 {
					t.Errorf("repair: %v, %+v", err, r)
				}
				if _, err := os.Lstat(file); err != nil {
					t.Errorf("repair moved what is in the place of an object's file: %v", err)
				}
			})
			soon(t, "salvage", func() {
				r, err := saved(ctx, disk.Options{Dir: dir}, salvage.Options{To: filepath.Join(t.TempDir(), "new")})
				if err != nil || r.Lost != 1 {
					t.Errorf("salvage: %v, %+v", err, r)
				}
			})
			s, err := disk.Open(ctx, backupOptions(dir))
			if err != nil {
				t.Fatal(err)
			}
			soon(t, "use", func() {
				if _, _, err := storetest.Read(ctx, s, object.Ref{Bucket: "bucket", Key: "key"}); !errors.Is(err,
					object.ErrDamaged) {
					t.Errorf("read: %v", err)
				}
				r, err := s.Scrub(ctx, disk.ScrubOptions{})
				if err != nil || r.Damaged != 1 {
					t.Errorf("scrub: %v, %+v", err, r)
				}
				_, err = s.Backup(ctx, backup.Options{To: filepath.Join(t.TempDir(), "backup")})
				if !errs.Is(err, errs.Corrupt) || errs.FixOf(err) == "" || !strings.Contains(err.Error(), file) {
					t.Errorf("backup: kind %v: %v", errs.KindOf(err), err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A pipe in the place of a note, a witness or a log is refused, and nothing waits for it.
func TestIrregularNotes(t *testing.T) {
	for _, name := range []string{"EPOCH", "FORMAT", "meta/log"} {
		t.Run(name, func(t *testing.T) {
			dir, _ := oneFile(t)
			path := filepath.Join(dir, name)
			if name == "meta/log" {
				logs, err := filepath.Glob(filepath.Join(dir, "meta", "*.log"))
				if err != nil || len(logs) == 0 {
					t.Fatalf("%v, %v", logs, err)
				}
				path = logs[len(logs)-1]
			}
			if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
				t.Fatal(err)
			}
			soon(t, "open", func() {
				s, err := disk.Open(t.Context(), backupOptions(dir))
				if err == nil {
					_ = s.Close()
				}
				if !errs.Is(err, errs.Corrupt) || errs.FixOf(err) == "" {
					t.Errorf("open: kind %v: %v", errs.KindOf(err), err)
				}
			})
		})
	}
}
