// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"errors"
	"syscall"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// WrapIO wraps err in an error with the operation op and the file name, or returns nil if err is nil. For a full or
// read-only disk the error also wraps object.ErrNoSpace or object.ErrReadOnly, so that callers can use errors.Is.
func WrapIO(op, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case IsNoSpace(err):
		return object.Fail(op, name, Both{object.ErrNoSpace, err}, "")
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return object.Fail(op, name, Both{object.ErrReadOnly, err}, "")
	}
	return errs.Wrap(op, name, err)
}

// A Both is an error that wraps a sentinel and the cause behind it.
type Both struct{ Sentinel, Cause error }

func (b Both) Error() string { return b.Sentinel.Error() + ": " + b.Cause.Error() }

func (b Both) Unwrap() []error { return []error{b.Sentinel, b.Cause} }

// IsNoSpace reports whether err means that the disk or a quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, object.ErrNoSpace)
}

// IsUnwritable reports whether err means that the file system accepts no changes: it is full, read-only, or denies
// permission.
func IsUnwritable(err error) bool {
	return IsNoSpace(err) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES) ||
		errors.Is(err, syscall.EPERM)
}
