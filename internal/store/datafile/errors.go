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

// Damage describes a range of a data file that differs from what was written. Damage is an error that wraps
// object.ErrDamaged.
type Damage struct {
	ID   ID
	File string // path of the damaged file
	Off  int64  // offset of the damaged range
	N    int64  // length of the damaged range
	What string // kind of damage: "checksum", "missing", "short" or "unreadable"
	Err  error  // cause of the damage; may be nil
}

// Error returns a text with the file, the range and the kind of the damage.
func (d *Damage) Error() string {
	s := fmt.Sprintf("%s: %s: %d bytes at offset %d: %v", d.File, d.What, d.N, d.Off, object.ErrDamaged)
	if d.Err != nil {
		s += ": " + d.Err.Error()
	}
	return s
}

// Where returns the damaged range of the content and the kind of the damage. Where leaves out the path, so that its
// results can be sent to a client.
func (d *Damage) Where() (off, n int64, what string) { return d.Off, d.N, d.What }

// Unwrap lets errors.Is find object.ErrDamaged and the cause.
func (d *Damage) Unwrap() []error {
	if d.Err == nil {
		return []error{object.ErrDamaged}
	}
	return []error{object.ErrDamaged, d.Err}
}

// fail returns the error that op failed on name, with a sentinel that the caller can act on.
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

// both is an error with two causes, printed in one line.
type both struct{ sentinel, cause error }

func (b both) Error() string   { return b.sentinel.Error() + ": " + b.cause.Error() }
func (b both) Unwrap() []error { return []error{b.sentinel, b.cause} }

// missing reports whether err means that the name does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// exists reports whether err means that the name exists already.
func exists(err error) bool { return errors.Is(err, fs.ErrExist) }

// rotten reports whether err comes from the medium and not from the process, so that a retry gives the same error.
func rotten(err error) bool {
	for _, no := range []unix.Errno{unix.EIO, unix.ENODATA, unix.EUCLEAN, unix.EBADMSG, unix.EILSEQ} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// irregular returns the error for a name that is no regular file. Opening a pipe would wait for its writer.
func irregular(name string) error {
	return &errs.Error{Kind: errs.Corrupt, Op: "open", Name: name, Err: unix.EUCLEAN,
		Msg: "it is a directory, a pipe or a device, expected a file",
		Fix: "stop the server and run nebulaio store check"}
}
