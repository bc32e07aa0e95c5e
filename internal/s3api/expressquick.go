// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"encoding/base64"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/express"
)

// quickPath serves requests for directory buckets before the router.
type quickPath struct{ d *directories }

// put answers the PUT of a small object by a session without the router and versitygw's middlewares, which take a
// tenth of the CPU time of such a request. The method put returns false, and has read and changed nothing, if it
// cannot prove by itself that serve would accept the request. So serve makes every refusal, except for one that depends
// on the content or on the store.
//
// The method put takes a request only if all of the following hold:
//   - The path needs no escapes, and has no element that the router treats specially.
//   - Each header is one of plainNames and occurs once. There is no argument but the name of the operation.
//   - The session allows writes to this bucket, and its account still has the same secret.
//   - The signature of the session is correct, and covers every header that has to be signed.
//   - The server is not read-only, and has no more requests than its limit.
func (q quickPath) put(rctx *fasthttp.RequestCtx) (done bool) {
	d := q.d
	if d == nil || !rctx.IsPut() {
		return false
	}
	defer func() {
		if v := recover(); v != nil {
			logPanic(d.s.opts.Log, rctx, v)
			answerPlain(rctx, s3err.GetAPIError(s3err.ErrInternalError))
			done = true
		}
	}()
	n := rctx.Request.Header.ContentLength()
	if n < 0 || n > mostFast || d.s.opts.ReadOnly || d.s.crowd.full() {
		return false
	}
	bucket, key, ok := plainPath(rctx.URI().PathOriginal())
	if !ok || !object.IsDirectory(bucket) || checkKey(key) != nil {
		return false
	}
	var h plainHeader
	c := claim{service: express.Service, method: "PUT", operation: "PutObject"}
	if !h.read(&rctx.Request.Header) || !h.has(1<<headerToken) || !h.has(1<<headerAuthorization) ||
		!c.read(rctx.QueryArgs(), &h) || !q.signed(rctx, &c, &h, bucket) {
		return false
	}
	w, ok := plainWriting(rctx, &c, &h)
	if !ok {
		return false
	}
	w.size = int64(n)
	rctx.SetUserValue(operationKey, "PutObject")
	ref := object.Ref{Bucket: bucket, Key: key}
	etag, sum, err := w.keep(rctx, d.s.opts.Store, ref)
	if err != nil {
		answerPlain(rctx, known(d.s.opts.Log, rctx, d.s.backend.writeError("PutObject", ref, w.cond, err)))
		return true
	}
	identify(&rctx.Response.Header)
	replyWrite(&rctx.Response.Header, etag, sum)
	return true
}

// signed reports whether a session that may write to the bucket has signed a request.
func (q quickPath) signed(rctx *fasthttp.RequestCtx, c *claim, h *plainHeader, bucket string) bool {
	d := q.d
	if c.region != d.s.opts.Region ||
		!bytes.Equal(rctx.Request.Header.Peek("Content-Length"), h.value(headerContentLength)) { // a length such as "05"
		return false
	}
	session, err := d.sessions.Find(string(h.value(headerToken)))
	if err != nil || session.Access != c.access || session.Bucket != bucket || session.Mode != express.ReadWrite {
		return false
	}
	account, err := d.s.opts.Accounts.Get(session.Account)
	if err != nil || !session.Proves(d.sessions, account.Secret) {
		return false
	}
	bk, err := d.s.opts.Store.Bucket(patient(rctx), bucket)
	if err != nil || !begunFor(session, bk) {
		return false
	}
	path := rctx.URI().PathOriginal()
	if original, ok := rctx.UserValue(originalPath).(string); ok {
		path = []byte(original) // the host names the bucket
	}
	if !c.madeBy(session.Key(c.day, c.region, c.service), h, path) {
		return false
	}
	rctx.SetUserValue(accountKey, account.AccessKey)
	return true
}

// plainWriting returns what a request writes. It returns false if serve would refuse a header.
func plainWriting(rctx *fasthttp.RequestCtx, c *claim, h *plainHeader) (*writing, bool) {
	kind := string(h.value(headerContentType))
	if kind == "" {
		kind = defaultType
	}
	if !printable(kind) {
		return nil, false
	}
	algo, value, ok := h.checksum()
	if !ok {
		return nil, false
	}
	content := io.Reader(bytes.NewReader(nil))
	if r := rctx.Request.BodyStream(); r != nil {
		content = r
	}
	if c.payload != unsignedPayload {
		hashed, err := utils.NewHashReader(content, c.payload, utils.HashTypeSha256Hex)
		if err != nil {
			return nil, false
		}
		content = hashed
	}
	b, err := newBody(content, sumsOf(algo, value), algo)
	if err != nil {
		return nil, false
	}
	return &writing{body: b, attrs: map[string]string{attrType: kind}}, true
}

// plainSums are the algorithms of the checksum headers in plainNames from headerFirstSum on, with the sizes in bytes of
// their checksums.
var plainSums = [...]struct {
	algo types.ChecksumAlgorithm
	size int
}{
	{types.ChecksumAlgorithmCrc32, 4}, {types.ChecksumAlgorithmCrc32c, 4}, {types.ChecksumAlgorithmCrc64nvme, 8},
	{types.ChecksumAlgorithmSha1, 20}, {types.ChecksumAlgorithmSha256, 32},
}

// checksum returns the checksum of the content that a request has in its header; "" if there is none. It returns false
// if the checksum may be malformed, if there are two, or if the request names an algorithm without a checksum.
func (h *plainHeader) checksum() (algo types.ChecksumAlgorithm, value string, ok bool) {
	if !h.has(headerChecksums) {
		return "", "", true
	}
	for i, s := range plainSums {
		if !h.has(1 << (headerFirstSum + i)) {
			continue
		}
		text := string(h.value(headerFirstSum + i))
		raw, err := base64.StdEncoding.DecodeString(text)
		if algo != "" || err != nil || len(raw) != s.size {
			return "", "", false
		}
		algo, value = s.algo, text
	}
	named := h.value(headerSumAlgorithm)
	return algo, value, algo != "" && (len(named) == 0 || strings.EqualFold(string(named), string(algo)))
}

// identify adds the identifiers of a request to its reply. They are random, so that they differ; nobody has to guess
// them.
func identify(h *fasthttp.ResponseHeader) (requestID, hostID string) {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
	var id [16]byte
	a, b := rand.Uint64(), rand.Uint64()
	for i := range 8 {
		id[i], id[8+i] = letters[a>>(5*i)&31], letters[b>>(5*i)&31]
	}
	var host [24]byte
	for i := range 12 {
		host[i], host[12+i] = byte(a>>(5*i)), byte(b>>(5*i))
	}
	requestID, hostID = string(id[:]), base64.StdEncoding.EncodeToString(host[:])
	h.Set(requestIDHeader, requestID)
	h.Set("X-Amz-Id-2", hostID)
	return requestID, hostID
}

// answerPlain replies with an S3 error to a request that has not passed the router. It reads the rest of the body, so
// that the connection can be used again.
func answerPlain(rctx *fasthttp.RequestCtx, err s3err.S3Error) {
	rctx.SetUserValue(errorKey, err)
	requestID, hostID := identify(&rctx.Response.Header)
	rctx.SetStatusCode(err.StatusCode())
	rctx.SetContentType(fiber.MIMEApplicationXML)
	rctx.SetBody(err.XMLBody(requestID, hostID))
	if r := rctx.Request.BodyStream(); r != nil {
		if _, err := io.Copy(io.Discard, r); err != nil {
			rctx.SetConnectionClose()
		}
	}
}
