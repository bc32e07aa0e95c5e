// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
)

// Some clients still send version 2 signatures by default: boto3 and aws-cli 1 in presigned URLs, s3cmd and fsspec
// on demand. versitygw refuses them. So convertV2 verifies the signature and signs the request again with version 4
// and the same secret. versitygw then verifies the new signature, and all later checks are the same for both
// versions.

const (
	// maxV2Expiry is the longest time until a URL expires, as with version 4.
	maxV2Expiry = 7 * 24 * time.Hour
	// maxSkew is the largest difference between a client's clock and ours.
	maxSkew = 15 * time.Minute
	// amzDate is the date format of version 4.
	amzDate = "20060102T150405Z"
)

// v2Signed are the arguments that a version 2 signature covers. Other arguments that change the meaning of a
// request are refused, because anybody with the URL could add them.
var v2Signed = setOf("accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption", "id",
	"intelligent-tiering", "inventory",
	"legal-hold", "lifecycle", "location", "logging", "metrics", "notification", "object-lock", "ownershipControls",
	"partNumber",
	"policy", "policyStatus", "publicAccessBlock", "replication", "requestPayment", "restore", "retention", "select",
	"select-type",
	"tagging", "torrent", "uploadId", "uploads", "versionId", "versioning", "versions", "website",
	"response-cache-control", "response-content-disposition", "response-content-encoding", "response-content-language",
	"response-content-type", "response-expires")

// v2Unsigned are the harmless arguments that version 2 does not cover: those of listings.
var v2Unsigned = setOf("continuation-token", "delimiter", "encoding-type", "fetch-owner", "key-marker", "list-type",
	"marker", "max-keys",
	"max-parts", "max-uploads", "part-number-marker", "prefix", "start-after", "upload-id-marker", "version-id-marker",
	"x-id")

// v2Request is a request with a version 2 signature.
type v2Request struct {
	rctx      *fasthttp.RequestCtx
	access    string
	signature string
	expires   string // expiry of a URL in seconds since 1970; empty if the header is signed
}

// convertV2 verifies a version 2 signature and replaces it by a version 4 signature. It does not change other
// requests.
func (s *Server) convertV2(rctx *fasthttp.RequestCtx) s3err.S3Error {
	r, ok, err := v2Of(rctx)
	if !ok || err != nil {
		return err
	}
	if err := r.checkTime(time.Now()); err != nil {
		return err
	}
	if err := r.liftHeaders(); err != nil {
		return err
	}
	account, refused := s.backend.iam.holder(strings.Clone(r.access), string(rctx.Request.Header.Peek(securityToken)))
	if refused != nil {
		return refused
	}
	if !r.signedBy(account.Secret) {
		text := r.stringToSign(r.resources()[0])
		return s3err.GetSignatureDoesNotMatchErr(account.AccessKey, text, r.signature, utils.HexBytes(text), "", "")
	}
	return s.signAgain(rctx, account.AccessKey, account.Secret)
}

// v2Of returns the version 2 signature of a request, and whether the request has one. checkMechanism has refused a
// request with a second signature.
func v2Of(rctx *fasthttp.RequestCtx) (v2Request, bool, s3err.S3Error) {
	r := v2Request{rctx: rctx}
	args := rctx.QueryArgs()
	inURL := !plainQuery(args) && (args.Has("AWSAccessKeyId") || args.Has("Signature") || args.Has("Expires"))
	rest, inHeader := bytes.CutPrefix(rctx.Request.Header.Peek("Authorization"), []byte("AWS "))
	// a preflight request of a browser has the URL of the request that follows
	if !inURL && !inHeader || rctx.IsOptions() {
		return r, false, nil
	}
	if inHeader {
		access, signature, found := strings.Cut(string(rest), ":")
		if !found || access == "" || signature == "" {
			return r, true, s3err.GetAPIError(s3err.ErrUnsupportedAuthorizationMechanism)
		}
		r.access, r.signature = access, signature
		return r, true, nil
	}
	for _, name := range []string{"AWSAccessKeyId", "Signature", "Expires"} {
		if n := len(args.PeekMulti(name)); n != 1 || len(args.Peek(name)) == 0 {
			return r, true, s3err.APIError{
				Code: "AccessDenied", HTTPStatusCode: http.StatusForbidden,
				Description: "Query-string authentication of version 2 requires the Signature, Expires and AWSAccessKeyId " +
					"parameters, each once.",
			}
		}
	}
	r.access, r.signature, r.expires = string(args.Peek("AWSAccessKeyId")), string(args.Peek("Signature")),
		string(args.Peek("Expires"))
	return r, true, nil
}

// checkTime returns an error if a URL has expired or expires too late, or if a header has a wrong date.
func (r *v2Request) checkTime(now time.Time) s3err.S3Error {
	if r.expires != "" {
		at, err := strconv.ParseInt(r.expires, 10, 64)
		switch {
		case err != nil || at < 0:
			return invalid("Invalid date (should be seconds since epoch): " + strconv.QuoteToASCII(r.expires))
		case at < now.Unix():
			return s3err.APIError{Code: "AccessDenied", Description: "Request has expired", HTTPStatusCode: http.StatusForbidden}
		case at > now.Add(maxV2Expiry).Unix():
			return s3err.APIError{
				Code: "AuthorizationQueryParametersError", HTTPStatusCode: http.StatusBadRequest,
				Description: "Expires must be less than a week (in seconds) ahead; that is, the given Expires must be at most " +
					"604800 seconds from now.",
			}
		}
		return nil
	}
	text := string(r.rctx.Request.Header.Peek("X-Amz-Date"))
	if text == "" {
		text = string(r.rctx.Request.Header.Peek("Date"))
	}
	for _, layout := range []string{time.RFC1123, time.RFC1123Z, time.RFC850, time.ANSIC, amzDate} {
		at, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		if at.Before(now.Add(-maxSkew)) || at.After(now.Add(maxSkew)) {
			return s3err.APIError{
				Code: "RequestTimeTooSkewed", HTTPStatusCode: http.StatusForbidden,
				Description: "The difference between the request time and the current time is too large.",
			}
		}
		return nil
	}
	return s3err.GetAPIError(s3err.ErrMissingDateHeader)
}

// liftHeaders moves headers from the query back into the header, and returns an error if the signature does not
// cover an argument.
func (r *v2Request) liftHeaders() s3err.S3Error {
	args, h := r.rctx.QueryArgs(), &r.rctx.Request.Header
	type pair struct{ name, value string }
	var lifted []pair
	for k, v := range args.All() {
		name := string(k)
		_, covered := v2Signed[name]
		_, harmless := v2Unsigned[name]
		lower := strings.ToLower(name)
		switch {
		case covered, harmless, name == "":
		case r.expires != "" && (name == "AWSAccessKeyId" || name == "Signature" || name == "Expires"):
		case r.expires != "" && (strings.HasPrefix(lower, "x-amz-") || lower == "content-type" || lower == "content-md5"):
			lifted = append(lifted, pair{name, string(v)})
		case refusedArgs[name] != "":
		default:
			return s3err.APIError{
				Code: "AuthorizationQueryParametersError", HTTPStatusCode: http.StatusBadRequest,
				Description: "The argument " + strconv.QuoteToASCII(name) + " is not covered by a signature of version 2. " + useV4,
			}
		}
	}
	for _, p := range lifted {
		args.Del(p.name)
		switch was := h.Peek(p.name); {
		case !printable(p.value):
			return invalid("The argument " + p.name + " has control characters, which a header cannot have.")
		case len(was) == 0:
			h.Set(p.name, p.value)
		case string(was) != p.value:
			return invalid("The argument " + p.name + " and the header of the same name differ.")
		}
	}
	return nil
}

// useV4 is a hint at the client settings for version 4.
const useV4 = `Sign with version 4: signature_version="s3v4" in boto3, "aws configure set default.s3.signature_version s3v4", no --signature-v2 in s3cmd.`

// signedBy reports whether the signature was made with the given secret.
func (r *v2Request) signedBy(secret string) bool {
	good := false
	for _, resource := range r.resources() {
		good = hmac.Equal([]byte(r.signature), []byte(signV2(secret, r.stringToSign(resource)))) || good
	}
	return good
}

func signV2(secret, text string) string {
	mac := hmac.New(sha1.New, []byte(secret))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// resources returns the forms in which clients sign the path. For a bucket, some clients add a slash.
func (r *v2Request) resources() []string {
	path := string(r.rctx.URI().PathOriginal())
	if levelOf(r.rctx) != onBucket {
		return []string{path}
	}
	path = strings.TrimSuffix(path, "/")
	return []string{path + "/", path}
}

// stringToSign returns the text that version 2 signs.
func (r *v2Request) stringToSign(resource string) string {
	h := &r.rctx.Request.Header
	amz, values := amzHeaders(h)
	when := r.expires
	if when == "" && values["x-amz-date"] == nil {
		when = string(h.Peek("Date"))
	}
	var b strings.Builder
	b.WriteString(string(h.Method()) + "\n" + string(h.Peek("Content-Md5")) + "\n" + string(h.ContentType()) + "\n" +
		when + "\n")
	for _, name := range amz {
		b.WriteString(name + ":" + strings.Join(values[name], ",") + "\n")
	}
	b.WriteString(resource)
	var subs []string
	for k, v := range r.rctx.QueryArgs().All() {
		if _, ok := v2Signed[string(k)]; !ok {
			continue
		}
		sub := string(k)
		if len(v) > 0 {
			sub += "=" + string(v)
		}
		subs = append(subs, sub)
	}
	slices.Sort(subs)
	if len(subs) > 0 {
		b.WriteString("?" + strings.Join(subs, "&"))
	}
	return b.String()
}

// signAgain replaces the signature of a request by a version 4 signature. As in version 2, the signature does not
// cover the body. versitygw verifies the new signature and refuses the request if it is wrong.
func (s *Server) signAgain(rctx *fasthttp.RequestCtx, access, secret string) s3err.S3Error {
	h, args := &rctx.Request.Header, rctx.QueryArgs()
	for _, name := range []string{"AWSAccessKeyId", "Signature", "Expires"} {
		args.Del(name)
	}
	now := time.Now().UTC()
	payload := string(h.Peek("X-Amz-Content-Sha256"))
	switch {
	case payload == "":
		payload = "UNSIGNED-PAYLOAD"
		h.Set("X-Amz-Content-Sha256", payload)
	case strings.HasPrefix(payload, "STREAMING-AWS4-"):
		return invalid("Chunks with signatures of version 4 need a signature of version 4. " + useV4)
	}
	h.Set("X-Amz-Date", now.Format(amzDate))
	path, _ := rctx.UserValue(originalPath).(string)
	if path == "" {
		path = unescape(string(rctx.URI().PathOriginal()))
	}
	query := url.Values{}
	for k, v := range args.All() {
		query.Add(string(k), string(v))
	}
	for _, values := range query {
		slices.Sort(values)
	}
	names, values := amzHeaders(h)
	names = append([]string{"host"}, names...) // sorts before x-amz-…
	values["host"] = []string{string(h.Host())}
	var canonical strings.Builder
	canonical.WriteString(string(h.Method()) + "\n" + escapeV4(path) + "\n" +
		strings.ReplaceAll(query.Encode(), "+", "%20") + "\n")
	for _, name := range names {
		canonical.WriteString(name + ":" + singleSpaced(strings.Join(values[name], ",")) + "\n")
	}
	signed := strings.Join(names, ";")
	canonical.WriteString("\n" + signed + "\n" + payload)

	sum := sha256.Sum256([]byte(canonical.String()))
	day := now.Format("20060102")
	scope := day + "/" + s.opts.Region + "/s3/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + now.Format(amzDate) + "\n" + scope + "\n" + hex.EncodeToString(sum[:])
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, s.opts.Region, "s3", "aws4_request", text} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	h.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+access+"/"+scope+", SignedHeaders="+signed+", Signature="+
		hex.EncodeToString(key))
	return nil
}

// amzHeaders returns the names of the x-amz headers in lower case and in order, and their values.
func amzHeaders(h *fasthttp.RequestHeader) ([]string, map[string][]string) {
	var names []string
	values := map[string][]string{}
	for k, v := range h.All() {
		if name := strings.ToLower(string(k)); strings.HasPrefix(name, "x-amz-") {
			if _, ok := values[name]; !ok {
				names = append(names, name)
			}
			values[name] = append(values[name], strings.TrimSpace(string(v)))
		}
	}
	slices.Sort(names)
	return names, values
}

// singleSpaced replaces each run of spaces by one.
func singleSpaced(s string) string {
	for strings.Contains(s, "  ") {
		s = strings.ReplaceAll(s, "  ", " ")
	}
	return s
}

// escapeV4 escapes a path for version 4: everything except letters, digits, "-._~" and slashes.
func escapeV4(path string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(path) {
		c := path[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}
