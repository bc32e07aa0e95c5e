// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// WriteDirect writes p at offset off with O_DIRECT. The offset, len(p) and the address of p must have the alignment
// that Align returns. If the file system refuses the write, the error is ErrDirectRefused, and the caller should write
// through the page cache.
func (d *Replacement) WriteDirect(p []byte, off int64) error {
	at, err := writeDirect(d.direct, d.align.Offset, p, off)
	if at == off && (err == unix.EINVAL || err == unix.EOPNOTSUPP) {
		d.refuse(fmt.Sprintf("%s accepted O_DIRECT at open but refused an aligned write: %v", d.fs.Name, err),
			"save to a file system with direct I/O, such as ext4 or XFS")
		return ErrDirectRefused
	}
	return d.fail(fmt.Sprintf("write at offset %d of", at), err)
}

// WriteBuffered writes p at offset off through the page cache.
func (d *Replacement) WriteBuffered(p []byte, off int64) error {
	at, err := writeBuffered(d.buffered, p, off)
	return d.fail(fmt.Sprintf("write at offset %d of", at), err)
}

// Name returns the same path as Path, for messages.
func (d *Replacement) Name() string { return d.path }

// writeDirect writes all of p, in multiples of align. at is the offset of the write that failed.
func writeDirect(fd int, align int64, p []byte, off int64) (at int64, err error) {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, off)
		switch whole := int64(max(n, 0)) / align * align; {
		case err == unix.EINTR:
		case err != nil:
			return off, err
		case whole == 0:
			return off, errs.New(errs.IO, "", "", fmt.Sprintf("the kernel took %d of %d bytes", n, len(p)))
		default:
			p, off = p[whole:], off+whole
		}
	}
	return off, nil
}

// writeBuffered writes all of p. at is the offset of the write that failed.
func writeBuffered(fd int, p []byte, off int64) (at int64, err error) {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, off)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return off, err
		case n == 0:
			return off, errs.New(errs.IO, "", "", "the kernel took no byte")
		default:
			p, off = p[n:], off+int64(n)
		}
	}
	return off, nil
}

// fail adds the kind, the needed and free space, and a fix to a write error. The error names the file, not the
// temporary file.
func (d *Replacement) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &errs.Error{Kind: errs.KindOf(err), Op: op, Name: d.path, Err: err, Fix: errs.Remedy(err)}
	dir := filepath.Dir(d.target)
	switch {
	case errors.Is(err, unix.ENOSPC):
		e.Kind, e.Msg = errs.IO, fmt.Sprintf("it needs %d bytes%s; the old file, if any, is as it was", d.size,
			freeSpace(dir))
		e.Fix = "free space there or save to another file system; both the old and the new file must fit"
	case errors.Is(err, unix.EDQUOT):
		e.Kind, e.Msg = errs.IO, fmt.Sprintf("it needs %d bytes, more than the quota there leaves", d.size)
		e.Fix = "free space of your quota, have it raised, or save to another file system"
	case errors.Is(err, unix.EFBIG):
		e.Kind, e.Msg = errs.IO, fmt.Sprintf("it needs %d bytes, more than one file may have here", d.size)
		e.Fix = "raise the limit of file sizes (ulimit -f), or save to a file system with larger files"
	case errors.Is(err, unix.EROFS):
		e.Kind, e.Msg = errs.Permission, "the file system is mounted read-only"
		e.Fix = "save to another directory, or remount it read-write"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e.Kind, e.Msg = errs.Permission, "files may not be made or replaced in "+dir
		e.Fix = "save to a directory that you may write to, or have its permissions changed"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		e.Kind, e.Msg = errs.NotFound, "there is no directory "+dir
		e.Fix = "make the directory first"
	case errors.Is(err, unix.ENAMETOOLONG):
		e.Kind, e.Msg = errs.Invalid, "the name is too long for "+dir
		e.Fix = "give a shorter name"
	}
	return e
}

// freeSpace returns a text with the free space of a directory, or "" if it is unknown.
func freeSpace(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	return fmt.Sprintf(", %d are free in %s", int64(st.Bavail)*int64(st.Bsize), dir)
}
