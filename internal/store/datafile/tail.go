// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// page is the unit in which files of directory buckets are reserved, so that reads past the page cache can read
	// whole pages up to the end.
	page = 4 << 10
	// tailLeast and tailMost are the bounds of the space that is reserved behind a growing file.
	tailLeast = 64 << 10
	tailMost  = 16 << 20
)

// Reader returns a reader of the first n bytes of a file that is not synced yet. The reader must not be used after Sync
// or Abort.
func (w *Writer) Reader(n int64) io.Reader { return io.NewSectionReader(w.file, 0, n) }

// Reserve allocates whole pages for `size` bytes, without changing the size of the file. A file system without this
// feature is no error.
func (w *Writer) Reserve(size int64) error {
	if size < 1 {
		return nil
	}
	if err := reserveKept(w.file.Preallocate, 0, (size+page-1)/page*page); err != nil {
		return w.fail("reserve", err)
	}
	return nil
}

// ReserveTail allocates disk space for n bytes behind the first end bytes of a file, without changing its size. A file
// that grows often gets an eighth of its size in advance, so that its extents stay long.
func (s *Shared) ReserveTail(end, n int64) error {
	step := min(max((end+n)/8, tailLeast), tailMost) / tailLeast * tailLeast
	from, to := (end+step-1)/step*step, (end+n+step-1)/step*step
	if end+n <= from && end > 0 {
		return nil // lies in what was reserved before
	}
	if err := reserveKept(s.file.Preallocate, end, to-end); err != nil {
		return fail("reserve", s.name, err)
	}
	return nil
}

// reserveKept reserves space by a call of fallocate that keeps the size of the file.
func reserveKept(reserve func(off, n int64) error, off, n int64) error {
	err := again(func() error { return reserve(off, n) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// Grown tells that a file is about to be longer. Readers that are open keep the length that they have. The next reader
// opens the file anew and compares its blocks anew, because the last block has another checksum.
func (f *Files) Grown(id ID) { f.cache.forget(id) }
