// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

// WholeFile is the size for DraftFile.Commit that publishes the whole file of a draft that grows.
const WholeFile = -1

// Edit describes a change of an object in place.
type Edit struct {
	Device string // the device that the caller moves bytes from and to; empty for the client's default
	Size   int64  // the largest size that the object may have at first; at least the size of the object is taken
	// Replace commits even if the object was replaced or deleted after it was opened. Without Replace, such a commit
	// fails with PreconditionFailed.
	Replace bool
}

// Edit begins a draft that is a private copy of the object. The descriptors of the draft read and write; the File keeps
// its own bytes. On a file system that can share blocks between files, the copy takes no time and no space. The
// committed object keeps the headers, metadata and tags of the object. Edit fails with kind Permission if the client
// may not write the object, and with kind Unsupported if the door does not allow writes. The caller closes the draft
// before it closes the client; it may close the File at any time.
func (f *File) Edit(ctx context.Context, e Edit) (*DraftFile, error) {
	const op = "edit"
	name := urlOf(f.info.Bucket, f.info.Key)
	leave, err := f.c.enter(op, name)
	if err != nil {
		return nil, err
	}
	defer leave()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fds == nil {
		return nil, errs.New(errs.Closed, op, name, "the object was closed")
	}
	d := f.o.h.d
	if g := d.settings(); !g.Writes {
		return nil, errs.New(errs.Unsupported, op, name, g.WritesWhy)
	}
	on, err := f.c.device(ctx, e.Device)
	if err != nil {
		return nil, err
	}
	if err := f.o.fillSums(ctx, op, 0, f.info.Size); err != nil {
		return nil, err
	}
	was, err := unix.FcntlInt(uintptr(f.fds[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil || !f.ids[0].is(was) {
		closeAll([]int{was})
		return nil, errs.New(errs.Closed, op, name, "its descriptor was closed by the program").
			WithFix("keep the descriptors open until the object is closed")
	}
	req := &wire.Create{Bucket: f.info.Bucket, Key: f.info.Key, Size: max(e.Size, f.info.Size), Device: deviceOf(on),
		Want: wire.WantBuffered | wire.WantDirect, Source: f.o.h.id, Grows: true, IfMatch: f.info.ETag}
	if e.Replace {
		req.IfMatch = ""
	}
	got, err := d.draft(ctx, name, req, f.o.h.c)
	if err != nil {
		closeAll([]int{was})
		return nil, err
	}
	return got.grown(ctx, on, req, &edited{was: was, sums: f.o.sums})
}

// CreateGrowing begins an empty draft whose file the caller reads and writes, and which grows as the caller announces
// more with Extend. w.Size is the largest size at first. CreateGrowing ignores w.Src and w.Sources, and fails as
// CreateFile does. The caller closes the DraftFile before it closes the client.
func (c *Client) CreateGrowing(ctx context.Context, w Write) (*DraftFile, error) {
	return createFile(ctx, c, w, true)
}

// edited is what a draft that grows knows about the content that it begins with.
type edited struct {
	was  int            // descriptor of the old content, for reading; -1 if the draft began empty
	sums *checksum.Sums // of the old content; nil if the draft began empty
	done ranges         // what the program has overwritten
}

// close closes the descriptor of the old content.
func (e *edited) close() {
	if e != nil {
		closeAll([]int{e.was})
		e.was = -1
	}
}

// grown makes a draft that grows of what the door has sent. On an error it removes the draft.
func (f *draft) grown(ctx context.Context, on device.Device, req *wire.Create, e *edited) (*DraftFile, error) {
	fail := func(err error) (*DraftFile, error) {
		e.close()
		f.abort()
		return nil, err
	}
	if f.fds[0] < 0 {
		return fail(errs.New(errs.Invalid, "read door message", "Created", "came without a descriptor of "+f.name))
	}
	if err := f.grant(ctx, on, 0, req.Size); err != nil {
		return fail(err)
	}
	out := &DraftFile{bucket: req.Bucket, key: req.Key, d: f, most: req.Size, on: on, ifNoneMatch: req.IfNoneMatch,
		edit: e}
	out.lend(&f.fds, func() {
		e.close()
		f.abort()
	})
	return out, nil
}

// Copied returns the number of bytes that the server copied for the draft. Copied returns 0 if the draft shares the
// blocks of the object that it begins with, or began empty.
func (f *DraftFile) Copied() int64 { return f.d.reply.Copied }

// Most returns the largest size in bytes that was announced for the object.
func (f *DraftFile) Most() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

// Extend announces that the file is going to have up to size bytes. A program calls Extend before it writes behind the
// size that it announced last. Extend fails with kind Invalid if the draft does not grow, and with the door's error if
// the server refuses the size.
func (f *DraftFile) Extend(ctx context.Context, size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.extend(ctx, size)
}

func (f *DraftFile) extend(ctx context.Context, size int64) error {
	const op = "extend"
	switch {
	case f.fds == nil:
		return errs.New(errs.Closed, op, f.Name(), "it was committed or closed")
	case f.edit == nil:
		return errs.New(errs.Invalid, op, f.Name(),
			fmt.Sprintf("the draft was begun with %d bytes and does not grow", f.most))
	case size <= f.most:
		return nil
	}
	if err := f.d.grant(ctx, f.on, f.most, size); err != nil {
		return err
	}
	f.most = size
	return nil
}

// Wrote tells that the program has overwritten n bytes at offset off. Commit then does not compare the old content of
// blocks that are wholly overwritten. A call of Wrote is never necessary.
func (f *DraftFile) Wrote(off, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.edit != nil && off >= 0 && n > 0 {
		f.edit.done.add(off, n)
	}
}

// settle returns the size and the checksums that a draft that grows is committed with. The caller holds mu.
func (f *DraftFile) settle(ctx context.Context, size int64) (int64, *checksum.Sums, error) {
	const op = "commit"
	file, err := f.readable()
	if err != nil {
		return 0, nil, errs.Wrap(op, f.Name(), err)
	}
	defer file.Close() // only read from
	st, err := file.Stat()
	if err != nil {
		return 0, nil, errs.Wrap(op, f.Name(), err)
	}
	if size == WholeFile {
		size = st.Size()
	}
	if size < 0 || size > st.Size() {
		return 0, nil, errs.New(errs.Invalid, op, f.Name(),
			fmt.Sprintf("%d bytes; expected 0 to the %d of the file, or %d for all", size, st.Size(), WholeFile))
	}
	if err := f.extend(ctx, size); err != nil {
		return 0, nil, err
	}
	sums, err := sumsOf(ctx, file, f.Name(), size)
	if err != nil {
		return 0, nil, err
	}
	return size, sums, f.edit.sound(ctx, f.Name(), sums)
}

// readable returns the draft's file for reading. A program that closed the descriptor of the page cache, although it
// must not, may have left the other one. The caller holds mu.
func (f *DraftFile) readable() (*os.File, error) {
	if f.fds[0] >= 0 {
		fd, err := unix.FcntlInt(uintptr(f.fds[0]), unix.F_DUPFD_CLOEXEC, 0)
		return os.NewFile(uintptr(fd), f.Name()), err
	}
	if f.fds[1] >= 0 {
		return os.Open("/proc/self/fd/" + strconv.Itoa(f.fds[1]))
	}
	return nil, errs.New(errs.Closed, "read back", f.Name(), "the program has closed the descriptors of the draft").
		WithFix("leave the descriptors open until the commit, which closes them")
}

// sound compares the old content of each changed block with its checksum, unless the program has overwritten the whole
// block. Without it, a block that the disk has damaged would be published with a checksum that fits the damage.
func (e *edited) sound(ctx context.Context, name string, now *checksum.Sums) error {
	if e.sums == nil {
		return nil
	}
	buf := make([]byte, min(object.SumBlock, e.sums.Size))
	for i, sum := range e.sums.Blocks {
		off, n := e.sums.Extent(int64(i))
		if i < len(now.Blocks) && now.Blocks[i] == sum || off >= now.Size || e.done.covers(off, min(n, now.Size-off)) {
			continue
		}
		if ctx.Err() != nil {
			return errs.Wrap("verify", name, context.Cause(ctx))
		}
		if err := readFull(e.was, buf[:n], off); err != nil {
			return errs.Wrap("verify", name, err)
		}
		if got := checksum.Of(buf[:n]); got != sum {
			return errs.New(errs.Corrupt, "verify", name, fmt.Sprintf("block %d of the old content has the checksum %016x, "+
				"expected %016x, so the bytes of the block that were not written are damaged", i, got, sum)).
				WithFix("write the whole object again from a good copy")
		}
	}
	return nil
}

// readFull reads len(p) bytes at off.
func readFull(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pread(fd, p, off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return errs.New(errs.Corrupt, "read", "", "the file is shorter than the object")
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}
