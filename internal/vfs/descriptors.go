// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Descriptors are file descriptors of one regular file that another process, such as a server, opened and passed to
// this process.
type Descriptors struct {
	Name     string // name of the file in messages, such as "s3://bucket/key"
	Buffered int    // file descriptor without O_DIRECT, which uses the page cache
	Direct   int    // file descriptor with O_DIRECT; -1 if there is none
	Refused  string // why there is no file descriptor with O_DIRECT; may be empty
	Size     int64  // size in bytes that the file must have
	Served   Served // how the owner of the file got its bytes; zero if no other server keeps them
	// Beside, if not nil, is another open file. If both files are on one file system, its type is not asked again: a
	// file system stays mounted while a file of it is open. Beside must stay open during FromDescriptors.
	Beside *File
	// Closed, if not nil, is called once after the file was closed, so that the owner can release the file.
	Closed func()
}

// close closes both descriptors.
func (d Descriptors) close() error {
	var err error
	for _, fd := range []int{d.Buffered, d.Direct} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// FromDescriptors returns a File for descriptors that are open for reading. The File owns the descriptors: File.Close
// closes them. If FromDescriptors fails, it closes the descriptors. FromDescriptors works even if this process has no
// permission to open the file itself.
func FromDescriptors(d Descriptors) (*File, error) {
	f := &File{path: d.Name, buffered: d.Buffered, direct: -1, passed: true, served: d.Served}
	fail := func(err error) (*File, error) { return nil, errors.Join(err, d.close()) }
	if err := f.stat(); err != nil {
		return fail(err)
	}
	if f.size != d.Size {
		return fail(errs.New(errs.IO, "open", d.Name, fmt.Sprintf("the file that was passed has %d bytes, expected %d",
			f.size, d.Size)))
	}
	if b := d.Beside; b != nil && b.remote == nil && b.dev == f.dev {
		f.fs = b.fs
	} else {
		f.fs = fsType(d.Buffered)
	}
	f.probe = newProber(d.Buffered, f.fs, spanAtOpen(f.size))
	switch why := ""; {
	case d.Direct < 0:
		if d.Refused == "" {
			d.Refused = "no description past the page cache was passed"
		}
		f.refuse(d.Refused, "keep the store on a file system with direct I/O, such as ext4 or XFS")
	default:
		var same bool
		if f.align, same, why = alignOf(f, d.Direct); !same {
			return fail(errs.New(errs.IO, "open", d.Name, "the two descriptions that were passed are not of one file"))
		}
		if why != "" {
			f.refuse(fmt.Sprintf("%s reports that this file cannot be read with O_DIRECT (%s)", f.fs.Name, why),
				"keep the store on ext4 or XFS without encryption, verity or data journalling")
			f.align = Alignment{}
			if err := unix.Close(d.Direct); err != nil {
				d.Direct = -1
				return fail(errs.Wrap("close", d.Name, err))
			}
			break
		}
		f.direct, f.pastCache = d.Direct, true
	}
	f.closed = d.Closed
	return f, nil
}

// Locate returns a path that leads to the open file: the file's own path, or /proc/self/fd/N if the file was passed as
// descriptors. The path that Locate returns is valid while the file f is open.
func (f *File) Locate() string {
	if f.passed {
		return fmt.Sprintf("/proc/self/fd/%d", f.buffered)
	}
	return f.path
}

// LocateApart returns the path of f as Locate does, but the path stays valid when f is closed, until release is called.
// The caller must call release. LocateApart fails if there is no descriptor left.
func LocateApart(f *File) (path string, release func(), err error) {
	if !f.passed {
		return f.path, func() {}, nil
	}
	if err := f.Pin(); err != nil {
		return "", nil, err
	}
	defer f.Unpin()
	fd, err := unix.FcntlInt(uintptr(f.buffered), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return "", nil, errs.Wrap("hold open", f.path, err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), func() { _ = unix.Close(fd) }, nil
}

// Passed reports whether another process, such as a server, opened the file and passed its descriptors.
func (f *File) Passed() bool { return f.passed }

// reopen returns another descriptor that uses the page cache. If the process may not open a passed file again, reopen
// returns a duplicate. A duplicate shares the kernel's readahead state with the original; the bytes read are the
// same.
func (f *File) reopen() (int, error) {
	if f.remote != nil {
		return -1, f.errRemote("open again")
	}
	if err := f.Pin(); err != nil {
		return -1, err
	}
	defer f.Unpin()
	// The path of the open descriptor leads to the same file even if the file's name was removed.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.buffered), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil && f.passed {
		fd, err = unix.FcntlInt(uintptr(f.buffered), unix.F_DUPFD_CLOEXEC, 0)
	}
	return fd, errs.Wrap("open again", f.path, err)
}
