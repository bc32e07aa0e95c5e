// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// A read lease tells whether anybody can still write to a file. The kernel refuses the lease while a description is
// open for writing anywhere: a duplicate, one in flight in a socket, one of another process, or one kept by a shared
// mapping. While the lease is held, an open for writing waits until the lease is released. (The kernel notifies the
// holder by SIGIO, which the Go runtime ignores.)

// lease takes a read lease on a file that is open for reading. The error unix.EAGAIN means that there are writers.
func lease(fd uintptr) error {
	return again(func() error {
		_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
		return err
	})
}

// unlease releases the lease.
func unlease(fd uintptr) error {
	return again(func() error {
		_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		return err
	})
}

// blindTo are file systems on which a lease proves nothing. On overlayfs the lease can be on another file than the
// written one, and this kernel does not know the clients of a network file system's server.
var blindTo = map[int64]string{
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse",
	unix.SMB_SUPER_MAGIC:  "smb",
	unix.CIFS_SUPER_MAGIC: "cifs", unix.SMB2_SUPER_MAGIC: "smb2", unix.CEPH_SUPER_MAGIC: "ceph", unix.V9FS_MAGIC: "9p",
	unix.AFS_SUPER_MAGIC: "afs",
	unix.AFS_FS_MAGIC:    "afs", unix.CODA_SUPER_MAGIC: "coda", 0x0bd00bd0: "lustre", 0x47504653: "gpfs",
	0x6a656a63: "virtiofs", 0x786f4256: "vboxsf",
}

// blind refuses a file system on which a lease proves nothing.
func blind(op, name string, fd uintptr) error {
	var st unix.Statfs_t
	if err := again(func() error { return unix.Fstatfs(int(fd), &st) }); err != nil {
		return fail(op, name, err)
	}
	return judge(op, name, int64(st.Type))
}

func judge(op, name string, magic int64) error {
	if fs, ok := blindTo[magic]; ok {
		return noLease(op, name,
			fmt.Sprintf("the store lies on %s, which cannot tell whether somebody still writes to a file", fs), nil)
	}
	return nil
}

func noLease(op, name, msg string, cause error) error {
	return &errs.Error{Kind: errs.Unsupported, Op: op, Name: name, Msg: msg, Err: cause,
		Fix: "put the store's directory on a local ext4, xfs or tmpfs, or write through S3"}
}

// prove shows on a file that a lease is refused while there is a writer, and granted when there is none. close closes
// the writer.
func prove(op, name string, fd uintptr, close func() error) error {
	err := lease(fd)
	switch {
	case err == nil:
		_ = unlease(fd)
		_ = close()
		return noLease(op, name, "the file system grants a read lease (F_SETLEASE) on a file that is open for writing, so "+
			"that it cannot be seen whether a writer is left", nil)
	case !errors.Is(err, unix.EAGAIN):
		_ = close()
		return noLease(op, name, "the file system or the kernel has no leases (F_SETLEASE), so that it cannot be seen "+
			"whether a writer is left", err)
	}
	if err := close(); err != nil {
		return fail(op, name, err)
	}
	if err := lease(fd); err != nil {
		return noLease(op, name, "the file system refuses a read lease (F_SETLEASE) on a file that nobody writes to", err)
	}
	return fail(op, name, unlease(fd))
}

// isErrno reports whether err is one of these errors.
func isErrno(err error, nos ...unix.Errno) bool {
	for _, no := range nos {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
