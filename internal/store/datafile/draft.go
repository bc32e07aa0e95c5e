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
)

// Draft is a file that others write, through descriptions that Open makes. It is for one goroutine.
//
// NewDraft, Open, then Seal, the caller's commit, Writer().Settle and Close: in this order. An error of Seal that is
// neither object.ErrWriterLeft nor object.ErrInvalidSums has removed the file; Abort removes it at any point before the
// commit.
type Draft struct {
	f    *Files
	w    *Writer
	size int64 // room that was asked for
	// look is open for reading from the beginning on: what the kernel could not write shows in its sync, whoever had
	// written it.
	look   vfs.File
	sealed bool // nobody can write to it
	ended  bool
	left   bool // under drafts.mu; it was aborted while somebody could write to it: look stays open
}

// drafts are those that are open.
type drafts struct {
	proved atomic.Bool // leases hold what they promise here

	mu   sync.Mutex
	open map[*Draft]struct{}
}

// reserved counts the drafts and what they take of the disk, those among them that were aborted and that somebody can
// still write to.
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

// NewDraft makes the file tmp/<id> with room for size bytes, and of that size: writes that make a file longer wait for
// each other. Kind Unsupported where it cannot be seen whether somebody still writes to a file.
func (f *Files) NewDraft(id ID, size int64) (*Draft, error) {
	const op = "create draft"
	name := f.tmpName(id)
	if !f.native {
		return nil, f.foreign(op, name)
	}
	w, err := f.Create(id, -1)
	if err != nil {
		return nil, err
	}
	d := &Draft{f: f, w: w, size: size}
	if err := d.begin(op); err != nil {
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

// begin gives the file its room, and ends the only description of ours that can write.
func (d *Draft) begin(op string) error {
	f, w := d.f, d.w
	if err := checkSize(op, w.name, 0, d.size); err != nil {
		return err
	}
	fd := w.file.Fd()
	if err := blind(op, w.name, fd); err != nil {
		return err
	}
	if err := reserve(int(fd), d.size); err != nil {
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

// reserve makes a file of that size that has its blocks, where the file system can.
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

// ID is the file's.
func (d *Draft) ID() ID { return d.w.id }

// Path is the file's name.
func (d *Draft) Path() string { return d.w.name }

// Reserved is how many bytes of the disk the file takes now: clients may write beyond what was announced.
func (d *Draft) Reserved() int64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.look.Fd()), &st); err != nil {
		return d.size
	}
	return st.Blocks * 512
}

// Open makes a fresh write-only description, past the page cache with direct; the caller closes it. Kind Unsupported
// where the file system has no way past the page cache.
func (d *Draft) Open(direct bool) (*os.File, error) {
	const op = "open draft"
	if d.ended {
		return nil, errs.New(errs.Closed, op, d.w.name, "the draft has ended")
	}
	flags := unix.O_WRONLY
	if direct {
		flags |= unix.O_DIRECT
	}
	file, err := openHere(unix.AT_FDCWD, d.w.name, d.w.name, flags)
	return file, undirected(op, d.w.name, direct, err)
}

// Seal makes the first size bytes durable, and the file's name, after it has seen that nobody can write to it any more;
// nobody can before Close. object.ErrWriterLeft where somebody can, object.ErrInvalidSums where the file is shorter:
// the draft stays as it was. After it nothing but the caller's commit, Writer().Settle or Abort, and Close is left to
// do.
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

// slack is what a file may take of the disk beyond its size, and a 64th of it, without being cut: blocks are larger
// than bytes, and where they are is written somewhere.
const slack = 1 << 20

// cuts bounds how often a file is cut that somebody makes longer each time.
const cuts = 4

// settle leaves the file with exactly size bytes and under a lease. To cut it, it has to be written to, which the lease
// forbids us too: it is given back for that, and whoever has come meanwhile is found by the next one.
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
		// A client can reserve room behind the end, which no size shows; what is committed must not keep it.
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

// Writer is the sealed file, as the caller's commit takes it.
func (d *Draft) Writer() *Writer { return d.w }

// Close lets go of the draft, and of what keeps others from writing to its file, which stays. It can be called more
// than once.
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

// drop forgets the draft. The lock of the drafts is held.
func (d *Draft) drop() {
	delete(d.f.drafts.open, d)
	if d.look != nil {
		_ = d.look.Close() // nothing was written through it
	}
}

// Remains reports whether somebody can still write to the file of an aborted draft, and frees what was written to it
// meanwhile. Once it has returned false it does so for good. It may be called from any goroutine.
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

// Abort removes the file. It can be called more than once, and after Settle it only closes. What the file has taken of
// the disk is free then. Where somebody keeps a descriptor of it that can write, Remains frees what is written later.
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

// fail removes the file and says why.
func (d *Draft) fail(op string, err error) error {
	_ = d.Abort()
	return fail(op, d.w.name, err)
}
