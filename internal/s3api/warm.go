// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// warmPath is the path at which clients ask the server to fetch an object of an upstream bucket to its disk.
const warmPath = "/.nebulaio/warm"

// Warm fetches an object of an upstream bucket in the background and returns a JSON document that tells how far the
// fetch is. If pin is not nil, the object is not evicted until that time; the zero time means for ever.
type Warm func(ctx context.Context, ref object.Ref, pin *time.Time) ([]byte, error)

// warmer answers requests to fetch objects.
type warmer struct{ *Server }

// asked reports whether a request asks to fetch an object.
func (s warmer) asked(rctx *fasthttp.RequestCtx) bool {
	return s.opts.Warm != nil && string(rctx.URI().PathOriginal()) == warmPath
}

// warm starts the fetch of an object, or tells how far it is. The account needs the right to read the object. Only
// administrators and the owner of the bucket may pin.
func (s warmer) warm(ctx fiber.Ctx) error {
	rctx := ctx.RequestCtx()
	rctx.SetUserValue(operationKey, "Warm")
	if !rctx.IsGet() {
		return answer(ctx, s3err.GetAPIError(s3err.ErrMethodNotAllowed))
	}
	if len(rctx.Request.Header.Peek("Authorization")) == 0 {
		return answer(ctx, s3err.GetAPIError(s3err.ErrAccessDenied))
	}
	if err := s.signature(ctx); err != nil {
		var known s3err.S3Error
		if !errors.As(err, &known) {
			known = s3err.GetAPIError(s3err.ErrInternalError)
		}
		return answer(ctx, known)
	}
	q := rctx.QueryArgs()
	ref := object.Ref{Bucket: string(q.Peek("bucket")), Key: string(q.Peek("key")), Version: string(q.Peek("version"))}
	account, _ := rctx.UserValue("account").(auth.Account)
	doc, err := s.warmed(patient(rctx), ref, account, string(q.Peek("pin")))
	if err != nil {
		var known s3err.S3Error
		if !errors.As(s.backend.s3Error("Warm", ref, err), &known) {
			known = s3err.GetAPIError(s3err.ErrInternalError)
		}
		return answer(ctx, known)
	}
	return sendJSON(ctx, doc)
}

// warmed checks the rights of an account and asks the store.
func (s warmer) warmed(ctx context.Context, ref object.Ref, account auth.Account, pin string) ([]byte, error) {
	access := object.Access{Account: signer(account), Action: object.ActionGet, Bucket: ref.Bucket, Key: ref.Key,
		Version: ref.Version}
	if ref.Version != "" {
		access.Action = object.ActionGetVersion
	}
	if err := s.authorizer.Authorize(ctx, access); err != nil {
		if errs.Is(err, errs.Permission) {
			return nil, s3err.GetAPIError(s3err.ErrAccessDenied)
		}
		return nil, err
	}
	end, err := s.pinEnd(ctx, ref.Bucket, account, pin)
	if err != nil {
		return nil, err
	}
	doc, err := s.opts.Warm(ctx, ref, end)
	if errs.Is(err, errs.Invalid) && !errors.Is(err, object.ErrIsMarker) {
		return nil, refusal(http.StatusBadRequest, "InvalidRequest", errs.MessageOf(err)+".")
	}
	return doc, err
}

// pinEnd returns the end of the pin that a request asks for: nil if it asks for none, and the zero time for "forever".
func (s warmer) pinEnd(ctx context.Context, bucket string, account auth.Account, pin string) (*time.Time, error) {
	if pin == "" {
		return nil, nil
	}
	bk, err := s.backend.store.Bucket(ctx, bucket)
	if err != nil {
		return nil, err
	}
	a, err := s.opts.Accounts.Get(signer(account))
	if err != nil || (a.Role != iam.RoleAdmin || a.SessionPolicy != "") && bk.Owner != a.User() {
		return nil, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	if pin == "forever" {
		return &time.Time{}, nil
	}
	during, err := time.ParseDuration(pin)
	if err != nil || during <= 0 {
		text, _ := json.Marshal(pin) // cannot fail: a string
		return nil, refusal(http.StatusBadRequest, "InvalidRequest", "pin is "+string(text)+
			"; expected forever or a time such as 24h.")
	}
	end := time.Now().Add(during)
	return &end, nil
}
