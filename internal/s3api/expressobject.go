// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// get answers GetObject and HeadObject.
func (d *directories) get(a *asked) error {
	name := "GetObject"
	if a.rctx.IsHead() {
		name = "HeadObject"
	}
	a.rctx.SetUserValue(operationKey, name)
	if err := d.allowed(a, object.ActionGet); err != nil {
		return d.refuse(a.ctx, err)
	}
	mode := types.ChecksumMode(a.rctx.Request.Header.Peek("X-Amz-Checksum-Mode"))
	if mode != "" && mode != types.ChecksumModeEnabled {
		return d.refuse(a.ctx, s3err.GetInvalidChecksumHeaderErr("x-amz-checksum-mode"))
	}
	in := &s3.GetObjectInput{ChecksumMode: mode, Range: some(string(a.rctx.Request.Header.Peek("Range")))}
	if conditional(&a.rctx.Request.Header) {
		c := utils.ParsePreconditionHeaders(a.ctx)
		in.IfMatch, in.IfNoneMatch, in.IfModifiedSince, in.IfUnmodifiedSince = c.IfMatch, c.IfNoneMatch, c.IfModSince,
			c.IfUnmodeSince
	}
	ref := object.Ref{Bucket: a.bucket, Key: a.key}
	bk, err := d.s.backend.bucketOf(a.rctx, a.bucket)
	if err != nil {
		return d.refuse(a.ctx, err)
	}
	if a.rctx.IsHead() {
		return d.head(a, bk, ref, in)
	}
	out, err := readObject(a.rctx, d.s.backend, in, bk, ref)
	if err != nil {
		return d.refuse(a.ctx, err)
	}
	describeReply(a, out)
	a.rctx.Response.SetBodyStream(out.Body, int(*out.ContentLength))
	return nil
}

// conditional reports whether a request has a condition.
func conditional(h *fasthttp.RequestHeader) bool {
	return len(h.Peek("If-Match")) > 0 || len(h.Peek("If-None-Match")) > 0 || len(h.Peek("If-Modified-Since")) > 0 ||
		len(h.Peek("If-Unmodified-Since")) > 0
}

// head answers HeadObject.
func (d *directories) head(a *asked, bk *object.Bucket, ref object.Ref, in *s3.GetObjectInput) error {
	b := d.s.backend
	info, err := b.store.Stat(patient(a.rctx), ref)
	if err != nil {
		return d.refuse(a.ctx, b.s3Error("HeadObject", ref, err))
	}
	p, err := judgeRead(a.rctx, in, &info)
	if err != nil {
		return d.refuse(a.ctx, err)
	}
	out := b.describe(a.rctx, in, bk, ref, &info, &p)
	describeReply(a, out)
	a.rctx.Response.SkipBody = true
	a.rctx.Response.Header.SetContentLength(int(*out.ContentLength))
	return nil
}

// describeReply sets the headers of the reply to a read.
func describeReply(a *asked, out *s3.GetObjectOutput) {
	r := &a.rctx.Response
	h := &r.Header
	set := func(name string, v *string) {
		if v != nil && *v != "" {
			h.Set(name, *v)
		}
	}
	set("ETag", out.ETag)
	set("Accept-Ranges", out.AcceptRanges)
	if out.ContentRange != nil {
		h.Set("Content-Range", *out.ContentRange)
		r.SetStatusCode(http.StatusPartialContent)
	}
	set("Content-Type", out.ContentType)
	set("Content-Disposition", out.ContentDisposition)
	set("Content-Encoding", out.ContentEncoding)
	set("Content-Language", out.ContentLanguage)
	set("Cache-Control", out.CacheControl)
	set("Expires", out.ExpiresString)
	h.SetBytesV("Last-Modified", fasthttp.AppendHTTPDate(nil, *out.LastModified))
	h.Set("x-amz-storage-class", string(out.StorageClass))
	if len(out.Metadata) > 0 {
		utils.SetMetaHeaders(a.ctx, out.Metadata) // which keeps the case of names
	}
	if out.ChecksumType != "" {
		setSums(h, sums{CRC32: out.ChecksumCRC32, CRC32C: out.ChecksumCRC32C, CRC64NVME: out.ChecksumCRC64NVME,
			SHA1: out.ChecksumSHA1, SHA256: out.ChecksumSHA256, SHA512: out.ChecksumSHA512, MD5: out.ChecksumMD5,
			XXHASH64: out.ChecksumXXHASH64, XXHASH3: out.ChecksumXXHASH3, XXHASH128: out.ChecksumXXHASH128},
			out.ChecksumType)
	}
}

// sumHeaders are the names of the headers of checksums.
var sumHeaders = map[types.ChecksumAlgorithm]string{
	types.ChecksumAlgorithmCrc32: "x-amz-checksum-crc32", types.ChecksumAlgorithmCrc32c: "x-amz-checksum-crc32c",
	types.ChecksumAlgorithmCrc64nvme: "x-amz-checksum-crc64nvme", types.ChecksumAlgorithmSha1: "x-amz-checksum-sha1",
	types.ChecksumAlgorithmSha256: "x-amz-checksum-sha256", types.ChecksumAlgorithmSha512: "x-amz-checksum-sha512",
	types.ChecksumAlgorithmMd5: "x-amz-checksum-md5", types.ChecksumAlgorithmXxhash64: "x-amz-checksum-xxhash64",
	types.ChecksumAlgorithmXxhash3: "x-amz-checksum-xxhash3", types.ChecksumAlgorithmXxhash128: "x-amz-checksum-xxhash128",
}

// setSums sets the header of a checksum.
func setSums(h *fasthttp.ResponseHeader, s sums, kind types.ChecksumType) {
	algo, value := s.given()
	setSum(h, checksum{Algorithm: algo, Value: value, Type: kind})
}

// setSum sets the header of a checksum, if there is one.
func setSum(h *fasthttp.ResponseHeader, c checksum) {
	if c.Algorithm == "" || c.Value == "" {
		return
	}
	h.Set(sumHeaders[c.Algorithm], c.Value)
	h.Set("x-amz-checksum-type", string(c.Type))
}

// remove answers DeleteObject.
func (d *directories) remove(a *asked) error {
	a.rctx.SetUserValue(operationKey, "DeleteObject")
	if err := d.allowed(a, object.ActionDelete); err != nil {
		return d.refuse(a.ctx, err)
	}
	cond, err := removalCondition(&a.rctx.Request.Header)
	if err == nil && cond != (object.Condition{}) {
		err = d.allowed(a, object.ActionGet) // a condition reveals something about the object
	}
	if err != nil {
		return d.refuse(a.ctx, err)
	}
	del := object.Deletion{Ref: object.Ref{Bucket: a.bucket, Key: a.key}, Condition: cond}
	done, err := d.s.backend.store.Delete(patient(a.rctx), del)
	if _, err := d.s.backend.deleted(del, done, err); err != nil {
		return d.refuse(a.ctx, err)
	}
	return a.ctx.SendStatus(http.StatusNoContent)
}

// removalCondition returns the condition of a deletion.
func removalCondition(h *fasthttp.RequestHeader) (object.Condition, error) {
	c := object.Condition{IfMatch: unquoted(ptr(string(h.Peek("If-Match"))))}
	if text := string(h.Peek("X-Amz-If-Match-Size")); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return c, invalid("x-amz-if-match-size is " + strconv.QuoteToASCII(text) + "; expected a number of bytes.")
		}
		c.IfSize = &n
	}
	if text := string(h.Peek("X-Amz-If-Match-Last-Modified-Time")); text != "" {
		at, err := http.ParseTime(text)
		if err != nil {
			if at, err = time.Parse(time.RFC3339, text); err != nil {
				return c, invalid("x-amz-if-match-last-modified-time is " + strconv.QuoteToASCII(text) + "; expected a date.")
			}
		}
		c.IfModified = &at
	}
	return c, nil
}
