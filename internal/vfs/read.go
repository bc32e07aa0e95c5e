// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// ReadAt fills p from off through the page cache; io.ReaderAt with whole reads:
// n == len(p) or an error.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if err := f.Pin(); err != nil {
		return 0, err
	}
	defer f.Unpin()
	n, err := f.preadFull(f.buffered, p, off, len(p))
	return n, err
}

// Buffered says where the bytes of a buffered read came from.
type Buffered struct {
	Cached int64 // were in the page cache when they were read
	Missed int64 // had to be fetched from storage into the page cache first
}

// ReadBuffered fills p from off through the page cache and tells the bytes that
// were there from those that had to be fetched. The kernel is asked right before
// the read; where it does not tell, what it gives without I/O was there. Short
// reads are errors.
func (f *File) ReadBuffered(p []byte, off int64) (Buffered, error) {
	if err := f.Pin(); err != nil {
		return Buffered{}, err
	}
	defer f.Unpin()
	hit, known := f.CachedBytes(off, int64(len(p)))
	if !known {
		hit = f.ReadCached(p, off)
		_, err := f.preadFull(f.buffered, p[hit:], off+hit, len(p)-int(hit))
		return Buffered{Cached: hit, Missed: int64(len(p)) - hit}, err
	}
	_, err := f.preadFull(f.buffered, p, off, len(p))
	return Buffered{Cached: hit, Missed: int64(len(p)) - hit}, err
}

// ReadCached copies bytes from the page cache into p, without I/O, up to the first
// missing page. It returns their number.
func (f *File) ReadCached(p []byte, off int64) int64 {
	if f.Pin() != nil {
		return 0 // whoever reads the rest is told
	}
	defer f.Unpin()
	n := 0
	for n < len(p) {
		m := f.readNowait(p[n:], off+int64(n))
		if m == 0 {
			break
		}
		n += m
	}
	return int64(n)
}

// rwfNowait is RWF_NOWAIT, rwfDontCache RWF_DONTCACHE (kernel 6.14).
const (
	rwfNowait    = 0x8
	rwfDontCache = 0x80
)

// readNowait returns what is in the page cache from off on, 0 when nothing is
// or when the file system cannot tell.
func (f *File) readNowait(p []byte, off int64) int {
	if f.noNowait.Load() || f.remote != nil {
		return 0
	}
	n, err := unix.Preadv2(f.buffered, [][]byte{p}, off, rwfNowait)
	if err == unix.EOPNOTSUPP || err == unix.EINVAL || err == unix.ENOSYS {
		f.noNowait.Store(true)
	}
	return max(n, 0)
}

// CachedBytes is how much of the range is resident, and whether the kernel
// tells. On a file system in memory everything is.
func (f *File) CachedBytes(off, n int64) (int64, bool) {
	if f.fs.Memory {
		return n, true
	}
	r, err := f.Residency(off, n)
	if err != nil {
		return 0, false
	}
	return min(r.Cached, n), true
}

// ReadDirect fills p[:need] from off past the page cache; off, len(p) and the
// address of p obey Align, and need <= len(p) is smaller only at the end of the
// file. ErrDirectRefused means that the file system declined this kind of read
// and that the caller should read through the page cache.
func (f *File) ReadDirect(p []byte, off int64, need int) error {
	if err := f.Pin(); err != nil {
		return err
	}
	defer f.Unpin()
	n, err := f.preadFull(f.direct, p, off, need)
	if err != nil && n == 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)) {
		f.refuse(fmt.Sprintf("%s accepted O_DIRECT at open but refused an aligned read: %v", f.fs.Name, err),
			"keep the file on a file system with direct I/O, such as ext4 or XFS")
		return ErrDirectRefused
	}
	return err
}

// ErrDirectRefused means that the file system does not support this kind of direct I/O.
var ErrDirectRefused = errors.New("direct read refused by the file system")

// preadFull reads at least need bytes of p. A file that ends early is an error
// that names both lengths.
func (f *File) preadFull(fd int, p []byte, off int64, need int) (int, error) {
	if f.remote != nil {
		return f.fetchFull(p[:need], off)
	}
	n := 0
	for n < need {
		m, err := unix.Pread(fd, p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return n, errs.Wrap("read", fmt.Sprintf("%s at offset %d", f.path, off+int64(n)), err)
		case m == 0:
			return n, f.ErrShort(off, need, n)
		default:
			n += m
		}
	}
	return n, nil
}

// ErrShort is the error for a read of need bytes at off that ended after got.
func (f *File) ErrShort(off int64, need, got int) error {
	// A read that lies wholly behind the end does not see where that is.
	end := off + int64(got)
	if f.Pin() == nil {
		defer f.Unpin()
	}
	var st unix.Stat_t
	if unix.Fstat(f.buffered, &st) == nil {
		end = min(end, st.Size)
	}
	return errs.New(errs.IO, "read", f.path, fmt.Sprintf(
		"the file ended at offset %d while bytes %d to %d were expected; it was %d bytes long when opened",
		end, off, off+int64(need), f.size)).WithFix("it was truncated during the read; load it again from a whole copy")
}
