// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// mendKey is the user value that holds the function with which mendReply changes a reply.
const mendKey = "nebulaio-mend"

// mend registers a change of the reply's document, for replies of S3 that versitygw's types cannot express. Only
// successful replies are changed.
func mend(rctx *fasthttp.RequestCtx, change func([]byte) []byte) { rctx.SetUserValue(mendKey, change) }

func mendReply(rctx *fasthttp.RequestCtx) {
	change, ok := rctx.UserValue(mendKey).(func([]byte) []byte)
	if !ok || rctx.Response.StatusCode() != fasthttp.StatusOK || rctx.Response.IsBodyStream() {
		return
	}
	rctx.Response.SetBody(change(bytes.Clone(rctx.Response.Body())))
}

// countParts adds the number of all parts to the attributes of an object, which SDKs call TotalPartsCount.
func countParts(ctx context.Context, n int) {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return
	}
	open := []byte("<ObjectParts>") // occurs once, because names are escaped
	mend(rctx, func(body []byte) []byte {
		count := append(bytes.Clone(open), "<PartsCount>"+strconv.Itoa(n)+"</PartsCount>"...)
		return bytes.Replace(body, open, count, 1)
	})
}

// sortTags sorts the tags of a reply by key. versitygw takes them from a map, so that their order would differ
// between replies.
func sortTags(ctx context.Context) {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok || !rctx.IsGet() || !rctx.QueryArgs().Has("tagging") {
		return
	}
	mend(rctx, func(body []byte) []byte {
		var doc s3response.Tagging
		at := bytes.Index(body, []byte("<Tagging"))
		if at < 0 || xml.Unmarshal(body[at:], &doc) != nil {
			return body
		}
		slices.SortFunc(doc.TagSet.Tags, func(a, b s3response.Tag) int { return strings.Compare(a.Key, b.Key) })
		text, err := xml.Marshal(doc)
		if err != nil {
			return body
		}
		return append(body[:at], text...)
	})
}

// mendRefusal replaces versitygw's error for a malformed policy by ours, if versitygw did not notice the actual
// fault.
func (s *Server) mendRefusal(ctx fiber.Ctx) error {
	rctx := ctx.RequestCtx()
	err, ok := rctx.UserValue(errorKey).(error)
	if !ok {
		return nil
	}
	var known s3err.S3Error
	operation, _ := rctx.UserValue(operationKey).(string)
	if !errors.As(err, &known) || operation != "PutBucketPolicy" || known.BaseError().Code != "MalformedPolicy" {
		return nil
	}
	// versitygw does not notice this fault, which is the better reason.
	var fault policy.Overlooked
	text := ctx.BodyRaw()
	if written, ok := rctx.UserValue(writtenPolicyKey).([]byte); ok {
		text = written
	}
	if err := policy.Check(text, ctx.Params("bucket")); errors.As(err, &fault) {
		return answer(ctx, malformed(err))
	}
	return nil
}

// failure is an error of versitygw that is not an S3 error. operations panics with a failure and catch recovers it,
// because versitygw would print the error to standard error, between the lines of the log.
type failure struct{ error }

// fail replies with an InternalError to a request that failed with an error unknown to S3, and logs that error.
func (s *Server) fail(ctx fiber.Ctx, err error) error {
	return answer(ctx, known(s.opts.Log, ctx.RequestCtx(), err))
}

// known returns the S3 error of a failed request. It logs an error that is not one of S3.
func known(log *slog.Logger, rctx *fasthttp.RequestCtx, err error) s3err.S3Error {
	var s3 s3err.S3Error
	switch {
	case strings.HasPrefix(err.Error(), "accounts does not exist"):
		return invalidGrantee()
	case errors.As(err, &s3):
		return s3
	}
	operation, _ := rctx.UserValue(operationKey).(string)
	log.Error("the request failed", "operation", operation, "path", string(rctx.Path()), "error", err)
	return s3err.GetAPIError(s3err.ErrInternalError)
}

// catch replies to a request that failed in versitygw or whose handler panicked, and logs a panic with its stack.
// versitygw would print the panic without the stack, between the lines of a JSON log.
func (s *Server) catch(ctx fiber.Ctx, err *error) {
	v := recover()
	if v == nil {
		return
	}
	if f, ok := v.(failure); ok {
		*err = s.fail(ctx, f.error)
		return
	}
	logPanic(s.opts.Log, ctx.RequestCtx(), v)
	*err = answer(ctx, s3err.GetAPIError(s3err.ErrInternalError))
}

// logPanic logs the panic v of a request's handler.
func logPanic(log *slog.Logger, rctx *fasthttp.RequestCtx, v any) {
	log.Error("the request panicked", "method", string(rctx.Method()), "path", string(rctx.Path()),
		"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
}

// showPolicy puts the original text of a bucket's policy into a successful reply. versitygw has only the rewritten
// policy. showPolicy also corrects the status of a policy, because versitygw takes a denial to everybody for public
// access.
func (s *Server) showPolicy(ctx fiber.Ctx) {
	rctx := ctx.RequestCtx()
	op, _ := rctx.UserValue(operationKey).(string)
	if op != "GetBucketPolicy" && op != "GetBucketPolicyStatus" || rctx.Response.StatusCode() != fasthttp.StatusOK {
		return
	}
	bucket := ctx.Params("bucket")
	text, ok := s.backend.shownPolicy(rctx, bucket)
	switch {
	case !ok:
	case op == "GetBucketPolicy":
		rctx.Response.SetBody(bytes.Clone(text))
	default:
		is := fmt.Appendf(nil, "<IsPublic>%t</IsPublic>", policy.IsPublic(text, bucket))
		rctx.Response.SetBody(publicStatus.ReplaceAllLiteral(rctx.Response.Body(), is))
	}
}

// publicStatus finds the status of a policy in versitygw's reply.
var publicStatus = regexp.MustCompile(`<IsPublic>[^<]*</IsPublic>`)
