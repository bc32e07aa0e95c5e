// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// s3Error converts an error of the store to an S3 error. An error without a counterpart in S3 becomes an
// InternalError, and its text goes only to the log.
func (b *backend) s3Error(op string, ref object.Ref, err error) error {
	if err == nil {
		return nil
	}
	var known s3err.S3Error
	if errors.As(err, &known) {
		return known // an S3 error of our own reader or Finish, which the store returned
	}
	if r := (*object.Refusal)(nil); errors.As(err, &r) {
		b.log.Warn("another S3 server refused", "operation", op, "bucket", ref.Bucket, "key", ref.Key, "error", err)
		return refusal(r.Status, r.Code, r.Message)
	}
	if known := encryptionError(err, func(target error) bool { return errors.Is(err, target) }); known != nil {
		return known
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
	case errors.Is(err, object.ErrWriteOffset):
		return refusal(http.StatusBadRequest, "InvalidWriteOffset",
			"The write offset value that you specified does not match the current object size.")
	case errors.Is(err, object.ErrTokenUsed):
		return refusal(http.StatusBadRequest, "IdempotencyParameterMismatch",
			"Parameters on this idempotent request are inconsistent with parameters used in previous request(s).")
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
	case errors.Is(err, object.ErrQuota):
		return quotaExceeded(err)
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

// refusal returns an S3 error for which versitygw has no name.
func refusal(status int, code, text string) s3err.APIError {
	return s3err.APIError{Code: code, Description: text, HTTPStatusCode: status}
}

// damaged returns an error that names the damaged object and the position of the damage, so that a client does not
// mistake it for a temporary failure. The paths of the server's files appear only in the log.
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

// quotaExceeded returns the error of a write that a quota refuses. S3 has no quotas; Ceph has this code.
func quotaExceeded(err error) error {
	text := object.ErrQuota.Error()
	if e := (*errs.Error)(nil); errors.As(err, &e) && e.Msg != "" {
		text += ": " + e.Msg
	}
	return refusal(http.StatusForbidden, "QuotaExceeded", text+".")
}

// readOnly returns the error of a read-only store. It is not AccessDenied, because operators would look for a
// policy, and not a 5xx, because clients would retry for minutes.
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

// noSuchVersion returns the error for a version that does not exist, or for a text that cannot be a version.
// Version identifiers have 26 characters.
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
