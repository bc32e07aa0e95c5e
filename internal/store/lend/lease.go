// SPDX-License-Identifier: Apache-2.0

package lend

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// A process of the server's own user, or root, can take a lease on a file of which it has a descriptor. An open of
// that file then waits in the kernel for up to 45 s (fs.lease-break-time). For this reason opens here use O_NONBLOCK,
// wait a moment, and fail with ErrBusy. Nobody can take such a lease while the server has the file open for writing.

// ErrBusy means that somebody keeps a lease on a file.
var ErrBusy = errors.New("another process has a lease on the file")

// Patience is how long an open waits for a lease of somebody else. The first try notifies the holder.
const Patience = 200 * time.Millisecond

// Unleased opens a name relative to a directory; the descriptor does not have O_NONBLOCK. The error is ErrBusy
// if somebody keeps a lease on the file.
func Unleased(dir int, name string, flags int) (fd int, err error) {
	end := time.Time{}
	for wait := time.Millisecond; ; wait *= 2 {
		err = again(func() (err error) {
			fd, err = unix.Openat(dir, name, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			return err
		})
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return -1, &os.PathError{Op: "open", Path: name, Err: err}
		}
		if now := time.Now(); end.IsZero() {
			end = now.Add(Patience)
		} else if now.After(end) {
			return -1, busy(name)
		}
		time.Sleep(wait)
	}
	// cuFile refuses descriptors with O_NONBLOCK. Of the flags that can be changed here, only O_DIRECT was requested.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&unix.O_DIRECT); err != nil {
		_ = unix.Close(fd)
		return -1, &os.PathError{Op: "fcntl", Path: name, Err: err}
	}
	return fd, nil
}

func busy(name string) error {
	return &errs.Error{Kind: errs.IO, Op: "open", Name: name, Err: ErrBusy,
		Fix: "try again; end the process that has the lease (/proc/locks), which the kernel does after fs.lease-break-time"}
}

// again repeats a call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// OpenFile opens a file without a Directory, as Directory.Open does. The flags say whether to read or to write.
func OpenFile(name string, flags int) (*os.File, error) {
	return open(unix.AT_FDCWD, name, name, flags)
}

// open opens a name relative to a directory, and removes the write permission of group and others from the file.
// path is the file's name outside that directory, which may be read-only.
func open(dir int, name, path string, flags int) (*os.File, error) {
	fd, err := Unleased(dir, name, flags)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&0o022 != 0 {
		err = unix.Chmod(path, st.Mode&0o7777&^0o022)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
