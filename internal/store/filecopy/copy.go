// SPDX-License-Identifier: Apache-2.0

// Package filecopy copies files durably, and compares files with their checksums.
package filecopy

import (
	"context"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// ErrSums is the error for content that does not match its recorded checksum.
var ErrSums = errors.New("the content does not have its checksum")

// CopyFile copies the first `size` bytes of a file and syncs the copy. If the file system can share blocks between
// files, CopyFile clones the whole file. If the function check is not nil, CopyFile calls it with each block of 1 MiB
// in order; holes are passed as zeros. If the function check returns an error, the copy ends. If CopyFile fails, it
// removes the target file.
func CopyFile(ctx context.Context, f vfs.FS, from, to string, size int64,
	check func(off int64, block []byte) error) error {
	src, err := layout.OpenRegular(f, from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := layout.MakePrivate(f, to)
	if err != nil {
		return err
	}
	cloned := cloneFile(src, dst, size)
	if check == nil && !cloned {
		cloned, err = copyHoles(ctx, src, dst, size)
	}
	if err == nil && (check != nil || !cloned) {
		err = EachBlock(ctx, src, size, func(off int64, b []byte) error {
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

// cloneFile shares the blocks of a whole file with another; it returns false if that is not possible.
func cloneFile(src, dst vfs.File, size int64) bool {
	if src.Fd() == vfs.InvalidFd || dst.Fd() == vfs.InvalidFd {
		return false
	}
	if info, err := src.Stat(); err != nil || info.Size() != size {
		return false
	}
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
}

// copyHoles copies the first size bytes of a sparse file and keeps its holes: those of an upload without its first
// parts, or of a damaged file. It returns false, and has copied nothing, if the file has no hole or the file system
// cannot tell.
func copyHoles(ctx context.Context, src, dst vfs.File, size int64) (bool, error) {
	if src.Fd() == vfs.InvalidFd || dst.Fd() == vfs.InvalidFd {
		return false, nil
	}
	fd := int(src.Fd())
	if hole, err := unix.Seek(fd, 0, unix.SEEK_HOLE); err != nil || hole >= size {
		_, err = unix.Seek(fd, 0, io.SeekStart)
		return false, err
	}
	buf := make([]byte, record.BlockSize)
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

// EachBlock reads the first `size` bytes of a file, and calls f with each block of 1 MiB.
func EachBlock(ctx context.Context, file io.Reader, size int64, f func(off int64, block []byte) error) error {
	b := make([]byte, min(record.BlockSize, max(size, 1)))
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(record.BlockSize, size-off)
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

// SumsOf returns a function that compares a block with its checksum in sums, and returns ErrSums if they differ.
func SumsOf(sums []uint64) func(off int64, block []byte) error {
	return func(off int64, b []byte) error {
		if i := off / record.BlockSize; i >= int64(len(sums)) || checksum.Of(b) != sums[i] {
			return ErrSums
		}
		return nil
	}
}

// PiecesOf reads the given pieces (ranges with a checksum) of a file, and returns ErrSums if a piece differs from its
// checksum.
func PiecesOf(ctx context.Context, file io.ReaderAt, pieces []datafile.Piece) error {
	b := make([]byte, record.BlockSize)
	for _, p := range pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.N > record.BlockSize {
			return ErrSums
		}
		if _, err := file.ReadAt(b[:p.N], p.Off); err != nil {
			return err
		}
		if checksum.Of(b[:p.N]) != p.CRC64 {
			return ErrSums
		}
	}
	return nil
}

// DirSet creates directories with access for their owner only, and syncs them all at the end.
type DirSet struct {
	FS   vfs.FS
	Root string
	made map[string]bool
}

// Make creates a directory below the root, together with missing parents.
func (d *DirSet) Make(dir string) error {
	if d.made[dir] {
		return nil
	}
	if d.made == nil {
		d.made = map[string]bool{}
	}
	if err := d.FS.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for ; !d.made[dir]; dir = d.FS.PathDir(dir) {
		d.made[dir] = true
		if dir == d.Root || dir == d.FS.PathDir(dir) {
			break
		}
	}
	return nil
}

// Sync makes all created directories and the names in them durable.
func (d *DirSet) Sync() error {
	for dir := range d.made {
		if err := layout.SyncDir(d.FS, dir); err != nil {
			return err
		}
	}
	return layout.SyncDir(d.FS, d.FS.PathDir(d.Root))
}
