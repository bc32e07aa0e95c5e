// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/lend"
)

// A process of the server's own user, or root, can take a lease on a file of which it has a descriptor. An open of
// that file then waits in the kernel for up to 45 s (fs.lease-break-time). For this reason opens here use O_NONBLOCK,
// wait a moment, and fail with ErrBusy. Nobody can take such a lease while the server has the file open.

// leasePatience is how long an open waits for a lease of somebody else. The first try notifies the holder.
const leasePatience = lend.Patience

// unleased opens a name relative to a directory; the descriptor does not have O_NONBLOCK. The error is object.ErrBusy
// if somebody keeps a lease on the file.
func unleased(dir int, name string, flags int) (int, error) {
	fd, err := lend.Unleased(dir, name, flags)
	return fd, taken(name, err)
}

// taken turns the error for a lease of somebody else into that of package object.
func taken(name string, err error) error {
	if errors.Is(err, lend.ErrBusy) {
		return busy("open", name)
	}
	return err
}

func busy(op, name string) error {
	return &errs.Error{Kind: errs.IO, Op: op, Name: name, Err: object.ErrBusy,
		Msg: "another process has a lease on the file (F_SETLEASE)",
		Fix: "try again; end the process that has the lease (/proc/locks), which the kernel does after fs.lease-break-time"}
}

// guarded calls open while a descriptor of ours prevents leases on name, so that open does not wait for one.
func (f *Files) guarded(name string, flags int, open func() error) error {
	if !f.native {
		return open()
	}
	fd, err := unleased(unix.AT_FDCWD, name, flags)
	if errors.Is(err, object.ErrBusy) {
		return err
	}
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			return irregular(name)
		}
	}
	return open() // which says what else is wrong
}

// truncate cuts a file by its name. The error is object.ErrBusy if somebody keeps a lease on it: truncate(2) would
// wait.
func truncate(name string, size int64) error {
	fd, err := unleased(unix.AT_FDCWD, name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	err = again(func() error { return unix.Ftruncate(fd, size) })
	if e := unix.Close(fd); err == nil {
		err = e
	}
	return err
}

// scrubPatience is how long a scrub waits for a lease of somebody else: the kernel ends leases sooner.
const scrubPatience = time.Minute

// openPatiently opens an entry for a scrub, which can wait.
func (e *entry) openPatiently(ctx context.Context, f *Files) error {
	for end := time.Now().Add(scrubPatience); ; {
		err := e.open(f)
		if !errors.Is(err, object.ErrBusy) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(leasePatience):
		}
	}
}

// writable reports whether anybody can write to a file that is open for reading.
func writable(fd uintptr) bool {
	err := lease(fd)
	if err == nil {
		_ = unlease(fd)
	}
	return errors.Is(err, unix.EAGAIN)
}

// empty frees the space of a file by a descriptor of it: the file may have no name.
func empty(fd uintptr) {
	var st unix.Stat_t
	if err := unix.Fstat(int(fd), &st); err != nil || st.Blocks == 0 {
		return
	}
	_ = truncate(fmt.Sprintf("/proc/self/fd/%d", fd), 0) // what is left is freed with the last descriptor
}
