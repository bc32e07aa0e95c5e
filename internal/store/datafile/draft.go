// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/lend"
)

// Draft is a data file that clients write through descriptors that Draft.Open returns. A Draft must be used by one
// goroutine at a time.
//
// The steps of a draft are, in this order: NewDraft, Open, Seal, the caller's commit, Writer().Settle, Close. If Seal
// fails with object.ErrWriterLeft or object.ErrInvalidSums, the draft stays; after any other error of Seal the file is
// removed. Abort may be called at any time before the caller's commit, and removes the draft's file.
type Draft struct {
	f    *Files
	w    *Writer
	size int64 // reserved or announced size in bytes
	// grows is set if the file has no reserved space, and if its descriptors read and write.
	grows bool
	// look is open for reading from the beginning: its sync returns every write error of the kernel, whoever made the
	// write.
	look   vfs.File
	sealed bool // nobody else can write to it any more
	ended  bool
	left   bool // under drafts.mu; aborted while somebody could still write to it, so look stays open
}

// drafts are the open drafts.
type drafts struct {
	proved atomic.Bool // leases work on this file system

	mu   sync.Mutex
	open map[*Draft]struct{}
}

// reserved counts the drafts and the disk space they use. Aborted drafts that somebody can still write to are
// included.
func (ds *drafts) reserved() (n int, bytes int64) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	for d := range ds.open {
		if !d.left || d.remains() {
			bytes += d.Reserved()
		}
	}
	return len(ds.open), bytes
}

// NewDraft creates the file tmp/<id> with the given size and reserves disk space for it. NewDraft sets the final size
// at once, because concurrent writes that extend a file wait for each other. NewDraft fails with kind Unsupported if
// the file system cannot tell whether anybody can still write to a file.
func (f *Files) NewDraft(id ID, size int64) (*Draft, error) {
	return beginDraft(f, id, size, false, func(fd int) error { return reserve(fd, size) })
}

// beginDraft creates the file of a draft; fill gives the file its first content or its space.
func beginDraft(f *Files, id ID, size int64, grows bool, fill func(fd int) error) (*Draft, error) {
	const op = "create draft"
	name := f.tmpName(id)
	if !f.native {
		return nil, foreign(op, name)
	}
	w, err := f.Create(id, -1)
	if err != nil {
		return nil, err
	}
	d := &Draft{f: f, w: w, size: size, grows: grows}
	if err := d.begin(op, fill); err != nil {
		_ = d.Abort()
		return nil, err
	}
	f.drafts.mu.Lock()
	defer f.drafts.mu.Unlock()
	if f.drafts.open == nil {
		f.drafts.open = map[*Draft]struct{}{}
	}
	f.drafts.open[d] = struct{}{}
	return d, nil
}

// begin fills the file or reserves its space, and closes our only description that can write.
func (d *Draft) begin(op string, fill func(fd int) error) error {
	f, w := d.f, d.w
	if err := checkSize(op, w.name, 0, d.size); err != nil {
		return err
	}
	fd := w.file.Fd()
	if err := blind(op, w.name, fd); err != nil {
		return err
	}
	if err := fill(int(fd)); err != nil {
		return fail(op, w.name, err)
	}
	var err error
	if d.look, err = f.fs.Open(w.name); err != nil {
		return fail(op, w.name, err)
	}
	end := func() error {
		file := w.file
		w.file = nil
		return file.Close()
	}
	if f.drafts.proved.Load() {
		return fail(op, w.name, end())
	}
	if err := prove(op, w.name, d.look.Fd(), end); err != nil {
		return err
	}
	f.drafts.proved.Store(true)
	return nil
}

// reserve sets the size of a file, and allocates its blocks if the file system can.
func reserve(fd int, size int64) error {
	if size == 0 {
		return nil
	}
	err := again(func() error { return unix.Fallocate(fd, 0, 0, size) })
	if isErrno(err, unix.EOPNOTSUPP, unix.ENOSYS) {
		err = again(func() error { return unix.Ftruncate(fd, size) })
	}
	return err
}

// ID returns the ID of the draft's file.
func (d *Draft) ID() ID { return d.w.id }

// Path returns the name of the draft's file in tmp/.
func (d *Draft) Path() string { return d.w.name }

// Reserved returns the disk space that the draft's file uses now, in bytes. The draft's file may be larger than
// announced, because clients can write beyond the announced size.
func (d *Draft) Reserved() int64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.look.Fd()), &st); err != nil {
		return d.size
	}
	return st.Blocks * 512
}

// Open returns a new write-only descriptor of the draft's file, or one that also reads if the draft grows. The caller
// closes the descriptor. If direct is set, the descriptor has O_DIRECT, and Open fails with kind Unsupported if the
// file system does not support O_DIRECT.
func (d *Draft) Open(direct bool) (*os.File, error) {
	const op = "open draft"
	if d.ended {
		return nil, errs.New(errs.Closed, op, d.w.name, "the draft has ended")
	}
	flags := unix.O_WRONLY
	if d.grows {
		flags = unix.O_RDWR
	}
	if direct {
		flags |= unix.O_DIRECT
	}
	file, err := lend.OpenFile(d.w.name, flags)
	return file, undirected(op, d.w.name, direct, taken(d.w.name, err))
}

// Seal makes the content (the first `size` bytes of the draft's file) and the file's name durable. Seal first verifies
// that nobody can write to the file any more. After a successful Seal nobody can write to the draft's file until Close
// is called. Seal fails with object.ErrWriterLeft if somebody can still write, and with object.ErrInvalidSums if the
// file is shorter than size. If Seal fails with ErrWriterLeft or ErrInvalidSums, the draft is unchanged. After a
// successful Seal the caller commits and calls Writer().Settle, or calls Abort, and then calls Close.
func (d *Draft) Seal(ctx context.Context, size int64) error {
	const op = "seal draft"
	if d.ended {
		return errs.New(errs.Closed, op, d.w.name, "the draft has ended")
	}
	if err := context.Cause(ctx); err != nil {
		return d.fail(op, err)
	}
	if err := d.settle(op, size); err != nil {
		if errors.Is(err, object.ErrWriterLeft) || errors.Is(err, object.ErrInvalidSums) {
			return err
		}
		return d.fail(op, err)
	}
	d.sealed = true
	if err := again(d.look.SyncData); err != nil {
		return d.fail(op, err)
	}
	if err := d.f.tmpDir.wait(); err != nil {
		return d.fail(op, err)
	}
	return nil
}

// slack is the space that a file may use beyond its size and a 64th of its size without being cut, because blocks and
// their index need space.
const slack = 1 << 20

// cuts limits how often a file is cut if somebody makes it longer each time.
const cuts = 4

// settle leaves the file with exactly size bytes and under a lease. The lease forbids us to cut the file too, so it
// is given back for the cut. Whoever has opened the file meanwhile is found by the next lease.
func (d *Draft) settle(op string, size int64) error {
	fd := d.look.Fd()
	trimmed := false
	for range cuts {
		err := lease(fd)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(fd), &st); err != nil {
			return err
		}
		// A client can reserve space behind the end, which the size does not show. A committed file must not keep it.
		behind := st.Blocks*512 > size+size/64+slack && !trimmed
		if st.Size == size && !behind {
			return nil
		}
		trimmed = true
		if err := unlease(fd); err != nil {
			return err
		}
		if st.Size < size {
			return object.Fail(op, d.w.name, object.ErrInvalidSums,
				fmt.Sprintf("the file has %d bytes, %d are to be committed", st.Size, size))
		}
		if err := truncate(d.w.name, size); errors.Is(err, object.ErrBusy) {
			break // who has a lease has a descriptor
		} else if err != nil {
			return err
		}
	}
	return &errs.Error{Kind: errs.Invalid, Op: op, Name: d.w.name, Err: object.ErrWriterLeft,
		Msg: "a description that was opened for writing is left, of which somebody has a descriptor, a duplicate, a " +
			"mapping, or one on its way through a socket",
		Fix: "close every descriptor of the file, those of child processes too, unmap it, and commit again"}
}

// Writer returns the Writer of the sealed file; the caller calls its Settle after the commit of the metadata.
func (d *Draft) Writer() *Writer { return d.w }

// Close ends the draft and its write protection; the file stays on disk. Close can be called more than once.
func (d *Draft) Close() {
	if d.ended {
		return
	}
	d.ended = true
	d.f.drafts.mu.Lock()
	defer d.f.drafts.mu.Unlock()
	if !d.left {
		d.drop()
	}
}

// drop forgets the draft. The caller holds drafts.mu.
func (d *Draft) drop() {
	delete(d.f.drafts.open, d)
	if d.look != nil {
		_ = d.look.Close() // nothing was written through it
	}
}

// Remains reports whether a client can still write to the file of an aborted draft, and frees the disk space of writes
// after the abort. After Remains has returned false once, it always returns false. Remains may be called from any
// goroutine.
func (d *Draft) Remains() bool {
	d.f.drafts.mu.Lock()
	defer d.f.drafts.mu.Unlock()
	return d.remains()
}

func (d *Draft) remains() bool {
	if !d.left {
		return false
	}
	if writable(d.look.Fd()) {
		empty(d.look.Fd()) // which waits for no lease: there is none on a file with a writer
		return true
	}
	d.left = false
	d.drop()
	return false
}

// Abort removes the draft's file and frees its disk space. Abort can be called more than once; after Settle it only
// closes the draft. If a client still has a descriptor for writing, calls of Remains free the disk space of writes
// after the abort.
func (d *Draft) Abort() error {
	open := !d.ended && !d.sealed && d.look != nil
	if open {
		empty(d.look.Fd()) // without it the space is free when the last descriptor is closed
	}
	err := d.w.Abort()
	if open && writable(d.look.Fd()) {
		d.f.drafts.mu.Lock()
		d.left = true
		d.f.drafts.mu.Unlock()
	}
	d.Close()
	return err
}

// fail removes the file and returns the error.
func (d *Draft) fail(op string, err error) error {
	_ = d.Abort()
	return fail(op, d.w.name, err)
}
