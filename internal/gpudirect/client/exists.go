// SPDX-License-Identifier: Apache-2.0

package client

import (
	"io/fs"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// existsError is the error of a write that was to make a new object and met one that is there.
type existsError struct{ error }

// Unwrap gives the error its kind.
func (e existsError) Unwrap() error { return e.error }

// Is lets errors.Is find fs.ErrExist.
func (e existsError) Is(target error) bool { return target == fs.ErrExist }

// orExists tells programs that a write with If-None-Match: * failed because the object exists. Both ways to the server
// have their own code for a condition that does not hold.
func orExists(ifNoneMatch string, err error) error {
	if ifNoneMatch == "*" && (codeOf(err) == wire.CodePreconditionFailed || s3.CodeOf(err) == "PreconditionFailed") {
		return existsError{err}
	}
	return err
}
