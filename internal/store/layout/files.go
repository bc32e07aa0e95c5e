// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"golang.org/x/sys/unix"
)

// OpenRegular opens a file to be read. It refuses what is none: opening a pipe waits until somebody writes to it.
func OpenRegular(f vfs.FS, path string, opts ...vfs.OpenOption) (vfs.File, error) {
	info, err := f.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errs.New(errs.Corrupt, "open", path, fmt.Sprintf("it is no file (mode %v)", info.Mode())).
			WithFix("restore the file from a backup")
	}
	return f.Open(path, opts...)
}

// MakePrivate makes a file for its owner alone, and opens it to be written.
func MakePrivate(f vfs.FS, path string) (vfs.File, error) {
	file, err := f.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if fd := file.Fd(); fd != vfs.InvalidFd {
		if err := unix.Fchmod(int(fd), 0o600); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
	return file, nil
}

// Private gives a file that was just opened for writing to its owner alone: a umask may have left more. A file system
// without permissions refuses, and loses nothing by it.
func Private(file vfs.File, err error) (vfs.File, error) {
	if err == nil && file.Fd() != vfs.InvalidFd {
		_ = unix.Fchmod(int(file.Fd()), 0o600) // the directory is closed to others too
	}
	return file, err
}

// SyncDir makes the names in a directory durable.
func SyncDir(f vfs.FS, dir string) error {
	d, err := f.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// Exists says whether a name is taken, also by a link that leads nowhere.
func Exists(f vfs.FS, path string) bool {
	if f == vfs.Default {
		_, err := os.Lstat(path)
		return err == nil
	}
	_, err := f.Stat(path)
	return err == nil
}
