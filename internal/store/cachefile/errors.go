// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// ErrAbsent means that a block is not in the cache.
var ErrAbsent = errors.New("the block is not in the cache")

// absent returns the error for a block that is not in the cache.
func absent(op, name, msg string) error {
	return &errs.Error{Kind: errs.NotFound, Op: op, Name: name, Msg: msg, Err: ErrAbsent,
		Fix: "fetch the missing blocks first"}
}

// fullError returns the error for a full disk or cache.
func fullError(op, name, msg string) error {
	return object.Fail(op, name, object.ErrNoSpace, msg)
}

// fail returns the error that op failed on name, with object.ErrNoSpace for a full disk.
func fail(op, name string, err error) error { return layout.WrapIO(op, name, err) }

// missing reports whether err means that the name does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// rotten reports whether err comes from the medium and not from the process, so that a retry gives the same error.
func rotten(err error) bool {
	for _, no := range []unix.Errno{unix.EIO, unix.ENODATA, unix.EUCLEAN, unix.EBADMSG, unix.EILSEQ} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// both is an error with two causes, printed in one line.
type both struct{ sentinel, cause error }

func (b both) Error() string   { return b.sentinel.Error() + ": " + b.cause.Error() }
func (b both) Unwrap() []error { return []error{b.sentinel, b.cause} }

// damageError is the error for a block that differs from what was written. It wraps object.ErrDamaged.
type damageError struct {
	id    object.Identity
	block int64
	what  string
	cause error // may be nil
}

// Error names the key, the block and the kind of damage.
func (d *damageError) Error() string {
	s := fmt.Sprintf("read cache: %s: block %d: %s: %v; the block was dropped", d.id.Key, d.block, d.what,
		object.ErrDamaged)
	if d.cause != nil {
		s += ": " + d.cause.Error()
	}
	return s
}

// Unwrap lets errors.Is find object.ErrDamaged and the cause.
func (d *damageError) Unwrap() []error {
	if d.cause == nil {
		return []error{object.ErrDamaged}
	}
	return []error{object.ErrDamaged, d.cause}
}
