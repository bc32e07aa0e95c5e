// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"golang.org/x/sys/unix"
)

// Reader is a buffered description of its own on a file: the kernel keeps the
// state of its readahead per description, so readers of different parts of one
// file do not disturb each other. It belongs to one goroutine.
type Reader struct {
	f    *File
	fd   int
	drop bool
}

// NewReader opens a reader; with drop it asks the kernel not to keep what it
// brings in. The caller closes it.
func (f *File) NewReader(drop bool) (*Reader, error) {
	fd, err := f.reopen()
	if err != nil {
		return nil, err
	}
	return &Reader{f: f, fd: fd, drop: drop}, nil
}

// Again opens the file once more, through the page cache and without any flag
// beside, for a library that takes descriptors. The caller closes it.
func (f *File) Again() (fd int, err error) {
	return f.reopen()
}

// File is what the reader reads.
func (r *Reader) File() *File { return r.f }

// ReadFull fills p from off; short reads are errors.
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

// Close closes the reader; a nil reader is closed already.
func (r *Reader) Close() {
	if r != nil {
		_ = unix.Close(r.fd)
	}
}
