// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"golang.org/x/sys/unix"
)

// Reader reads a file through the page cache with a file descriptor of its own. The kernel keeps readahead state for
// each open file, so several Readers of one file do not disturb each other. Only one goroutine may use a Reader.
type Reader struct {
	f    *File
	fd   int
	drop bool
}

// NewReader opens a Reader of the file. If the parameter `drop` is set, the Reader asks the kernel to drop pages after
// they are read. The caller closes the Reader.
func (f *File) NewReader(drop bool) (*Reader, error) {
	fd, err := f.reopen()
	if err != nil {
		return nil, err
	}
	return &Reader{f: f, fd: fd, drop: drop}, nil
}

// Again opens the file once more, read-only and without O_DIRECT, for a library that needs a file descriptor. The
// caller closes the descriptor.
func (f *File) Again() (fd int, err error) {
	return f.reopen()
}

// File returns the file that the Reader reads.
func (r *Reader) File() *File { return r.f }

// ReadFull reads len(p) bytes at offset off. A short read is an error.
func (r *Reader) ReadFull(p []byte, off int64) error {
	if r.drop {
		if n, err := unix.Preadv2(r.fd, [][]byte{p}, off, rwfDontCache); err == nil && n == len(p) {
			return nil
		}
	}
	_, err := r.f.preadFull(r.fd, p, off, len(p))
	if r.drop && err == nil {
		_ = unix.Fadvise(r.fd, off, int64(len(p)), unix.FADV_DONTNEED)
	}
	return err
}

// Close closes the Reader. Close of a nil Reader does nothing.
func (r *Reader) Close() {
	if r != nil {
		_ = unix.Close(r.fd)
	}
}
