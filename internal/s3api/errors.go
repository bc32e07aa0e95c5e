// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// s3Error says in S3's words what the store refused. What has no word there is
// an InternalError, told to the log and not to the client.
func (b *backend) s3Error(op string, ref object.Ref, err error) error {
	if err == nil {
		return nil
	}
	var known s3err.S3Error
	if errors.As(err, &known) {
		return known // of a reader or a Finish of ours, on its way back through the store
	}
	switch {
	case errors.Is(err, object.ErrNoSuchBucket):
		return s3err.GetBucketErr(s3err.ErrNoSuchBucket, ref.Bucket)
	case errors.Is(err, object.ErrNoSuchKey):
		return s3err.GetAPIError(s3err.ErrNoSuchKey)
	case errors.Is(err, object.ErrNoSuchVersion):
		return noSuchVersion(ref)
	case errors.Is(err, object.ErrIsMarker):
		return s3err.GetAPIError(s3err.ErrMethodNotAllowed)
	case errors.Is(err, object.ErrPrecondition):
		return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatch)
	case errors.Is(err, object.ErrInvalidName) && ref.Key == "":
		return s3err.APIError{Code: "UserKeyMustBeSpecified", Description: "A key must be specified.",
			HTTPStatusCode: http.StatusBadRequest}
	case errors.Is(err, object.ErrInvalidName):
		return s3err.GetKeyTooLongErr(int64(len(ref.Key)), object.MaxKey)
	case errors.Is(err, object.ErrTooLarge):
		return s3err.GetAPIError(s3err.ErrEntityTooLarge)
	case errors.Is(err, object.ErrInvalidPart):
		return s3err.GetAPIError(s3err.ErrInvalidPart)
	case errors.Is(err, object.ErrPartOrder):
		return s3err.GetAPIError(s3err.ErrInvalidPartOrder)
	case errors.Is(err, object.ErrPartTooSmall):
		return s3err.GetAPIError(s3err.ErrEntityTooSmall)
	case errors.Is(err, object.ErrInvalidRange):
		return s3err.GetInvalidRangeErr("", 0)
	case errors.Is(err, object.ErrIncompleteBody):
		return s3err.GetAPIError(s3err.ErrContentLengthMismatch)
	case errors.Is(err, object.ErrNoSpace):
		b.log.Error("no space is left", "operation", op, "bucket", ref.Bucket, "key", ref.Key, "error", err)
		return s3err.GetAPIError(s3err.ErrNoSpaceLeftOnDevice)
	case errors.Is(err, object.ErrReadOnly):
		b.log.Error("the store cannot be written to", "operation", op, "bucket", ref.Bucket, "key", ref.Key, "error", err)
		return readOnly()
	case errors.Is(err, object.ErrBusy):
		b.log.Warn("another process holds a file of the store", "operation", op, "bucket", ref.Bucket, "key", ref.Key,
			"error", err)
		return s3err.GetAPIError(s3err.ErrSlowDown)
	case errors.Is(err, object.ErrClosed), errors.Is(err, context.Canceled):
		return unavailable()
	case errors.Is(err, object.ErrDamaged):
		b.log.Error("damaged content", "operation", op, "bucket", ref.Bucket, "key", ref.Key, "version", ref.Version, "error",
			err)
		return damaged(ref, err)
	}
	b.log.Error("the store failed", "operation", op, "bucket", ref.Bucket, "key", ref.Key, "version", ref.Version, "error",
		err)
	return s3err.GetAPIError(s3err.ErrInternalError)
}

// refusal is an error of S3 that versitygw has no name for.
func refusal(status int, code, text string) s3err.APIError {
	return s3err.APIError{Code: code, Description: text, HTTPStatusCode: status}
}

// damaged tells a client which object is damaged and where, so that nobody takes it for a passing failure of the
// server. The paths of the server's files stay in the log.
func damaged(ref object.Ref, err error) error {
	text := fmt.Sprintf("The content of %s/%s is damaged on the server's disk", ref.Bucket, ref.Key)
	var d interface {
		Where() (off, n int64, what string)
	}
	if errors.As(err, &d) {
		off, n, what := d.Where()
		text += fmt.Sprintf(" (%s: %d bytes at offset %d)", what, n, off)
	}
	return s3err.APIError{Code: "InternalError", Description: text + ".", HTTPStatusCode: http.StatusInternalServerError}
}

// readOnly is not AccessDenied, which would send the operator to look for a
// policy, and not a 5xx, which clients would repeat for minutes.
func readOnly() error {
	return s3err.APIError{
		Code: "MethodNotAllowed", Description: "The store is read-only at the moment.",
		HTTPStatusCode: http.StatusMethodNotAllowed,
	}
}

func unavailable() error {
	return s3err.APIError{
		Code: "ServiceUnavailable", Description: "The server is shutting down.",
		HTTPStatusCode: http.StatusServiceUnavailable,
	}
}

// noSuchVersion tells a version that does not exist from what cannot be one:
// identifiers have 26 characters.
func noSuchVersion(ref object.Ref) error {
	if !plausibleVersion(ref.Version) {
		return s3err.GetInvalidArgumentErr(s3err.InvalidArgVersionId, ref.Version)
	}
	return s3err.GetNoSuchVersionErr(ref.Key, ref.Version)
}

func plausibleVersion(v string) bool {
	if v == object.NullVersion {
		return true
	}
	if len(v) != 26 {
		return false
	}
	for i := range len(v) {
		if c := v[i]; !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z') {
			return false
		}
	}
	return true
}
