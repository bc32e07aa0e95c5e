// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// NewGrowingDraft creates the file tmp/<id> as a private copy of the first size bytes of the file from, or as an empty
// file if from is nil. The descriptors of the draft read and write, and its file has no reserved space. The result
// copied is the number of copied bytes, or 0 if the file system lets both files share their blocks. The content is not
// compared with checksums. NewGrowingDraft does not close from, and fails as NewDraft does.
func (f *Files) NewGrowingDraft(ctx context.Context, id ID, from *os.File, size int64) (d *Draft, copied int64,
	err error) {
	d, err = beginDraft(f, id, size, true, func(fd int) error {
		if from == nil || size == 0 {
			return nil
		}
		copied, err = duplicate(ctx, fd, from, size)
		return err
	})
	return d, copied, err
}

// duplicate makes the empty file fd a copy of the first size bytes of from. It returns the number of copied bytes, or 0
// if both files share their blocks.
func duplicate(ctx context.Context, fd int, from *os.File, size int64) (copied int64, err error) {
	src := int(from.Fd())
	err = again(func() error { return unix.IoctlFileClone(fd, src) })
	if err == nil {
		return 0, exactly(fd, size)
	}
	// EXDEV comes from kernels before 5.18 too, where the two files lie on different mounts of one file system.
	if !isErrno(err, unix.EOPNOTSUPP, unix.ENOTTY, unix.EXDEV, unix.EINVAL, unix.ENOSYS) {
		return 0, err
	}
	for in := int64(0); in < size; {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		out := in
		n, err := unix.CopyFileRange(src, &in, fd, &out, int(min(size-in, copyStep)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case out == 0 && isErrno(err, unix.EXDEV, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL):
			return size, byHand(ctx, fd, from, size)
		case err != nil:
			return 0, err
		case n == 0:
			return 0, short(from, in)
		}
	}
	return size, nil
}

// byHand copies through memory, for file systems between which the kernel does not copy.
func byHand(ctx context.Context, fd int, from *os.File, size int64) error {
	buf := make([]byte, min(Block, size))
	for at := int64(0); at < size; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := from.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if n == 0 {
			if errors.Is(err, io.EOF) {
				return short(from, at)
			}
			return err
		}
		for p := buf[:n]; len(p) > 0; {
			k, err := unix.Pwrite(fd, p, at)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return err
			}
			p, at = p[k:], at+int64(k)
		}
	}
	return nil
}

// exactly cuts a cloned file to size bytes. A file that is shorter is damaged.
func exactly(fd int, size int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Size < size {
		return &Damage{Off: st.Size, N: size - st.Size, What: "short", Err: io.ErrUnexpectedEOF}
	}
	if st.Size == size {
		return nil
	}
	return again(func() error { return unix.Ftruncate(fd, size) })
}

func short(from *os.File, at int64) error {
	return &Damage{File: from.Name(), Off: at, What: "short", Err: io.ErrUnexpectedEOF}
}

// Grow raises the announced size of a draft that grows. Grow reserves no disk space.
func (d *Draft) Grow(size int64) error {
	const op = "grow draft"
	if err := checkSize(op, d.w.name, 0, size); err != nil {
		return err
	}
	d.size = max(d.size, size)
	return nil
}
