// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// originKey is the user value that says that a request has the header HeaderOriginModified. Only accounts of the role
// admin may send the headers of an origin, and the signature must cover them.
const originKey = "nebulaio-origin"

// maxETag is the largest length of the ETag of another server.
const maxETag = 128

// originOf returns the version of another server that a request adds a copy of, or nil if it is an ordinary request.
func originOf(ctx context.Context, bk *object.Bucket) (*object.Origin, error) {
	if ctx.Value(originKey) == nil {
		return nil, nil
	}
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return nil, s3err.GetAPIError(s3err.ErrAccessDenied) // the request did not come through the guard
	}
	root, _ := ctx.Value(string(utils.ContextKeyIsRoot)).(bool)
	account := accountOf(ctx, string(utils.ContextKeyAccount))
	if !root && account.Role != auth.RoleAdmin || anonymous(ctx) || !signsOrigin(&rctx.Request.Header) {
		return nil, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	if bk.OnUpstream() {
		return nil, notImplemented(object.HeaderOriginModified, "copies of versions in upstream buckets")
	}
	return parseOrigin(&rctx.Request.Header)
}

// signsOrigin reports whether the signature of a request covers its origin headers. Otherwise the holder of a presigned
// URL could choose them.
func signsOrigin(h *fasthttp.RequestHeader) bool {
	_, rest, ok := strings.Cut(string(h.Peek("Authorization")), "SignedHeaders=")
	if !ok {
		return false
	}
	list, _, _ := strings.Cut(rest, ",")
	signed := setOf(strings.Split(list, ";")...)
	for _, name := range [...]string{object.HeaderOriginModified, object.HeaderOriginETag, object.HeaderOriginVersion,
		object.HeaderOriginNewest} {
		if _, covered := signed[strings.ToLower(name)]; !covered && len(h.Peek(name)) > 0 {
			return false
		}
	}
	return true
}

func parseOrigin(h *fasthttp.RequestHeader) (*object.Origin, error) {
	text := string(h.Peek(object.HeaderOriginModified))
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() < 1970 || at.Year() > 9999 {
		return nil, invalid(object.HeaderOriginModified + " is " + quoteShort(text) +
			"; expected a time such as 2026-01-31T10:00:00.123Z")
	}
	etag := strings.Trim(string(h.Peek(object.HeaderOriginETag)), `"`)
	if len(etag) > maxETag || strings.ContainsFunc(etag, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
		return nil, invalid(object.HeaderOriginETag + " is " + quoteShort(etag) +
			"; expected up to 128 printable characters without quotes")
	}
	newest := string(h.Peek(object.HeaderOriginNewest))
	if len(newest) > maxVersion {
		return nil, invalid(object.HeaderOriginNewest + " is " + quoteShort(newest) +
			"; expected a version identifier of this server")
	}
	return &object.Origin{Modified: at, ETag: etag, Null: string(h.Peek(object.HeaderOriginVersion)) == object.NullVersion,
		Newest: newest}, nil
}

// quoteShort quotes the beginning of a text for a message.
func quoteShort(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return `"` + strings.ToValidUTF8(s, "?") + `"`
}
