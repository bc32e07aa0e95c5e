// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// errSums says that content does not have the checksum that its record names.
var errSums = errors.New("the content does not have its checksum")

// makePrivate makes a file for its owner alone, and opens it to be written.
func makePrivate(f vfs.FS, path string) (vfs.File, error) {
	file, err := f.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if fd := file.Fd(); fd != vfs.InvalidFd {
		if err := unix.Fchmod(int(fd), 0o600); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
	return file, nil
}

// openRegular opens a file to be read. It refuses what is none: opening a pipe waits until somebody writes to it.
func openRegular(f vfs.FS, path string, opts ...vfs.OpenOption) (vfs.File, error) {
	info, err := f.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errs.New(errs.Corrupt, "open", path, fmt.Sprintf("it is no file (mode %v)", info.Mode())).
			WithFix("restore the file from a backup")
	}
	return f.Open(path, opts...)
}

// copyFile copies the first size bytes of a file durably: as a clone where the file system shares blocks between files,
// else byte by byte and without holes. check, where given, gets each block of a megabyte as it was written, holes as
// zeros; its error ends the copy.
func copyFile(ctx context.Context, f vfs.FS, from, to string, size int64, check func(off int64, block []byte) error) error {
	src, err := openRegular(f, from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := makePrivate(f, to)
	if err != nil {
		return err
	}
	cloned := cloneFile(src, dst, size)
	if check == nil && !cloned {
		cloned, err = copyHoles(ctx, src, dst, size)
	}
	if err == nil && (check != nil || !cloned) {
		err = eachBlock(ctx, src, size, func(off int64, b []byte) error {
			if check != nil {
				if err := check(off, b); err != nil {
					return err
				}
			}
			if cloned {
				return nil
			}
			_, err := dst.Write(b)
			return err
		})
	}
	if err == nil {
		err = dst.Sync()
	}
	if e := dst.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = f.Remove(to)
	}
	return err
}

// cloneFile shares the blocks of a whole file with another; false means that it cannot be done.
func cloneFile(src, dst vfs.File, size int64) bool {
	if src.Fd() == vfs.InvalidFd || dst.Fd() == vfs.InvalidFd {
		return false
	}
	if info, err := src.Stat(); err != nil || info.Size() != size {
		return false
	}
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
}

// copyHoles copies the first size bytes of a sparse file and leaves its holes out: those of an upload whose first parts
// are missing, or of a damaged file. It returns false, and has copied nothing, where the file has no hole or the file
// system does not tell.
func copyHoles(ctx context.Context, src, dst vfs.File, size int64) (bool, error) {
	if src.Fd() == vfs.InvalidFd || dst.Fd() == vfs.InvalidFd {
		return false, nil
	}
	fd := int(src.Fd())
	if hole, err := unix.Seek(fd, 0, unix.SEEK_HOLE); err != nil || hole >= size {
		_, err = unix.Seek(fd, 0, io.SeekStart)
		return false, err
	}
	buf := make([]byte, blockSize)
	for off := int64(0); off < size; {
		from, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			return true, err
		}
		to, err := unix.Seek(fd, from, unix.SEEK_HOLE)
		if err != nil {
			return true, err
		}
		for off = from; off < min(to, size); {
			if err := ctx.Err(); err != nil {
				return true, err
			}
			b := buf[:min(int64(len(buf)), min(to, size)-off)]
			if _, err := src.ReadAt(b, off); err != nil {
				return true, err
			}
			if _, err := dst.WriteAt(b, off); err != nil {
				return true, err
			}
			off += int64(len(b))
		}
	}
	return true, unix.Ftruncate(int(dst.Fd()), size)
}

// eachBlock reads the first size bytes of a file block by block.
func eachBlock(ctx context.Context, file io.Reader, size int64, f func(off int64, block []byte) error) error {
	b := make([]byte, min(blockSize, max(size, 1)))
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(blockSize, size-off)
		if _, err := io.ReadFull(file, b[:n]); err != nil {
			return err
		}
		if err := f(off, b[:n]); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// sumsOf returns a check of blocks against the sums of a file.
func sumsOf(sums []uint64) func(off int64, block []byte) error {
	return func(off int64, b []byte) error {
		if i := off / blockSize; i >= int64(len(sums)) || checksum.Of(b) != sums[i] {
			return errSums
		}
		return nil
	}
}

// piecesOf checks a region of a file against the sums of its pieces.
func piecesOf(ctx context.Context, file io.ReaderAt, pieces []datafile.Piece) error {
	b := make([]byte, blockSize)
	for _, p := range pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.N > blockSize {
			return errSums
		}
		if _, err := file.ReadAt(b[:p.N], p.Off); err != nil {
			return err
		}
		if checksum.Of(b[:p.N]) != p.CRC64 {
			return errSums
		}
	}
	return nil
}

// dirSet makes directories for their owner alone, and syncs them all at the end.
type dirSet struct {
	fs   vfs.FS
	root string
	made map[string]bool
}

// make makes a directory below the root with those above it.
func (d *dirSet) make(dir string) error {
	if d.made[dir] {
		return nil
	}
	if d.made == nil {
		d.made = map[string]bool{}
	}
	if err := d.fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for ; !d.made[dir]; dir = d.fs.PathDir(dir) {
		d.made[dir] = true
		if dir == d.root || dir == d.fs.PathDir(dir) {
			break
		}
	}
	return nil
}

// sync makes all names in the directories durable, and that of the root.
func (d *dirSet) sync() error {
	for dir := range d.made {
		if err := syncDir(d.fs, dir); err != nil {
			return err
		}
	}
	return syncDir(d.fs, d.fs.PathDir(d.root))
}
