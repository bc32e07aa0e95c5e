// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Access chooses how OpenEditable opens a file; the zero value opens it for reading.
type Access struct {
	Write    bool
	Create   bool // true to create the file if it does not exist; requires Write
	Truncate bool // true to truncate the file to 0 bytes; requires Write
}

// Editable is an open regular file for reads and writes at any offset. Several threads may read and write at once;
// Close must be the last call. An Editable has a second descriptor, opened with O_DIRECT, if the file system allows
// O_DIRECT.
type Editable struct {
	path    string
	fd      int
	direct  int // -1 if O_DIRECT was refused
	why     *Refusal
	fs      FSType
	storage lookedUp
	write   bool
}

// OpenEditable opens the regular file at path. OpenEditable refuses a directory, a device or a socket.
func OpenEditable(path string, a Access) (*Editable, error) {
	flags := unix.O_RDONLY
	if a.Write {
		flags = unix.O_RDWR
		if a.Create {
			flags |= unix.O_CREAT
		}
	} else if a.Create || a.Truncate {
		return nil, errs.New(errs.Invalid, "open", path,
			"is to be created or emptied, but not opened for writing").WithFix("open it for writing")
	}
	// Without O_NONBLOCK, opening a pipe would wait for its other end. settle removes the flag, because libcufile
	// refuses descriptors with O_NONBLOCK.
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o666)
	if err != nil {
		return nil, errs.Wrap("open", path, err)
	}
	e := &Editable{path: path, fd: fd, direct: -1, write: a.Write}
	if err := e.settle(a.Truncate); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.openDirect(flags &^ unix.O_CREAT)
	return e, nil
}

func (e *Editable) settle(truncate bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(e.fd, &st); err != nil {
		return errs.Wrap("stat", e.path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errs.New(errs.Invalid, "open", e.path, "is "+kindOfMode(st.Mode)+", expected a regular file")
	}
	flags, err := unix.FcntlInt(uintptr(e.fd), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(e.fd), unix.F_SETFL, flags&^unix.O_NONBLOCK)
	}
	if err == nil && truncate {
		err = unix.Ftruncate(e.fd, 0)
	}
	e.fs = fsType(e.fd)
	return errs.Wrap("open", e.path, err)
}

func (e *Editable) openDirect(flags int) {
	if e.fs.Memory {
		e.why = &Refusal{Reason: e.fs.Name + " keeps files in memory: there is no disk past the page cache",
			Fix: "none needed: the bytes are in memory"}
		return
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", e.fd), flags|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	if err != nil {
		e.why = &Refusal{Reason: fmt.Sprintf("opening with O_DIRECT on %s failed: %v", e.fs.Name, err),
			Fix: "keep the file on a file system with direct I/O, such as ext4 or XFS"}
		return
	}
	e.direct = fd
}

// Path returns the path that was given to OpenEditable.
func (e *Editable) Path() string { return e.path }

// FS returns the name of the file system and whether it keeps files in memory.
func (e *Editable) FS() FSType { return e.fs }

// Writable reports whether the file was opened for writing.
func (e *Editable) Writable() bool { return e.write }

// FD returns the file descriptor without O_DIRECT, which uses the page cache.
func (e *Editable) FD() int { return e.fd }

// DirectFD returns the file descriptor with O_DIRECT, or -1 if there is none; Refused then gives the reason.
func (e *Editable) DirectFD() int { return e.direct }

// Refused returns the reason why the file was not opened with O_DIRECT, or nil if it was.
func (e *Editable) Refused() *Refusal { return e.why }

// Size returns the current length of the file in bytes.
func (e *Editable) Size() (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(e.fd, &st)
	return st.Size, errs.Wrap("stat", e.path, err)
}

// Source opens the file a second time and returns it as a File, from which the engine can read. The caller closes the
// returned File.
func (e *Editable) Source() (*File, error) {
	f, err := Open(fmt.Sprintf("/proc/self/fd/%d", e.fd))
	if err != nil {
		return nil, errs.Wrap("open again", e.path, err)
	}
	f.path = e.path
	return f, nil
}

// WriteAt writes all of p at offset off of the file. If the parameter `direct` is set, WriteAt uses O_DIRECT; the
// address of p, its length and off must then be multiples of 4096.
func (e *Editable) WriteAt(p []byte, off int64, direct bool) error {
	fd := e.fd
	if direct {
		fd = e.direct
	}
	for n := 0; n < len(p); {
		m, err := unix.Pwrite(fd, p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return errs.Wrap("write", fmt.Sprintf("%s at offset %d", e.path, off+int64(n)), err)
		case m == 0:
			return errs.New(errs.IO, "write", e.path, fmt.Sprintf("nothing was written at offset %d", off+int64(n)))
		default:
			n += m
		}
	}
	return nil
}

// Sync flushes the file to storage, so that earlier writes survive a crash.
func (e *Editable) Sync() error { return errs.Wrap("sync", e.path, unix.Fsync(e.fd)) }

// Close closes both descriptors of the file. No read or write of the file may be in flight during Close.
func (e *Editable) Close() error {
	var err error
	for _, fd := range []*int{&e.direct, &e.fd} {
		if *fd >= 0 {
			err = errors.Join(err, unix.Close(*fd))
		}
		*fd = -1
	}
	return errs.Wrap("close", e.path, err)
}
