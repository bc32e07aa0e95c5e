// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Damage is content of a file that is not what was written. It is an error that wraps object.ErrDamaged.
type Damage struct {
	ID   ID
	File string // its path
	Off  int64  // where the damaged block begins
	N    int64  // its length
	What string // "checksum", "missing", "short", "unreadable"
	Err  error  // the cause; may be nil
}

// Error says where the damage is.
func (d *Damage) Error() string {
	s := fmt.Sprintf("%s: %s: %d bytes at offset %d: %v", d.File, d.What, d.N, d.Off, object.ErrDamaged)
	if d.Err != nil {
		s += ": " + d.Err.Error()
	}
	return s
}

// Where is what is damaged within the content, for those who tell a client: paths are the server's own.
func (d *Damage) Where() (off, n int64, what string) { return d.Off, d.N, d.What }

// Unwrap lets errors.Is find object.ErrDamaged and the cause.
func (d *Damage) Unwrap() []error {
	if d.Err == nil {
		return []error{object.ErrDamaged}
	}
	return []error{object.ErrDamaged, d.Err}
}

// fail says that op failed on name, with the sentinel that the caller can act on.
func fail(op, name string, err error) error {
	var sentinel error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		sentinel = object.ErrNoSpace
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		sentinel = object.ErrReadOnly
	default:
		return errs.Wrap(op, name, err)
	}
	return object.Fail(op, name, both{sentinel, err}, "")
}

// both is an error with two causes, said in one line.
type both struct{ sentinel, cause error }

func (b both) Error() string   { return b.sentinel.Error() + ": " + b.cause.Error() }
func (b both) Unwrap() []error { return []error{b.sentinel, b.cause} }

// missing reports whether err says that there is no such name.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// exists reports whether err says that the name is taken.
func exists(err error) bool { return errors.Is(err, fs.ErrExist) }

// rotten reports whether err is the medium's and not the process's: asking again later gives the same.
func rotten(err error) bool {
	for _, no := range []unix.Errno{unix.EIO, unix.ENODATA, unix.EUCLEAN, unix.EBADMSG, unix.EILSEQ} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// irregular says that a name is taken by something without content. Opening a pipe would wait for somebody who writes
// to it.
func irregular(name string) error {
	return &errs.Error{Kind: errs.Corrupt, Op: "open", Name: name, Err: unix.EUCLEAN,
		Msg: "it is a directory, a pipe or a device, expected a file",
		Fix: "stop the server and run nebulaio store check"}
}
