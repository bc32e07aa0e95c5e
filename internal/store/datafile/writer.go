// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"context"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// preallocateFrom is the size from which room is asked for ahead: below it the kernel allocates the file in one go
// anyway. Above it a GiB costs 0.47 processor seconds with it and 0.53 without. preallocateMost bounds what a client
// that only announces a size can take from others.
const (
	preallocateFrom = 1 << 20
	preallocateMost = 1 << 30
)

// Writer writes one new file. It is for one goroutine.
//
// Create, Fill or Copy, Sync, the caller's commit, Settle: in this order, each once. An error of any of them has
// already removed the file. Abort removes it at any point before Settle.
type Writer struct {
	f       *Files
	id      ID
	name    string
	file    vfs.File // nil when closed
	gone    bool     // removed, or handed over
	written bool
}

// Create makes the file tmp/<id>. size is what will be written, or -1; room for it is asked for ahead, so that a disk
// that is too full is known early and the file lies in one piece.
func (f *Files) Create(id ID, size int64) (*Writer, error) {
	const op = "create"
	name := f.tmpName(id)
	if err := checkSize(op, name, 0, max(size, 0)); err != nil {
		return nil, err
	}
	file, err := f.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fail(op, name, err)
	}
	w := &Writer{f: f, id: id, name: name, file: file}
	if err := preallocate(file, 0, size); err != nil {
		return nil, w.fail(op, err)
	}
	return w, nil
}

// preallocate asks for room; a file system that cannot do so is none the worse.
func preallocate(file vfs.File, off, size int64) error {
	if size < preallocateFrom {
		return nil
	}
	err := again(func() error { return file.Preallocate(off, min(size, preallocateMost)) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// again repeats a system call that a signal has interrupted, such as those by which the runtime preempts goroutines.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// ID is the file's.
func (w *Writer) ID() ID { return w.id }

// Fill writes the whole content: exactly size bytes of body, or all of it where size is -1. A body of another length is
// object.ErrIncompleteBody; an error of the body is returned as it is. The body is read up to and including its end.
func (w *Writer) Fill(ctx context.Context, body io.Reader, size int64, md5 bool) (Written, error) {
	const op = "write"
	if err := w.once(op); err != nil {
		return Written{}, err
	}
	fl := w.f.filler(w.file, w.name, func(p []byte, _ int64) (int, error) { return w.file.Write(p) })
	g, sum, err := fl.fill(ctx, body, 0, size, md5)
	if err != nil {
		w.Abort()
		return Written{}, err
	}
	return Written{Size: g.off, CRC64: g.whole, Sums: g.sums(), MD5: sum}, nil
}

// once refuses a second content.
func (w *Writer) once(op string) error {
	if w.file == nil || w.written {
		return errs.New(errs.Closed, op, w.name, "the file has its content already, or is gone")
	}
	w.written = true
	return nil
}

// Sync makes content and name durable, and closes the file. After it nothing but Settle or Abort is left to do.
func (w *Writer) Sync(ctx context.Context) error {
	const op = "sync"
	if w.file == nil {
		return errs.New(errs.Closed, op, w.name, "the file is closed already")
	}
	if err := context.Cause(ctx); err != nil {
		return w.fail(op, err)
	}
	if err := again(w.file.SyncData); err != nil {
		return w.fail(op, err)
	}
	file := w.file
	w.file = nil
	if err := file.Close(); err != nil {
		return w.fail(op, err)
	}
	if err := w.f.tmpDir.wait(); err != nil {
		return w.fail(op, err)
	}
	return nil
}

// Settle is Files.Settle of this file, after the caller's commit; Abort does nothing any more.
func (w *Writer) Settle() {
	w.gone = true
	w.f.Settle(w.id)
}

// Abort removes the file. It can be called more than once, and does nothing after Settle. What it cannot remove,
// Recover will.
func (w *Writer) Abort() error {
	if w.gone {
		return nil
	}
	w.gone = true
	if w.file != nil {
		_ = w.file.Close() // what was written is not wanted
		w.file = nil
	}
	if err := w.f.fs.Remove(w.name); err != nil && !missing(err) {
		return fail("remove", w.name, err)
	}
	return nil
}

// fail removes the file and says why.
func (w *Writer) fail(op string, err error) error {
	_ = w.Abort()
	return fail(op, w.name, err)
}
