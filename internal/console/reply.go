// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/plain"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// maxBody is the largest JSON body of a request, in bytes. A list of 1000 keys of 1024 bytes fits.
const maxBody = 2 << 20

// problem is the body of an error reply.
type problem struct {
	Error problemText `json:"error"`
}

type problemText struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// refuse replies with an error.
func refuse(w http.ResponseWriter, status int, code, message, fix string) {
	writeJSON(w, status, problem{problemText{code, plain.Text(message), plain.Text(fix)}})
}

// failed is an error with the status and the code of its reply.
type failed struct {
	status       int
	code, detail string
	fix          string
}

// Error returns the message of the reply.
func (f *failed) Error() string { return f.detail }

// invalid returns the error of a request that no server can answer.
func invalid(message, fix string) error {
	return &failed{http.StatusBadRequest, "InvalidRequest", message, fix}
}

// answer replies with a value or an error. A nil value means that the handler has replied, or that there is no content.
func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	switch v := v.(type) {
	case replied:
	case nil:
		w.WriteHeader(http.StatusNoContent)
	case made:
		writeJSON(w, http.StatusCreated, v.value)
	case begun:
		writeJSON(w, http.StatusAccepted, v.value)
	default:
		writeJSON(w, http.StatusOK, v)
	}
}

// Results of handlers that are no plain values.
type (
	replied struct{}            // the handler has replied itself
	made    struct{ value any } // something was created
	begun   struct{ value any } // something goes on in the background
)

func writeJSON(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		status = http.StatusInternalServerError
		b.Reset()
		b.WriteString(`{"error":{"code":"InternalError","message":"the reply cannot be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a client that disconnected needs no reply
}

// fail replies with an error of any kind.
func fail(w http.ResponseWriter, err error) {
	var own *failed
	var fault *s3.Fault
	switch {
	case errors.As(err, &own):
		refuse(w, own.status, own.code, own.detail, own.fix)
	case errors.As(err, &fault):
		text := fault.Message
		if text == "" {
			text = "the S3 front end answers " + fault.Code
		}
		status := fault.Status
		if status < 400 || status > 599 {
			status = http.StatusBadGateway
		}
		if status == http.StatusUnauthorized {
			status = http.StatusForbidden // 401 means that the session has ended
		}
		refuse(w, status, fault.Code, text, "")
	default:
		status, code := statusOf(err)
		refuse(w, status, code, errs.MessageOf(err), errs.FixOf(err))
	}
}

// statusOf returns the HTTP status and the code of an error.
func statusOf(err error) (int, string) {
	switch {
	case errors.Is(err, iam.ErrAccountExists):
		return http.StatusConflict, "AccountExists"
	case errors.Is(err, iam.ErrNoSuchAccount):
		return http.StatusNotFound, "NoSuchAccount"
	case errors.Is(err, object.ErrNoSuchBucket):
		return http.StatusNotFound, "NoSuchBucket"
	}
	switch errs.KindOf(err) {
	case errs.Invalid:
		return http.StatusBadRequest, "InvalidRequest"
	case errs.NotFound:
		return http.StatusNotFound, "NotFound"
	case errs.Permission:
		return http.StatusForbidden, "AccessDenied"
	case errs.Unsupported:
		return http.StatusNotImplemented, "NotSupported"
	case errs.Corrupt:
		return http.StatusUnprocessableEntity, "Damaged"
	case errs.Cancelled, errs.Closed:
		return http.StatusServiceUnavailable, "NotReady"
	}
	return http.StatusInternalServerError, "InternalError"
}

// decode reads the JSON body of a request into out. Unknown fields, a second value and other types are refused.
func (c *call) decode(out any) error { return decodeBody(c.w, c.r, out) }

func decodeBody(w http.ResponseWriter, r *http.Request, out any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &failed{http.StatusUnsupportedMediaType, "InvalidRequest", "the body has the type " +
			quoted(r.Header.Get("Content-Type")) + "; expected application/json", ""}
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(out)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("more than one value")
		}
	}
	var long *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &long):
		return &failed{http.StatusRequestEntityTooLarge, "InvalidRequest", "the body is longer than 2 MiB", ""}
	}
	return invalid("the body is no JSON of the expected form: "+strings.TrimPrefix(err.Error(), "json: "), "")
}

// quoted returns text that came from a client in quotes, at most 64 characters of it.
func quoted(s string) string {
	if r := []rune(s); len(r) > 64 {
		s = string(r[:64]) + "…"
	}
	return `"` + plain.Text(s) + `"`
}
