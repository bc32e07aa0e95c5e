// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// emptySHA256 is the SHA-256 of no bytes, which a signed GET has as the hash of its body.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// get serves a GET or HEAD of an object, or of a range of it, without versitygw's router and middlewares. The method
// get returns false, and has changed nothing, if it cannot prove by itself that versitygw would admit the request; the
// rules are those of put. Here too, versitygw makes every refusal of a signature or of a permission. Objects of other
// servers are read on the fast path too. If objects have ACLs, only root reads them on the fast path, because each one
// has rules of its own.
func (f fastPath) get(ctx fiber.Ctx) (served bool, err error) {
	s := f.s
	rctx := ctx.RequestCtx()
	if rctx.UserValue(originalPath) != nil {
		return false, nil
	}
	path := rctx.URI().PathOriginal()
	bucket, key, ok := plainPath(path)
	if !ok {
		return false, nil
	}
	var h plainHeader
	if !h.readGet(&rctx.Request.Header) {
		return false, nil
	}
	c := claim{service: "s3", method: "GET", operation: "GetObject"}
	if rctx.IsHead() {
		c.method, c.operation = "HEAD", "HeadObject"
	}
	if !c.read(rctx.QueryArgs(), &h) || c.payload != unsignedPayload && c.payload != emptySHA256 {
		return false, nil
	}
	in := s3.GetObjectInput{Bucket: &bucket, Key: &key, VersionId: ptr(""), Range: ptr(string(h.value(headerRange)))}
	if h.has(1 << headerMode) {
		if in.ChecksumMode = types.ChecksumMode(h.value(headerMode)); in.ChecksumMode != types.ChecksumModeEnabled {
			return false, nil
		}
	}
	account, ok := s.verifier.account(&c, &h, path)
	if !ok || !f.mayGet(rctx, account, bucket) {
		return false, nil
	}
	if h.has(1<<headerMatch | 1<<headerNoMatch) {
		conditions := utils.ParsePreconditionHeaders(ctx)
		in.IfMatch, in.IfNoneMatch = conditions.IfMatch, conditions.IfNoneMatch
	}
	utils.EnsureRequestIDs(ctx)
	rctx.SetUserValue(operationKey, c.operation)
	rctx.SetUserValue(string(utils.ContextKeyAccount), toAuth(account))
	rctx.SetUserValue(string(utils.ContextKeyIsRoot), account.AccessKey == s.opts.Accounts.Root().AccessKey)
	var out *s3.GetObjectOutput
	if rctx.IsHead() {
		out, err = statObject(rctx, s.backend, &in)
	} else {
		out, err = s.backend.GetObject(rctx, &in)
	}
	if err != nil {
		if out != nil { // the object is a delete marker
			rctx.Response.Header.DisableNormalizing()
			rctx.Response.Header.Set("x-amz-delete-marker", "true")
			rctx.Response.Header.Set("Last-Modified", out.LastModified.UTC().Format(http.TimeFormat))
			rctx.Response.Header.EnableNormalizing()
		}
		rctx.SetUserValue(errorKey, err)
		return true, s.fail(ctx, err)
	}
	replyGet(ctx, out)
	return true, nil
}

// mayGet reports whether the rules of a bucket certainly let an account read all keys.
func (f fastPath) mayGet(rctx *fasthttp.RequestCtx, account iam.Account, bucket string) bool {
	settings, err := f.s.authorizer.settingsOf(patient(rctx), "authorize", bucket)
	if err != nil || !settings.plain {
		return false
	}
	root := account.AccessKey == f.s.opts.Accounts.Root().AccessKey
	return (root || !objectsHaveACLs(settings.of)) && f.may(rctx, settings, account, object.ActionGet)
}

// replyGet writes the reply of a GET or HEAD, with the names of headers as versitygw writes them.
func replyGet(ctx fiber.Ctx, out *s3.GetObjectOutput) {
	r := ctx.RequestCtx()
	if len(out.Metadata) > 0 {
		utils.SetMetaHeaders(ctx, out.Metadata)
	}
	h := &r.Response.Header
	h.DisableNormalizing()
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	text := func(name string, value *string) {
		if value != nil {
			set(name, *value)
		}
	}
	at := func(name string, t *time.Time, layout string) {
		if t != nil && !t.IsZero() {
			set(name, t.UTC().Format(layout))
		}
	}
	count := func(name string, n *int32) {
		if n != nil {
			set(name, strconv.Itoa(int(*n)))
		}
	}
	text("ETag", out.ETag)
	text("accept-ranges", out.AcceptRanges)
	text("Content-Range", out.ContentRange)
	text("Content-Disposition", out.ContentDisposition)
	text("Content-Encoding", out.ContentEncoding)
	text("Content-Language", out.ContentLanguage)
	text("Cache-Control", out.CacheControl)
	text("Expires", out.ExpiresString)
	text("Content-Type", out.ContentType)
	text("x-amz-website-redirect-location", out.WebsiteRedirectLocation)
	text("x-amz-version-id", out.VersionId)
	at("Last-Modified", out.LastModified, http.TimeFormat)
	set("x-amz-storage-class", string(out.StorageClass))
	count("x-amz-tagging-count", out.TagCount)
	set("x-amz-object-lock-mode", string(out.ObjectLockMode))
	set("x-amz-object-lock-legal-hold", string(out.ObjectLockLegalHoldStatus))
	at("x-amz-object-lock-retain-until-date", out.ObjectLockRetainUntilDate, time.RFC3339)
	if out.ChecksumType != "" {
		set("x-amz-checksum-type", string(out.ChecksumType))
		text("x-amz-checksum-crc32", out.ChecksumCRC32)
		text("x-amz-checksum-crc32c", out.ChecksumCRC32C)
		text("x-amz-checksum-crc64nvme", out.ChecksumCRC64NVME)
		text("x-amz-checksum-sha1", out.ChecksumSHA1)
		text("x-amz-checksum-sha256", out.ChecksumSHA256)
		text("x-amz-checksum-sha512", out.ChecksumSHA512)
		text("x-amz-checksum-md5", out.ChecksumMD5)
		text("x-amz-checksum-xxhash64", out.ChecksumXXHASH64)
		text("x-amz-checksum-xxhash3", out.ChecksumXXHASH3)
		text("x-amz-checksum-xxhash128", out.ChecksumXXHASH128)
	}
	if out.ContentRange != nil && *out.ContentRange != "" {
		r.SetStatusCode(http.StatusPartialContent)
	}
	if out.Body != nil {
		r.SetBodyStream(out.Body, int(*out.ContentLength))
		return
	}
	h.SetContentLength(int(*out.ContentLength)) // that of the GET, as HTTP requires for a HEAD
}
