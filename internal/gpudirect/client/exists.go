// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// existsError is the error of a write that must create a new object, if the object already exists.
type existsError struct{ error }

// Unwrap returns the wrapped error, so that errs.KindOf finds its kind.
func (e existsError) Unwrap() error { return e.error }

// Is reports whether target is fs.ErrExist.
func (e existsError) Is(target error) bool { return target == fs.ErrExist }

// orExists turns err into an existsError if a write with If-None-Match: * failed because the object exists. The door
// and HTTP have different codes for a failed condition.
func orExists(ifNoneMatch string, err error) error {
	if ifNoneMatch == "*" && (codeOf(err) == wire.CodePreconditionFailed || s3.CodeOf(err) == "PreconditionFailed") {
		return existsError{err}
	}
	return err
}

// conflictError is the error of a commit if the object was replaced or deleted after it was opened.
type conflictError struct{ error }

// Unwrap returns the wrapped error, so that errs.KindOf finds its kind.
func (e conflictError) Unwrap() error { return e.error }

// Is reports whether target is syscall.ESTALE.
func (e conflictError) Is(target error) bool { return target == syscall.ESTALE }

// orConflict turns err into a conflictError if the object that an edit began with is not the current one any more.
func (f *DraftFile) orConflict(err error) error {
	var c *CodeError
	if f.edit == nil || f.edit.sums == nil || !errors.As(err, &c) ||
		c.Code != wire.CodePreconditionFailed && c.Code != wire.CodeNoSuchKey {
		return err
	}
	cause := *c.err
	cause.Fix = "" // ours says more
	return conflictError{&errs.Error{Kind: errs.Invalid, Op: "commit", Name: f.Name(),
		Msg: "the object was replaced or deleted after it was opened, so the change was not published",
		Err: &CodeError{Code: c.Code, err: &cause},
		Fix: "open the object again and repeat the change, or replace the other's object on purpose"}}
}
