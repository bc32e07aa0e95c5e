// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3response"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// mostFast is the largest length in bytes of a body on the fast path. For larger bodies the router's share of the work
// is small.
const mostFast = 1 << 20

// fastPath serves requests without versitygw.
type fastPath struct{ s *Server }

// put serves a PUT of a small object without versitygw's router and middlewares, which take a third of the CPU
// time of such a request. The method put returns false, and has read and changed nothing, if it cannot prove by itself
// that versitygw would accept the request. So versitygw makes every refusal.
//
// The fast path takes a request only if all of the following hold:
//   - The path needs no escapes, and has no element that the router treats specially.
//   - Each header is one of plainNames and occurs once. All arguments belong to the signature.
//   - The signature of version 4 is correct, and covers every header that versitygw requires.
//   - The bucket is on this server's disk and has no object lock, and its rules are the same for all keys and clients.
//   - The rules let the account write.
func (f fastPath) put(ctx fiber.Ctx) (served bool, err error) {
	s := f.s
	rctx := ctx.RequestCtx()
	n := rctx.Request.Header.ContentLength()
	if s.opts.ReadOnly || n < 0 || n > mostFast || rctx.UserValue(originalPath) != nil {
		return false, nil
	}
	path := rctx.URI().PathOriginal()
	bucket, key, ok := plainPath(path)
	if !ok {
		return false, nil
	}
	var h plainHeader
	if !h.read(&rctx.Request.Header) || h.has(1<<headerToken) {
		return false, nil
	}
	c := claim{service: "s3", method: "PUT", operation: "PutObject"}
	if !c.read(rctx.QueryArgs(), &h) {
		return false, nil
	}
	account, ok := s.verifier.account(&c, &h, path)
	if !ok || !f.mayPut(rctx, account, bucket) {
		return false, nil
	}
	in, ok := putInput(ctx, &c, &h)
	if !ok {
		return false, nil
	}
	size := int64(n)
	in.Bucket, in.Key, in.ContentLength = &bucket, &key, &size
	rctx.SetUserValue(operationKey, "PutObject")
	rctx.SetUserValue(string(utils.ContextKeyAccount), toAuth(account))
	out, err := s.backend.PutObject(rctx, in)
	if err != nil {
		rctx.SetUserValue(errorKey, err)
		return true, s.fail(ctx, err)
	}
	replyPut(&rctx.Response.Header, &out)
	return true, nil
}

// mayPut reports whether the rules of a bucket certainly let an account write all keys.
func (f fastPath) mayPut(rctx *fasthttp.RequestCtx, account iam.Account, bucket string) bool {
	settings, err := f.s.authorizer.settingsOf(patient(rctx), "authorize", bucket)
	if err != nil || !settings.plain || settings.of.OnUpstream() || lockEnabled(settings.of) {
		return false
	}
	return f.may(rctx, settings, account, object.ActionPut)
}

// may reports whether the plain settings of a bucket certainly let an account do something with all keys.
func (f fastPath) may(rctx *fasthttp.RequestCtx, settings *judged, account iam.Account, action object.Action) bool {
	s := f.s
	if account.AccessKey == s.opts.Accounts.Root().AccessKey ||
		settings.allows(allowance{account.AccessKey, account.Role, action}) {
		return true
	}
	if x, err := s.opts.Accounts.Subject(account.AccessKey); err != nil || !x.Uniform() {
		return false // its policies depend on the key or on the client
	}
	return s.authorizer.Authorize(patient(rctx), object.Access{Account: account.AccessKey, Action: action,
		Bucket: settings.of.Name, Key: "any"}) == nil
}

// plainPath splits the path of a request into a bucket and a key. It returns false if the path has an escape or a
// character that a signature escapes, or an element that the router treats specially.
func plainPath(path []byte) (bucket, key string, ok bool) {
	if len(path) == 0 || path[0] != '/' {
		return "", "", false
	}
	element := 0 // where the current element begins
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			if !unreserved(path[i]) {
				return "", "", false
			}
			continue
		}
		if e := path[element+1 : i]; len(e) == 0 || e[0] == '.' {
			return "", "", false // an empty element, ".", ".." or a name that the router may hide
		}
		element = i
	}
	bucket, key, ok = strings.Cut(string(path[1:]), "/")
	return bucket, key, ok && key != ""
}

// unreserved reports whether signatures of version 4 leave a character as it is.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' ||
		c == '~'
}

func allUnreserved(s string) bool {
	for i := range len(s) {
		if !unreserved(s[i]) {
			return false
		}
	}
	return s != ""
}

// putInput returns the arguments of PutObject, with versitygw's defaults for everything that a plainHeader cannot hold.
// It returns false if versitygw would refuse the checksum of a header.
func putInput(ctx fiber.Ctx, c *claim, h *plainHeader) (in s3response.PutObjectInput, ok bool) {
	contentType := string(h.value(headerContentType))
	if contentType == "" {
		contentType = "binary/octet-stream"
	}
	in.ContentType = &contentType
	if in.Body = ctx.Request().BodyStream(); in.Body == nil {
		in.Body = bytes.NewReader(nil)
	}
	if c.payload != unsignedPayload {
		hashed, err := utils.NewHashReader(in.Body, c.payload, utils.HashTypeSha256Hex)
		if err != nil {
			return in, false
		}
		in.Body = hashed
	}
	if !h.has(headerChecksums) {
		return in, true
	}
	algorithm, sums, err := utils.ParseChecksumHeadersAndSdkAlgo(ctx)
	if err != nil {
		return in, false
	}
	in.ChecksumAlgorithm = algorithm
	in.ChecksumCRC32 = some(sums[types.ChecksumAlgorithmCrc32])
	in.ChecksumCRC32C = some(sums[types.ChecksumAlgorithmCrc32c])
	in.ChecksumCRC64NVME = some(sums[types.ChecksumAlgorithmCrc64nvme])
	in.ChecksumSHA1 = some(sums[types.ChecksumAlgorithmSha1])
	in.ChecksumSHA256 = some(sums[types.ChecksumAlgorithmSha256])
	return in, true
}

// replyPut writes the reply of a PUT.
func replyPut(h *fasthttp.ResponseHeader, out *s3response.PutObjectOutput) {
	h.DisableNormalizing()
	h.Set("ETag", out.ETag)
	for _, sum := range [...]struct {
		name  string
		value *string
	}{
		{"x-amz-checksum-crc64nvme", out.ChecksumCRC64NVME}, {"x-amz-checksum-crc32", out.ChecksumCRC32},
		{"x-amz-checksum-crc32c", out.ChecksumCRC32C}, {"x-amz-checksum-sha1", out.ChecksumSHA1},
		{"x-amz-checksum-sha256", out.ChecksumSHA256},
	} {
		if sum.value != nil && *sum.value != "" {
			h.Set(sum.name, *sum.value)
		}
	}
	if out.ChecksumType != "" {
		h.Set("x-amz-checksum-type", string(out.ChecksumType))
	}
	if out.VersionID != "" {
		h.Set("x-amz-version-id", out.VersionID)
	}
	if out.Size != nil {
		h.Set("x-amz-object-size", strconv.FormatInt(*out.Size, 10))
	}
}
