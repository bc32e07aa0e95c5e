// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// wrapIO says that op failed on name, with the sentinel that a caller can act on.
func wrapIO(op, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case noSpace(err):
		return object.Fail(op, name, bothErrors{object.ErrNoSpace, err}, "")
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return object.Fail(op, name, bothErrors{object.ErrReadOnly, err}, "")
	}
	return errs.Wrap(op, name, err)
}

// metaKind is the kind of an error of Pebble: what is neither cancelled nor an error of the system is damage. A file that
// is missing is damage too.
func metaKind(err error) errs.Kind {
	var no syscall.Errno
	switch k := errs.KindOf(err); {
	case k == errs.Cancelled, k == errs.Permission, k == errs.NoMemory:
		return k
	case errors.Is(err, pebble.ErrCorruption), errors.Is(err, fs.ErrNotExist):
		return errs.Corrupt
	case errors.As(err, &no), noSpace(err), errors.Is(err, fs.ErrClosed):
		return k
	}
	return errs.Corrupt
}

// metaErr is the error of a read of the metadata. Damage is named as what it is: Pebble's text has the file and the place.
func metaErr(name string, err error) error {
	if err == nil || errors.As(err, new(*errs.Error)) {
		return err
	}
	e := &errs.Error{Kind: metaKind(err), Op: "read metadata", Name: name, Err: err}
	if e.Kind == errs.Corrupt {
		e.Msg, e.Fix = "a file of the metadata is damaged", "stop the server; "+metaFix
	}
	return e
}

// openFix is the remedy where the metadata cannot be opened. A full or failing disk is no damage.
// checked says that check has looked at the metadata already.
func openFix(err error, checked bool) string {
	switch {
	case noSpace(err):
		return "make room on the disk of the store; nothing was deleted"
	case metaKind(err) != errs.Corrupt:
		return "look at the disk and at the permissions of the store; nothing was deleted"
	}
	if checked {
		return saveFix + "; nothing was deleted"
	}
	return metaFix + "; nothing was deleted"
}

// lockTaken tells a lock that somebody holds from a file that cannot be opened.
func lockTaken(err error) bool {
	var path *fs.PathError
	return !errors.As(err, &path) && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "lock held"))
}

// bothErrors is a sentinel and what it came from.
type bothErrors struct{ sentinel, cause error }

func (b bothErrors) Error() string   { return b.sentinel.Error() + ": " + b.cause.Error() }
func (b bothErrors) Unwrap() []error { return []error{b.sentinel, b.cause} }

// unsure is the error of a change whose outcome is known only after the store
// was opened again: its files must neither be removed nor settled.
type unsure struct{ error }

func (u unsure) Unwrap() error { return u.error }

func isUnsure(err error) bool {
	var u unsure
	return errors.As(err, &u)
}

func noBucket(op, name string) error { return object.Fail(op, name, object.ErrNoSuchBucket, "") }

func noKey(op, key, msg string) error { return object.Fail(op, key, object.ErrNoSuchKey, msg) }

func checkKey(op, key string) error {
	if n := len(key); n < 1 || n > object.MaxKey {
		return object.Fail(op, key, object.ErrInvalidName, fmt.Sprintf("a key of %d bytes, expected 1 to %d", n, object.MaxKey))
	}
	return nil
}

func checkAttributes(op, key string, as map[string]string) error {
	n := 0
	for k, v := range as {
		n += len(k) + len(v)
	}
	if n > object.MaxAttributes {
		return object.Fail(op, key, object.ErrTooLarge, fmt.Sprintf("attributes of %d bytes, expected at most %d", n, object.MaxAttributes))
	}
	return nil
}
