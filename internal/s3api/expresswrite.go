// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"encoding/hex"
	"io"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/express"
)

// writing is the request to write an object, or to append to it.
type writing struct {
	size  int64
	body  *body
	cond  object.Condition
	attrs map[string]string
}

// put answers PutObject and appends.
func (d *directories) put(a *asked) error {
	a.rctx.SetUserValue(operationKey, "PutObject")
	if err := d.allowed(a, object.ActionPut); err != nil {
		return d.refuse(a.ctx, err)
	}
	if d.s.opts.ReadOnly {
		return d.refuse(a.ctx, s3err.GetAPIError(s3err.ErrAccessDenied))
	}
	w, err := d.writing(a)
	if err != nil {
		return d.refuse(a.ctx, err)
	}
	if offset := a.rctx.Request.Header.Peek("X-Amz-Write-Offset-Bytes"); len(offset) > 0 {
		return d.append(a, w, string(offset))
	}
	ref := object.Ref{Bucket: a.bucket, Key: a.key}
	b := d.s.backend
	if w.cond != (object.Condition{}) && w.size > earlyCheck {
		if err := b.refuseEarly(a.rctx, ref, w.cond); err != nil {
			return d.refuse(a.ctx, err)
		}
	}
	etag, sum, err := w.keep(a.rctx, b.store, ref)
	if err != nil {
		return d.refuse(a.ctx, b.writeError("PutObject", ref, w.cond, err))
	}
	replyWrite(&a.rctx.Response.Header, etag, sum)
	return nil
}

// keep writes an object, and returns its ETag and its checksum.
func (w *writing) keep(rctx *fasthttp.RequestCtx, store object.Objects, ref object.Ref) (etag string, sum checksum,
	err error) {
	info, err := store.Put(patient(rctx), object.Put{
		Bucket: ref.Bucket, Key: ref.Key, Size: w.size, Body: w.body, Attributes: w.attrs, Condition: w.cond,
		SumAlgorithm: string(w.body.algo),
		Finish: func(got object.Written) (map[string]string, error) {
			var err error
			if sum, err = w.body.sum(got); err != nil {
				return nil, err
			}
			add := map[string]string{}
			sum.keep(add)
			return add, nil
		},
	})
	if err != nil {
		return "", sum, clientError(w.body.failure(err))
	}
	return info.ETag, sum, nil
}

// replyWrite writes the reply to a write of an object.
func replyWrite(h *fasthttp.ResponseHeader, etag string, sum checksum) {
	h.Set("ETag", quoted(etag))
	setSum(h, sum)
}

// clientError turns the refusal of a payload into an S3 error.
func clientError(err error) error {
	if r, ok := err.(*express.Refusal); ok {
		return refusal(r.Status, r.Code, r.Message)
	}
	return err
}

// writing reads the headers of a write.
func (d *directories) writing(a *asked) (*writing, error) {
	h := &a.rctx.Request.Header
	if err := checkKey(a.key); err != nil {
		return nil, err
	}
	seen := noticeHeaders(h)
	if err := checkLength(a.rctx, seen.decoded); err != nil {
		return nil, err
	}
	if seen.emptyMatch {
		return nil, s3err.GetPreconditionFailedErr(s3err.ConditionIfMatch)
	}
	w := &writing{size: int64(h.ContentLength())}
	if len(seen.decoded) > 0 {
		w.size, _ = strconv.ParseInt(string(seen.decoded), 10, 64) // checkLength has parsed it
	}
	metadata, err := utils.GetUserMetaData(h)
	if err != nil {
		return nil, err
	}
	described := headers{Type: peeked(h, "Content-Type"), Encoding: storedEncoding(peeked(h, "Content-Encoding")),
		Disposition: peeked(h, "Content-Disposition"), Language: peeked(h, "Content-Language"),
		Cache: peeked(h, "Cache-Control"), Expires: peeked(h, "Expires"), Metadata: metadata}
	if described.Type == nil {
		described.Type = ptr(defaultType)
	}
	if err := described.check(); err != nil {
		return nil, err
	}
	w.attrs = described.attributes()
	if w.cond, err = condition(peeked(h, "If-Match"), peeked(h, "If-None-Match")); err != nil {
		return nil, err
	}
	if w.cond.IfMatch != "" && w.cond.IfMatch != "*" {
		if err := d.allowed(a, object.ActionGet); err != nil {
			return nil, err
		}
	}
	algo, given, err := utils.ParseChecksumHeadersAndSdkAlgo(a.ctx)
	if err != nil {
		return nil, err
	}
	content, err := a.content()
	if err != nil {
		return nil, err
	}
	w.body, err = newBody(content, sumsOf(algo, given[algo]), algo)
	return w, err
}

// peeked returns the value of a header, or nil if it is empty. The value is a clone.
func peeked(h *fasthttp.RequestHeader, name string) *string { return some(string(h.Peek(name))) }

// content returns the content of a request, which compares itself with what the signature covers.
func (a *asked) content() (io.Reader, error) {
	r := bodyOf(a.ctx)
	var err error
	switch a.by.payload {
	case express.Unsigned:
	case express.UnsignedTrailer, express.SignedChunks, express.SignedTrailer:
		if r, err = a.chunks(r); err != nil {
			return nil, err
		}
	default:
		if raw, err := hex.DecodeString(a.by.payload); err != nil || len(raw) != 32 {
			return nil, s3err.GetInvalidArgumentErr(s3err.InvalidArgSHA256Payload, a.by.payload)
		}
		if r, err = utils.NewHashReader(r, a.by.payload, utils.HashTypeSha256Hex); err != nil {
			return nil, err
		}
	}
	if md5 := string(a.rctx.Request.Header.Peek("Content-Md5")); md5 != "" {
		sum, err := utils.NewHashReader(r, md5, utils.HashTypeContentMD5)
		if err != nil {
			return nil, s3err.GetInvalidDigestErr(md5)
		}
		return middlewares.NewChecksumReader(r, sum), nil
	}
	return r, nil
}

// bodyOf returns the body of a request.
func bodyOf(ctx fiber.Ctx) io.Reader {
	if r, ok := utils.ContextKeyBodyReader.Get(ctx).(io.Reader); ok {
		return r
	}
	if r := ctx.Request().BodyStream(); r != nil {
		return r
	}
	return bytes.NewReader(nil)
}

// chunks returns the content of a payload in chunks. If a checksum follows the content, the reader compares it.
func (a *asked) chunks(r io.Reader) (io.Reader, error) {
	if a.by.signature.Presigned {
		return nil, notImplemented("X-Amz-Content-Sha256", "chunks with a presigned URL")
	}
	trailer := strings.ToLower(string(a.rctx.Request.Header.Peek("X-Amz-Trailer")))
	if trailer != "" && !namesChecksum(trailer) {
		return nil, s3err.GetAPIError(s3err.ErrTrailerHeaderNotSupported)
	}
	if (a.by.payload == express.SignedTrailer) != (trailer != "") && a.by.payload != express.UnsignedTrailer {
		return nil, s3err.GetAPIError(s3err.ErrTrailerHeaderNotSupported)
	}
	c := express.NewChunks(r, a.by.payload, trailer, a.by.signature, a.by.key)
	if trailer == "" {
		return refusing{c}, nil
	}
	algo := strings.TrimPrefix(trailer, "x-amz-checksum-")
	sum, err := utils.NewHashReader(refusing{c}, "", utils.HashType(algo))
	if err != nil {
		return nil, s3err.GetAPIError(s3err.ErrTrailerHeaderNotSupported)
	}
	return &trailed{sum: sum, chunks: c, algo: types.ChecksumAlgorithm(strings.ToUpper(algo))}, nil
}

// refusing turns the refusals of a payload into S3 errors.
type refusing struct{ r io.Reader }

func (r refusing) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	return n, clientError(err)
}

// trailed is content whose checksum follows it.
type trailed struct {
	sum    *utils.HashReader
	chunks *express.Chunks
	algo   types.ChecksumAlgorithm
}

var _ middlewares.ChecksumReader = (*trailed)(nil)

// Read implements io.Reader.
func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.sum.Read(p)
	if err == io.EOF && t.sum.Sum() != t.chunks.Trailer() {
		return 0, s3err.GetChecksumBadDigestErr(t.algo)
	}
	return n, err
}

// Algorithm returns the algorithm of the checksum that follows the content.
func (t *trailed) Algorithm() string { return string(t.algo) }

// Checksum returns the checksum that followed the content, after Read has returned io.EOF.
func (t *trailed) Checksum() string { return t.chunks.Trailer() }

// decode replaces the body of a request in signed chunks by its content, for versitygw.
func (a *asked) decode(form string) error {
	a.by.payload = form
	r, err := a.chunks(bodyOf(a.ctx))
	if err != nil {
		return err
	}
	utils.ContextKeyBodyReader.Set(a.ctx, r)
	h := &a.rctx.Request.Header
	h.Set("X-Amz-Content-Sha256", express.Unsigned)
	h.Del("X-Amz-Trailer")
	return nil
}

// append answers PutObject with a write offset.
func (d *directories) append(a *asked, w *writing, text string) error {
	offset, err := strconv.ParseInt(text, 10, 64)
	if err != nil || offset < 0 {
		return d.refuse(a.ctx, invalid("x-amz-write-offset-bytes is "+strconv.QuoteToASCII(
			text)+"; expected a number of bytes."))
	}
	var added checksum
	info, err := d.store.Append(patient(a.rctx), object.Append{
		Bucket: a.bucket, Key: a.key, Offset: offset, Size: w.size, Body: w.body, Condition: w.cond,
		Finish: func(got object.Written) (err error) {
			added, err = w.body.sum(got)
			return err
		},
		Extend: func(before *object.Info, got object.Written) (map[string]string, error) {
			return extended(before, w.attrs, added, got.Size), nil
		},
	})
	ref := object.Ref{Bucket: a.bucket, Key: a.key}
	if err != nil {
		return d.refuse(a.ctx, d.s.backend.writeError("PutObject", ref, w.cond, clientError(w.body.failure(err))))
	}
	h := &a.rctx.Response.Header
	h.Set("ETag", quoted(info.ETag))
	h.Set("x-amz-object-size", strconv.FormatInt(info.Size, 10))
	setSum(h, full(&info))
	return nil
}
