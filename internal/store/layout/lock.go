// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"golang.org/x/sys/unix"
)

// Lock makes this process the only owner of a store, until the returned lock is closed.
func Lock(f vfs.FS, dir string) (io.Closer, error) {
	const op = "open store"
	lock, err := f.Lock(f.PathJoin(dir, LockName))
	if err != nil {
		if !lockTaken(err) {
			return nil, WrapIO(op, dir, err)
		}
		return nil, TakenBy(f, dir, err)
	}
	if f == vfs.Default {
		_ = os.Chmod(f.PathJoin(dir, LockName), 0o600) // it is empty; where it is another user's, so is the store
	}
	noteOwner(f, dir)
	return lock, nil
}

// noteOwner writes the number of this process to OWNER, in place and with a fixed length, so that it needs no space
// if the file exists. OWNER only helps a person to find the process. If OWNER cannot be written, it is removed: no
// number is better than a wrong one.
func noteOwner(f vfs.FS, dir string) {
	path := f.PathJoin(dir, OwnerName)
	file, err := Private(f.OpenReadWrite(path, vfs.WriteCategoryUnspecified))
	if err == nil {
		_, err = file.WriteAt(fmt.Appendf(nil, "pid %010d\n", os.Getpid()), 0)
		if e := file.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		_ = f.Remove(path) // the lock is what counts
	}
}

// TakenBy returns the error for a store that another process has locked. The error of TakenBy names the number of the
// locking process if it is known.
func TakenBy(f vfs.FS, dir string, err error) error {
	holder := "another process"
	n, _ := ReadNote(f, f.PathJoin(dir, OwnerName))
	if pid, ok := n.Number("pid"); ok {
		holder = fmt.Sprintf("process %d", pid)
	}
	return &errs.Error{Kind: errs.Invalid, Op: "open store", Name: dir, Msg: holder + " has this store open", Err: err,
		Fix: "stop it first, or use its admin interface"}
}

// lockTaken distinguishes a lock that somebody holds from a file that cannot be opened.
func lockTaken(err error) bool {
	var path *fs.PathError
	return !errors.As(err, &path) && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) ||
		strings.Contains(err.Error(), "lock held"))
}

// LockQuietly prevents others from changing a store, and writes nothing itself, so it works on a read-only file
// system too. If the file LOCK cannot be opened, LockQuietly locks nothing and returns no error.
func LockQuietly(f vfs.FS, dir string) (func(), error) {
	file, err := OpenRegular(f, f.PathJoin(dir, LockName))
	if err != nil {
		return func() {}, nil
	}
	if fd := file.Fd(); fd != vfs.InvalidFd {
		// A lock of this open file, and not of the process: it also meets a store that this process has open.
		err = unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart})
	}
	if err != nil && lockTaken(err) {
		_ = file.Close()
		return nil, &errs.Error{Kind: errs.Invalid, Op: "open store", Name: dir, Msg: "another process has this store open",
			Err: err, Fix: "stop it first"}
	}
	return func() { _ = file.Close() }, nil
}

// Share locks a store for reading, so that no other process can change it. If the file LOCK does not exist, Share
// locks nothing.
func Share(f vfs.FS, dir string) (io.Closer, error) {
	file, err := f.Open(f.PathJoin(dir, LockName))
	if errors.Is(err, fs.ErrNotExist) {
		return NoLock{}, nil // whoever could lock it would have made the file
	}
	if err != nil {
		return nil, WrapIO("open store", dir, err)
	}
	if err := LockForReading(file); err != nil {
		_ = file.Close()
		return nil, TakenBy(f, dir, err)
	}
	return file, nil
}

// LockForReading takes a shared lock on the open file LOCK.
func LockForReading(file vfs.File) error {
	fd := file.Fd()
	if fd == vfs.InvalidFd {
		return nil // a file system in memory has no other processes
	}
	return unix.FcntlFlock(fd, unix.F_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart})
}

// NoLock is a lock without effect.
type NoLock struct{}

// Close does nothing.
func (NoLock) Close() error { return nil }
