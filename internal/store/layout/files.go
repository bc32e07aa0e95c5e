// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"golang.org/x/sys/unix"
)

// OpenRegular opens a regular file for reading and refuses anything else. Opening a named pipe, for example, would wait
// until a writer opens it.
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

// MakePrivate creates a file with access for its owner only, and opens it for writing.
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

// Private sets the mode of a just opened file to 0600, because the umask may allow more. Private ignores errors of
// file systems without permissions.
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

// Exists reports whether a name exists, even as a dangling symbolic link.
func Exists(f vfs.FS, path string) bool {
	if f == vfs.Default {
		_, err := os.Lstat(path)
		return err == nil
	}
	_, err := f.Stat(path)
	return err == nil
}
