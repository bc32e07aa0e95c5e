// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// ReadAt reads len(p) bytes at offset off through the page cache. As for io.ReaderAt, reading fewer than len(p) bytes
// is an error.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if err := f.Pin(); err != nil {
		return 0, err
	}
	defer f.Unpin()
	n, err := f.preadFull(f.buffered, p, off, len(p))
	return n, err
}

// Buffered counts the bytes of a read through the page cache by their origin.
type Buffered struct {
	Cached int64 // bytes that were in the page cache before the read
	Missed int64 // bytes that the kernel had to fetch from storage
}

// ReadBuffered reads len(p) bytes at offset off through the page cache, and counts cached and missed bytes.
// ReadBuffered asks the kernel for the cached bytes right before the read. If the kernel does not report cached
// bytes, bytes that the kernel returns without I/O count as cached. A short read is an error.
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

// ReadCached copies bytes from the page cache into p, without I/O, up to the first missing page. ReadCached returns
// the number of bytes copied. The caller must have pinned the file. If each of many small reads pinned it, pinning
// would take much of their time.
func (f *File) ReadCached(p []byte, off int64) int64 {
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

// readNowait reads bytes at off that are in the page cache. It returns 0 if no byte is cached or the file system does
// not support RWF_NOWAIT.
func (f *File) readNowait(p []byte, off int64) int {
	if f.noNowait.Load() || f.remote != nil {
		return 0
	}
	if len(p) == 0 {
		return 0
	}
	// A raw call, because the call does no I/O: with unix.Preadv2 the Go scheduler would give the thread's place to
	// another thread after some 20 µs, and the thread would have to wait for a place after the call.
	v := unix.Iovec{Base: &p[0]}
	v.SetLen(len(p))
	n, _, err := unix.RawSyscall6(unix.SYS_PREADV2, uintptr(f.buffered), uintptr(unsafe.Pointer(&v)), 1, uintptr(off), 0,
		rwfNowait)
	switch err {
	case 0:
		return int(n)
	case unix.EOPNOTSUPP, unix.EINVAL, unix.ENOSYS:
		f.noNowait.Store(true)
	}
	return 0
}

// CachedBytes returns the number of bytes of [off, off+n) that are in the page cache, and false if the kernel does not
// report this number. On a file system in memory, all bytes count as cached.
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

// ReadDirect reads into p at file offset off with O_DIRECT, and fails if it reads fewer than `need` bytes. The offset,
// len(p) and the address of p must have the alignment that Align returns. The parameter `need` is smaller than len(p)
// only at the end of the file. If the file system refuses the read, the error is ErrDirectRefused, and the caller
// should read through the page cache.
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

// ErrDirectRefused means that the file system refused a read or write with O_DIRECT.
var ErrDirectRefused = errors.New("direct read refused by the file system")

// preadFull reads at least need bytes into p. If the file ends early, the error names both lengths.
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

// ErrShort returns the error for a read at offset off that delivered only `got` of `need` bytes.
func (f *File) ErrShort(off int64, need, got int) error {
	// A read behind the end of the file does not show where the end is.
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
