// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/plain"
)

// Fault is an error reply of an S3 server.
type Fault struct {
	Status    int    // HTTP status
	Code      string // S3 error code such as "NoSuchKey"; derived from the status if the reply has none
	Message   string
	RequestID string
	Region    string // the region for which the server requires the signature; empty if the reply names none

	after     time.Duration // Retry-After
	location  string        // where the server redirects the client
	date      time.Time     // the server's clock
	header    http.Header   // of the reply; nil unless a Sender received it
	foreign   bool          // the reply is not from an S3 server
	anonymous bool          // the request was not signed, because the client has no keys
}

// Error returns the code, the message, the HTTP status and the request ID in one line.
func (f *Fault) Error() string {
	s := "the server says " + plain.Text(f.Code)
	if f.Message != "" {
		s += ": " + plain.Text(f.Message)
	}
	s += fmt.Sprintf(" (HTTP %d", f.Status)
	if f.RequestID != "" {
		s += ", request " + plain.Text(f.RequestID)
	}
	return s + ")"
}

// Is makes errors.Is match ENOSPC for a full server, and fs.ErrExist for a bucket that exists already. Missing and
// denied objects are matched by the kind of the error that wraps the Fault.
func (f *Fault) Is(target error) bool {
	switch f.Code {
	case "InsufficientStorage", "XMinioStorageFull":
		return target == syscall.ENOSPC
	case "BucketAlreadyExists", "BucketAlreadyOwnedByYou":
		return target == fs.ErrExist
	}
	return f.Status == http.StatusInsufficientStorage && target == syscall.ENOSPC
}

// CodeOf returns the S3 error code of a Fault in err, or "" for other errors.
func CodeOf(err error) string {
	var f *Fault
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}

// mostError limits how much of an error reply is read, and mostText how much of its text is kept.
const (
	mostError = 64 << 10
	mostText  = 1 << 10
)

func clip(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > mostText {
		s = s[:mostText] + "…"
	}
	return s
}

// parseFault parses the body of an error reply; it returns false if the body is not one of S3.
func parseFault(body []byte) (Fault, bool) {
	var x struct {
		XMLName   xml.Name `xml:"Error"`
		Code      string   `xml:"Code"`
		Message   string   `xml:"Message"`
		RequestID string   `xml:"RequestId"`
		Region    string   `xml:"Region"`
	}
	if len(body) > mostError || xml.Unmarshal(body, &x) != nil || x.Code == "" {
		return Fault{}, false
	}
	return Fault{Code: clip(x.Code), Message: clip(x.Message), RequestID: clip(x.RequestID), Region: clip(x.Region)}, true
}

// faultOf reads an error reply and closes its body.
func faultOf(r *http.Response) *Fault {
	defer r.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(r.Body, mostError))
	f, ok := parseFault(body)
	if !ok {
		f.Code = codeOfStatus(r.StatusCode)
		if t := r.Header.Get("Content-Type"); len(body) > 0 && (t == "" || strings.HasPrefix(t, "text/plain")) {
			f.Message = clip(string(bytes.ToValidUTF8(body, nil)))
		}
	}
	f.Status = r.StatusCode
	f.foreign = f.Code == "NotS3Address" || !ok && foreign(r)
	if id := r.Header.Get("x-amz-request-id"); id != "" {
		f.RequestID = clip(id)
	}
	if region := r.Header.Get("x-amz-bucket-region"); region != "" {
		f.Region = clip(region)
	}
	if s, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && s > 0 {
		f.after = time.Duration(min(s, 3600)) * time.Second
	}
	f.location = r.Header.Get("Location")
	f.date, _ = http.ParseTime(r.Header.Get("Date"))
	return &f
}

// foreign reports whether a reply comes from a web server that is no S3 server. An S3 server answers in XML, or
// without a type, and names the request.
func foreign(r *http.Response) bool {
	missing := r.StatusCode == http.StatusNotFound || r.StatusCode == http.StatusMethodNotAllowed
	return missing && strings.HasPrefix(r.Header.Get("Content-Type"), "text/") && r.Header.Get("x-amz-request-id") == ""
}

// foreignFix is the advice for an address that does not speak S3.
const foreignFix = "this address does not speak S3: check the endpoint; NebulaIO's S3 address is its address " +
	"(default port 9000), " +
	"its console_address (default port 9001) is not"

// codeOfStatus returns a code for replies without a body, such as those to HEAD.
func codeOfStatus(status int) string {
	switch status {
	case http.StatusNotFound:
		return "NotFound"
	case http.StatusForbidden, http.StatusUnauthorized:
		return "AccessDenied"
	case http.StatusPreconditionFailed:
		return "PreconditionFailed"
	case http.StatusRequestedRangeNotSatisfiable:
		return "InvalidRange"
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return "SlowDown"
	case http.StatusNotImplemented:
		return "NotImplemented"
	}
	if s := http.StatusText(status); s != "" {
		return strings.ReplaceAll(s, " ", "")
	}
	return "Status" + strconv.Itoa(status)
}

func (f *Fault) kind() errs.Kind {
	switch f.Code {
	case "BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch":
		return errs.Corrupt
	case "EntityTooLarge", "InvalidRange":
		return errs.Invalid
	}
	switch {
	case f.Status == http.StatusNotFound:
		return errs.NotFound
	case f.Status == http.StatusForbidden || f.Status == http.StatusUnauthorized:
		return errs.Permission
	case f.Status == http.StatusNotImplemented || f.Status == http.StatusMethodNotAllowed:
		return errs.Unsupported
	case f.transient() || f.Status >= 500:
		return errs.IO
	}
	return errs.Invalid
}

func (f *Fault) fix() string {
	if f.foreign {
		return foreignFix
	}
	switch f.Code {
	case "NoSuchBucket":
		return "check the bucket's name and the endpoint"
	case "NoSuchKey", "NotFound", "NoSuchVersion":
		return "check bucket and key; list what is there"
	case "InvalidAccessKeyId":
		return "check the access key, and that it is of this endpoint"
	case "SignatureDoesNotMatch":
		return "check the secret key"
	case "ExpiredToken", "InvalidToken":
		return "get new temporary credentials"
	case "RequestTimeTooSkewed":
		return "set this machine's clock"
	case "AccessDenied":
		if f.anonymous {
			return "no keys were given: set NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY, or AWS_ACCESS_KEY_ID and " +
				"AWS_SECRET_ACCESS_KEY"
		}
		return "give this access key the right, or use another one"
	case "BadRequest":
		if strings.Contains(f.Message, "HTTPS server") { // Go's servers say so, and ours
			return "the server speaks TLS on that port: use https://"
		}
	case "PreconditionFailed":
		return "the object is not in the state that was asked for: look at it again"
	case "SlowDown", "ServiceUnavailable":
		return "try again later, or with fewer connections"
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException":
		if f.Region != "" {
			return "use region " + plain.Text(f.Region)
		}
		return "use the bucket's own region and endpoint"
	case "XAmzContentSHA256Mismatch":
		return "use https, or let bodies be signed"
	case "NotImplemented", "MethodNotAllowed":
		return "this server cannot do it; check that the endpoint is one of S3"
	}
	return ""
}

// transient reports whether the same request may succeed a little later.
func (f *Fault) transient() bool {
	switch f.Code {
	case "SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "RequestTimeoutException", "Throttling",
		"ThrottlingException",
		"OperationAborted", "BadDigest", "IncompleteBody":
		return true
	}
	switch f.Status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return true
	}
	return false
}

// transient reports whether to retry after err. Replies that make no sense count, because a proxy may have cut them.
func transient(err error) bool {
	var f *Fault
	var src *sourceError
	var cert *tls.CertificateVerificationError
	var dns *net.DNSError
	switch {
	case errors.As(err, &src), errors.Is(err, context.Canceled), errors.As(err, &cert),
		errors.Is(err, http.ErrSchemeMismatch):
		return false
	case errors.As(err, &f):
		return f.transient()
	case errors.As(err, &dns):
		return !dns.IsNotFound
	}
	var own *errs.Error
	if errors.As(err, &own) {
		return own.Kind == errs.IO || own.Kind == errs.Corrupt
	}
	return true
}

// failure returns the error of a request that is not retried.
func failure(op, name string, err error) error {
	var f *Fault
	var src *sourceError
	var cert *tls.CertificateVerificationError
	var dns *net.DNSError
	var own *errs.Error
	switch {
	case errors.As(err, &src):
		return src.err
	case errors.As(err, &own):
		if own.Op == op && own.Name == name {
			return err
		}
		return errs.Wrap(op, name, err)
	case errors.As(err, &f):
		return &errs.Error{Kind: f.kind(), Op: op, Name: name, Err: err, Fix: f.fix()}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &errs.Error{Kind: errs.Cancelled, Op: op, Name: name, Err: err}
	case errors.As(err, &cert):
		return &errs.Error{Kind: errs.Permission, Op: op, Name: name, Err: err,
			Fix: "name the file with the server's certificate or its authority (--ca-file, ca_file), or use the host name " +
				"that the certificate has"}
	case errors.Is(err, http.ErrSchemeMismatch):
		return &errs.Error{Kind: errs.Invalid, Op: op, Name: name, Err: err,
			Fix: "the server does not speak TLS on that port: use http://"}
	case errors.As(err, &dns):
		return &errs.Error{Kind: errs.IO, Op: op, Name: name, Err: err, Fix: "check the endpoint's host name"}
	}
	return &errs.Error{Kind: errs.IO, Op: op, Name: name, Err: err,
		Fix: "check that the endpoint is right and its server runs"}
}
