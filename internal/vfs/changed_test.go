// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// changing opens a file of 64 KiB whose times lie in the past.
func changing(t *testing.T) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(path, []byte(strings.Repeat("old ", 16<<10)), 0o600); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, path
}

// putBack changes a file and sets its times to what they were.
func putBack(t *testing.T, path string, change func(f *os.File) error) {
	t.Helper()
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := change(f); err != nil {
		t.Skipf("the file system cannot do that: %v", err)
	}
	if err := os.Chtimes(path, was.ModTime(), was.ModTime()); err != nil {
		t.Fatal(err)
	}
}

func overwrite(f *os.File) error {
	_, err := f.WriteAt([]byte("new "), 8192)
	return err
}

func TestAnOverwrittenFileIsFoundThoughItsMtimeWasPutBack(t *testing.T) {
	for name, change := range map[string]func(f *os.File) error{
		"overwritten": overwrite,
		"punched": func(f *os.File) error {
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8192, 4096)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, path := changing(t)
			if err := f.CheckUnchanged(false); err != nil {
				t.Fatal(err)
			}
			putBack(t, path, change)
			if err := f.CheckUnchanged(false); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "ctime") ||
				errs.FixOf(err) == "" {
				t.Errorf("%v", err)
			}
			if err := f.CheckUnchanged(true); err != nil {
				t.Errorf("where checksums vouch for the bytes: %v", err)
			}
		})
	}
}

func TestARenameIsNoChangeOfContent(t *testing.T) {
	for name, change := range map[string]func(path string) (string, error){
		"rename": func(path string) (string, error) { return path + ".new", os.Rename(path, path+".new") },
		"link":   func(path string) (string, error) { return path, os.Link(path, path+".link") },
		"remove": func(path string) (string, error) { return "", os.Remove(path) },
		"chmod":  func(path string) (string, error) { return path, os.Chmod(path, 0o640) },
	} {
		t.Run(name, func(t *testing.T) {
			f, path := changing(t)
			now, err := change(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.CheckUnchanged(false); err != nil {
				t.Errorf("%v", err)
			}
			if now == "" {
				return
			}
			// What is explained once does not hide a later writer.
			putBack(t, now, overwrite)
			if err := f.CheckUnchanged(false); !errs.Is(err, errs.IO) {
				t.Errorf("overwritten afterwards: %v", err)
			}
		})
	}
}
