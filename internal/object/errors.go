// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// The Err variables are the errors of an object store, for comparison with errors.Is. Each store error has a kind, by
// which commands and language bindings classify it. A store wraps its errors in an errs.Error that names the bucket,
// the key and the wrong value.
var (
	ErrNoSuchBucket   error = sentinel{errs.NotFound, "no such bucket"}
	ErrNoSuchKey      error = sentinel{errs.NotFound, "no such key"}
	ErrNoSuchVersion  error = sentinel{errs.NotFound, "no such version"}
	ErrNoSuchUpload   error = sentinel{errs.NotFound, "no such upload"}
	ErrNoSuchRecord   error = sentinel{errs.NotFound, "no such record"}
	ErrBucketExists   error = sentinel{errs.Invalid, "the bucket exists already"}
	ErrBucketNotEmpty error = sentinel{errs.Invalid, "the bucket is not empty"}
	ErrPrecondition   error = sentinel{errs.Invalid, "the condition does not hold"}
	ErrIsMarker       error = sentinel{errs.Invalid, "the version is a delete marker"}
	ErrInvalidName    error = sentinel{errs.Invalid, "the name is empty, too long or no UTF-8"}
	ErrTooLarge       error = sentinel{errs.Invalid, "too large"}
	ErrInvalidPart    error = sentinel{errs.Invalid, "a part was not uploaded, or has another ETag"}
	ErrPartOrder      error = sentinel{errs.Invalid, "the parts are not in ascending order"}
	ErrPartTooSmall   error = sentinel{errs.Invalid, "a part other than the last is too small"}
	ErrInvalidRange   error = sentinel{errs.Invalid, "the range does not lie within the object"}
	ErrIncompleteBody error = sentinel{errs.Invalid, "the body has another length than was announced"}
	ErrDamaged        error = sentinel{errs.Corrupt, "the content is damaged"}
	ErrNoSpace        error = sentinel{errs.IO, "no space is left on the device"}
	ErrReadOnly       error = sentinel{errs.Permission, "the store cannot be written to"}
	ErrBusy           error = sentinel{errs.IO, "somebody else keeps the file for a moment"}
	ErrClosed         error = sentinel{errs.Closed, "the store is closed"}
	ErrWriterLeft     error = sentinel{errs.Invalid, "the file can still be written to"}
	ErrInvalidSums    error = sentinel{errs.Invalid, "the sums are not those of the content"}
	ErrChanged        error = sentinel{errs.IO, "the object was changed while it was read"}
	ErrWrongReply     error = sentinel{errs.Corrupt, "another S3 server sent wrong bytes"}
	ErrNotCached      error = sentinel{errs.Unsupported, "the object is not cached yet"}
	ErrWriteOffset    error = sentinel{errs.Invalid, "the offset is not the size of the object"}
	ErrQuota          error = sentinel{errs.Permission, "the quota is exceeded"}
	ErrTokenUsed      error = sentinel{errs.Invalid, "the token belongs to another request"}
)

type sentinel struct {
	kind errs.Kind
	text string
}

func (s sentinel) Error() string { return s.text }

// As lets errs.KindOf find the kind of an error of package object that no errs.Error wraps.
func (s sentinel) As(target any) bool {
	e, ok := target.(**errs.Error)
	if !ok {
		return false
	}
	*e = errs.New(s.kind, "", "", s.text)
	return true
}

// Fail returns an error that says that the operation op failed on name because of cause. The parameter cause is or
// wraps one of the Err variables of package object, and the result of Fail has the kind of cause. The parameter msg
// adds details to the error, such as the wrong value.
func Fail(op, name string, cause error, msg string) error {
	var kind errs.Kind
	var s sentinel
	if errors.As(cause, &s) {
		kind = s.kind
	}
	return &errs.Error{Kind: kind, Op: op, Name: name, Msg: msg, Err: cause}
}
