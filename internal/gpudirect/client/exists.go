// SPDX-License-Identifier: Apache-2.0

package client

import (
	"io/fs"

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
