// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"context"
	md5sum "crypto/md5"
	"hash"
	"io"

	"golang.org/x/sys/unix"
)

// copyStep is the number of bytes that the kernel copies between two checks of the context.
const copyStep = 64 << 20

// Source is a range of another data file: N bytes from offset Off.
type Source struct {
	From   *Reader
	Off, N int64
}

// Copy writes the whole content of the file as the concatenation of the sources. The caller uses either Copy or Fill
// for a file, never both.
//
// Copy compares every block with its checksum before the block is copied, because the owner of a copy may delete the
// original. If a block begins at a multiple of Block both in the source and in the copy, the kernel copies the block,
// and the block keeps its checksum. If the file system can share blocks between files, the copied block and its source
// share their storage. Before the kernel copies a block, Copy reads and compares the block, unless the block was
// already compared since the source was opened. Bytes that the kernel does not copy pass through memory, where Copy
// compares them and computes their checksums; if md5 is set, all bytes pass through memory. If a source is damaged,
// Copy returns a *Damage that describes the damaged range.
func (w *Writer) Copy(ctx context.Context, sources []Source, md5 bool) (Written, error) {
	const op = "copy"
	var size int64
	for _, s := range sources {
		if err := s.From.within(s.Off, s.N); err != nil {
			_ = w.Abort()
			return Written{}, err
		}
		if err := checkSize(op, w.name, size, s.N); err != nil {
			_ = w.Abort()
			return Written{}, err
		}
		size += s.N
	}
	if err := w.once(op); err != nil {
		return Written{}, err
	}
	c := &copier{w: w, g: &grid{join: w.f.join}, fl: w.f.filler(w.file, w.name, nil)}
	c.fl.put = c.put
	if md5 {
		c.md5 = md5sum.New()
	}
	for k, s := range sources {
		if err := c.take(ctx, s, k == len(sources)-1); err != nil {
			_ = w.Abort()
			return Written{}, err
		}
	}
	out := Written{Size: c.g.off, CRC64: c.g.whole, Sums: c.g.sums()}
	if c.md5 != nil {
		out.MD5 = c.md5.Sum(nil)
	}
	return out, nil
}

// copier is a Copy in progress.
type copier struct {
	w      *Writer
	g      *grid
	fl     filler
	md5    hash.Hash
	placed bool // the kernel has copied bytes, which does not move the file's own position
}

// put writes p at off. It writes at the file's position as long as the kernel has copied nothing, which works on
// every file system.
func (c *copier) put(p []byte, off int64) (int, error) {
	if c.placed {
		return c.w.file.WriteAt(p, off)
	}
	return c.w.file.Write(p)
}

// take copies one source.
func (c *copier) take(ctx context.Context, s Source, last bool) error {
	const op = "copy"
	for off, end := s.Off, s.Off+s.N; off < end; {
		if err := context.Cause(ctx); err != nil {
			return fail(op, c.w.name, err)
		}
		if n := c.whole(s, off, last); n > 0 {
			n = min(n, copyStep)
			if err := c.verify(ctx, s.From, off, n); err != nil {
				return err
			}
			ok, err := c.inKernel(s.From, off, n)
			if err != nil {
				return err
			}
			if ok {
				off += n
				continue
			}
		}
		i := off / Block
		from, n := s.From.extent(i)
		to := min(from+n, end)
		err := s.From.withBlock(i, func(p []byte) error {
			p = p[off-from : to-from]
			if c.md5 != nil {
				c.md5.Write(p)
			}
			return fail(op, c.w.name, c.fl.write(c.g, p))
		})
		if err != nil {
			return err
		}
		off = to
	}
	return nil
}

// whole returns how many of the next bytes are whole blocks in both files, including a short last block of both
// files.
func (c *copier) whole(s Source, off int64, last bool) int64 {
	if c.md5 != nil || c.fl.fd < 0 || s.From.e.fd < 0 || off%Block != 0 || c.g.off%Block != 0 {
		return 0
	}
	end := s.Off + s.N
	if last && end == s.From.size {
		return end - off
	}
	return (end - off) / Block * Block
}

// verify compares the blocks in n bytes at off that nobody has compared since the file was opened. VerifyAlways and
// VerifyNever remember nothing, so with them verify compares all blocks.
func (c *copier) verify(ctx context.Context, r *Reader, off, n int64) error {
	for i := off / Block; i*Block < off+n; i++ {
		if r.e.compared(i) {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return fail("copy", c.w.name, err)
		}
		if from := (i + 1) * Block; from < r.size {
			_ = r.e.file.Prefetch(from, min(aheadBy, r.size-from)) // a hint
		}
		if err := r.check(i); err != nil {
			return err
		}
	}
	return nil
}

// inKernel copies whole blocks that were compared. It returns false if the file systems do not support that.
func (c *copier) inKernel(r *Reader, off, n int64) (bool, error) {
	const op = "copy"
	if _, err := r.sumOf(off / Block); err != nil {
		return false, err
	}
	in, out := off, c.g.off
	for in < off+n {
		k, err := unix.CopyFileRange(r.e.fd, &in, c.fl.fd, &out, int(off+n-in), 0)
		switch {
		case err == unix.EINTR:
		case in == off && (err == unix.EXDEV || err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.EINVAL):
			return false, nil
		case rotten(err):
			return false, r.damage(in, off+n-in, "unreadable", err)
		case err != nil:
			return false, fail(op, c.w.name, err)
		case k == 0:
			return false, r.damage(in, off+n-in, "short", io.ErrUnexpectedEOF)
		}
	}
	c.placed = true
	for i := off / Block; i*Block < off+n; i++ {
		sum, err := r.sumOf(i)
		if err != nil {
			return false, err
		}
		_, size := r.extent(i)
		c.g.know(size, sum)
	}
	return true, nil
}
