// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/plain"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// ErrChanged and ErrUnavailable are errors of an upstream, for comparison with errors.Is.
var (
	// ErrChanged means that the upstream no longer has the content that was asked for, or sent something else. No byte of
	// a wrong reply was returned.
	ErrChanged error = sentinel{"the upstream has another content now"}
	// ErrUnavailable means that the upstream gave no usable reply: refused, reset, silent past a deadline, or not asked
	// because the breaker is open. The text of the error says which.
	ErrUnavailable error = sentinel{"the upstream is not available"}
)

// Silent reports whether err means that the upstream was silent until a deadline had passed. Another attempt can take
// as long again.
func Silent(err error) bool {
	var s *silence
	return errors.As(err, &s)
}

// sentinel is an error of kind IO that errors.Is can compare.
type sentinel struct{ text string }

func (s sentinel) Error() string { return s.text }

// As lets errs.KindOf find the kind of the error.
func (s sentinel) As(target any) bool {
	e, ok := target.(**errs.Error)
	if ok {
		*e = errs.New(errs.IO, "", "", s.text)
	}
	return ok
}

// failed joins a sentinel, the refusal for clients and the cause into one error. The text has the cause alone.
type failed struct {
	sentinel error
	refusal  *object.Refusal
	cause    error
}

func (f *failed) Error() string { return f.sentinel.Error() + ": " + f.cause.Error() }

func (f *failed) Unwrap() []error { return []error{f.sentinel, f.refusal, f.cause} }

// unavailable returns an error that wraps ErrUnavailable and says what happened.
func unavailable(op, name string, cause error) error {
	return &errs.Error{Kind: errs.IO, Op: op, Name: name, Fix: "check that the upstream runs and can be reached from here",
		Err: &failed{sentinel: ErrUnavailable, cause: cause, refusal: &object.Refusal{Kind: errs.IO,
			Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable",
			Message: "The upstream is not available: " + plain.Text(cause.Error()) + "."}}}
}

// changed returns an error that wraps ErrChanged and says in which way the reply differs.
func changed(name, how string) error {
	return &errs.Error{Kind: errs.IO, Op: "get", Name: name, Fix: "read the object again",
		Err: &failed{sentinel: ErrChanged, cause: errors.New(how), refusal: &object.Refusal{Kind: errs.IO,
			Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable",
			Message: "The object changed on the upstream while it was read: " + plain.Text(how) + "."}}}
}

// nonsense returns the error for a reply that an S3 server does not send. It counts as unavailable, because nothing of
// the reply can be used.
func nonsense(op, name, what string) error {
	return unavailable(op, name, errors.New(what))
}

// cannot returns the error for a request that the upstream cannot do, or was not proven to do.
func cannot(op, name, what string) error {
	return &errs.Error{Kind: errs.Unsupported, Op: op, Name: name, Err: &object.Refusal{Kind: errs.Unsupported,
		Status: http.StatusNotImplemented, Code: "NotImplemented", Message: what}}
}

// subject is what a request is about, which decides the meaning of a bare status 404.
type subject int

const (
	ofObject subject = iota
	ofVersion
	ofBucket
	ofUpload
)

// refused translates the error reply of an upstream to the errors of package object.
func refused(op, name string, f *s3.Fault, of subject) error {
	if cause := known(f, of); cause != nil {
		return &errs.Error{Kind: errs.KindOf(cause), Op: op, Name: name, Msg: faultText(f), Err: cause}
	}
	switch f.Code {
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed",
		"AuthorizationHeaderMalformed", "TokenRefreshRequired":
		// The keys of this server are wrong, not those of its client, who must not take it for a mistake of its own.
		return &errs.Error{Kind: errs.Permission, Op: op, Name: name, Fix: "check the credentials of the upstream",
			Err: &object.Refusal{Kind: errs.Permission, Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable",
				Message: "The upstream refuses the credentials of this server (" + plain.Text(f.Code) + ")."}}
	}
	r := &object.Refusal{Kind: kindOf(f), Status: f.Status, Code: plain.Text(f.Code), Message: plain.Text(f.Message)}
	if r.Message == "" { // a reply to HEAD has no text
		r.Message = fmt.Sprintf("The upstream answers with HTTP %d %s.", f.Status, http.StatusText(f.Status))
	}
	if f.Status < 400 || f.Status > 599 {
		r.Status, r.Code = http.StatusBadGateway, "InternalError"
		r.Message = fmt.Sprintf("The upstream answers with HTTP %d.", f.Status)
	}
	return &errs.Error{Kind: r.Kind, Op: op, Name: name, Err: r}
}

func faultText(f *s3.Fault) string {
	if f.RequestID == "" {
		return ""
	}
	return "request " + plain.Text(f.RequestID) + " of the upstream"
}

// known returns the error of package object for the code of a refusal, or nil.
func known(f *s3.Fault, of subject) error {
	switch f.Code {
	case "NoSuchBucket":
		return object.ErrNoSuchBucket
	case "NoSuchKey":
		return object.ErrNoSuchKey
	case "NoSuchVersion":
		return object.ErrNoSuchVersion
	case "NoSuchUpload":
		return object.ErrNoSuchUpload
	case "PreconditionFailed":
		return object.ErrPrecondition
	case "InvalidRange":
		return object.ErrInvalidRange
	case "InvalidPart":
		return object.ErrInvalidPart
	case "InvalidPartOrder":
		return object.ErrPartOrder
	case "EntityTooSmall":
		return object.ErrPartTooSmall
	case "EntityTooLarge":
		return object.ErrTooLarge
	case "KeyTooLongError":
		return object.ErrInvalidName
	case "IncompleteBody":
		return object.ErrIncompleteBody
	}
	switch {
	case f.Status == http.StatusPreconditionFailed:
		return object.ErrPrecondition
	case f.Status != http.StatusNotFound:
		return nil
	case of == ofBucket:
		return object.ErrNoSuchBucket
	case of == ofUpload:
		return object.ErrNoSuchUpload
	case of == ofVersion:
		return object.ErrNoSuchVersion
	case f.Code == "NotFound":
		return object.ErrNoSuchKey
	}
	return nil
}

func kindOf(f *s3.Fault) errs.Kind {
	switch {
	case f.Status == http.StatusNotFound:
		return errs.NotFound
	case f.Status == http.StatusForbidden, f.Status == http.StatusUnauthorized:
		return errs.Permission
	case f.Status == http.StatusNotImplemented, f.Status == http.StatusMethodNotAllowed:
		return errs.Unsupported
	case f.Status >= 500, f.Status == http.StatusTooManyRequests:
		return errs.IO
	}
	return errs.Invalid
}

// cancelled returns the error of a call whose context has ended.
func cancelled(ctx context.Context, op, name string) error {
	return &errs.Error{Kind: errs.Cancelled, Op: op, Name: name, Err: context.Cause(ctx)}
}

// faultOf returns err if it is an error reply itself, or nil. An error that only wraps a reply says more than the
// reply.
func faultOf(err error) *s3.Fault {
	f, ok := err.(*s3.Fault) //nolint:errorlint // see above
	if !ok {
		return nil
	}
	return f
}
