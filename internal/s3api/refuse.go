// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Limits of S3.
const (
	maxUpload = 5 << 30 // largest size in bytes of an object in one PUT, and of a part
	maxObject = 5 << 40 // largest size of an object in bytes
)

// invalid returns the S3 error for an invalid argument.
func invalid(message string) s3err.S3Error {
	return s3err.APIError{Code: "InvalidArgument", Description: message, HTTPStatusCode: http.StatusBadRequest}
}

// checkMechanism returns an error if a request is authenticated in more than one way. S3 refuses such a request,
// because the ways could name two accounts. A preflight request of a browser has the URL of the request that follows,
// and no signature of its own.
func checkMechanism(rctx *fasthttp.RequestCtx) s3err.S3Error {
	args := rctx.QueryArgs()
	if args.Len() == 0 || rctx.IsOptions() {
		return nil
	}
	v2, v4 := false, false
	for k := range args.All() {
		switch string(k) {
		case "AWSAccessKeyId", "Signature", "Expires":
			v2 = true
		case "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature":
			v4 = true
		}
	}
	if v2 && v4 || (v2 || v4) && authorized(rctx) {
		return invalid("Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, " +
			"Signature query string parameter or the Authorization header should be specified")
	}
	return nil
}

// authorized reports whether a request has an Authorization header that is not empty.
func authorized(rctx *fasthttp.RequestCtx) bool {
	for _, v := range rctx.Request.Header.PeekAll("Authorization") {
		if len(v) > 0 {
			return true
		}
	}
	return false
}

// checkName returns an error if the path of a request is badly escaped or not UTF-8. An older version accepted keys
// that are not UTF-8; such objects can still be deleted.
func checkName(rctx *fasthttp.RequestCtx) s3err.S3Error {
	raw := rctx.URI().PathOriginal()
	if bytes.IndexByte(raw, '%') < 0 && utf8.Valid(raw) {
		return nil
	}
	path, err := url.PathUnescape(string(raw))
	if err != nil || !utf8.ValidString(path) && !rctx.IsDelete() {
		return s3err.APIError{
			Code: "InvalidURI", HTTPStatusCode: http.StatusBadRequest,
			Description: "Couldn't parse the specified URI: a key is UTF-8, escaped with % and two hexadecimal digits.",
		}
	}
	return nil
}

// noticed holds the headers of a request that the guard needs.
type noticed struct {
	refused        *refusedHeader // the first header that cannot be served
	class, decoded []byte         // X-Amz-Storage-Class and X-Amz-Decoded-Content-Length
	payload        []byte         // X-Amz-Content-Sha256
	trailer        []byte         // X-Amz-Trailer
	emptySource    bool           // X-Amz-Copy-Source is set and empty
	emptyMatch     bool           // If-Match is set and contains only quotes
	encryption     bool           // a header of encryption is set
	origin         bool           // X-Nebulaio-Origin-Modified is set
}

// noticeHeaders reads each header once. The returned slices share memory with the header.
func noticeHeaders(h *fasthttp.RequestHeader) (n noticed) {
	for k, v := range h.All() {
		if len(k) > 8 && (k[0] == 'X' || k[0] == 'x') {
			switch string(k) {
			case "X-Amz-Date":
			case "X-Amz-Content-Sha256":
				n.payload = v
			case "X-Amz-Trailer":
				n.trailer = v
			case "X-Amz-Storage-Class":
				n.class = v
			case "X-Amz-Decoded-Content-Length":
				n.decoded = v
			case "X-Amz-Copy-Source":
				n.emptySource = len(v) == 0
			case object.HeaderOriginModified:
				n.origin = true
			default:
				n.encryption = n.encryption || ofEncryption(k)
				for i := range refusedHeaders {
					if r := &refusedHeaders[i]; len(r.name) == len(k) && n.refused == nil && len(v) > 0 && string(k) == r.name {
						n.refused = r
					}
				}
			}
		} else if string(k) == "If-Match" {
			n.emptyMatch = len(v) > 0 && len(bytes.Trim(v, `"`)) == 0
		}
	}
	return n
}

// ofEncryption reports whether a header is one of encryption, for an object or for the source of a copy.
func ofEncryption(name []byte) bool {
	return len(name) >= len(plainPrefix) && string(name[:len(plainPrefix)]) == plainPrefix ||
		len(name) >= len(sourcePrefix) && string(name[:len(sourcePrefix)]) == sourcePrefix
}

// checkArgs returns an error if an argument or header is invalid in S3 for every operation.
func checkArgs(rctx *fasthttp.RequestCtx, h *noticed) s3err.S3Error {
	class := h.class
	resource := ""
	for k, v := range rctx.QueryArgs().All() {
		if len(k) > 6 && string(k[:6]) == "X-Amz-" && len(k) != len("X-Amz-Storage-Class") {
			if !utf8.Valid(v) {
				return invalid("The argument " + strconv.QuoteToASCII(string(k)) + " is no UTF-8.")
			}
			continue
		}
		if _, ok := resources[string(k)]; ok {
			if resource != "" {
				return invalid("Conflicting query string parameters: " + resource + ", " + string(k))
			}
			resource = string(k)
		}
		switch {
		case string(k) == "list-type" && len(v) > 0 && string(v) != "2" && string(v) != "1":
			return invalid("Invalid List Type specified in Request")
		case len(k) > len("response-") && string(k[:len("response-")]) == "response-" && !printableBytes(v):
			return invalid("The argument " + string(k) + " has control characters, which a header cannot have.")
		case strings.EqualFold(string(k), "X-Amz-Storage-Class"):
			class = v
		case !utf8.Valid(v):
			return invalid("The argument " + strconv.QuoteToASCII(string(k)) + " is no UTF-8.")
		}
	}
	if resource == "delete" && rctx.QueryArgs().Has("versionId") {
		// The body contains the versions. Policy conditions would use this argument instead.
		return invalid("Conflicting query string parameters: delete, versionId")
	}
	if rctx.IsPut() {
		if h.emptySource {
			return invalid("x-amz-copy-source is empty. It names a bucket and a key.")
		}
		for _, name := range [...]string{"partNumber", "uploadId"} {
			if rctx.QueryArgs().Len() > 1 && len(rctx.QueryArgs().PeekMulti(name)) > 1 {
				return invalid("The argument " + name + " is given more than once.")
			}
		}
	}
	return checkClass(string(class), writesObject(rctx, resource))
}

// resources are the arguments that select the target of a request. A request may have at most one of them.
var resources = setOf("accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption",
	"intelligent-tiering", "inventory", "legal-hold",
	"lifecycle", "location", "logging", "metrics", "notification", "object-lock", "ownershipControls", "policy",
	"policyStatus",
	"publicAccessBlock", "replication", "requestPayment", "restore", "retention", "select", "tagging", "uploads",
	"versioning",
	"versions", "website")

// checkLength returns an error if content has no length or exceeds the limits of S3, before any byte is read.
func checkLength(rctx *fasthttp.RequestCtx, decodedLength []byte) s3err.S3Error {
	h := &rctx.Request.Header
	n := int64(h.ContentLength())
	if len(decodedLength) > 0 && rctx.IsPut() {
		decoded, err := strconv.ParseInt(string(decodedLength), 10, 64)
		switch {
		case err != nil || decoded < 0:
			return s3err.GetAPIError(s3err.ErrMissingContentLength)
		case decoded > maxUpload:
			return s3err.GetEntityTooLargeErr(decoded, maxUpload)
		case n > 2*maxUpload:
			return s3err.GetEntityTooLargeErr(n, maxUpload)
		}
		return nil
	}
	switch {
	case n < 0, n == 0 && !lengthGiven(h.RawHeaders()):
		return s3err.GetAPIError(s3err.ErrMissingContentLength)
	case n > maxUpload:
		return s3err.GetEntityTooLargeErr(n, maxUpload)
	}
	return nil
}

// lengthGiven reports whether the lines of a header contain a Content-Length. The HTTP server adds a length of 0 to
// its parsed header.
func lengthGiven(lines []byte) bool {
	const name = "content-length:"
	for line := range bytes.SplitSeq(lines, []byte("\n")) {
		if len(line) >= len(name) && strings.EqualFold(string(line[:len(name)]), name) {
			return true
		}
	}
	return false
}

// reservedPrefixes and reservedSuffixes are the beginnings and ends of bucket names that S3 reserves.
var (
	reservedPrefixes = []string{"xn--", "sthree-", "amzn-s3-demo-"}
	reservedSuffixes = []string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"}
)

// bucketNameAllowed reports whether S3 allows a name for a new bucket. versitygw has already checked the basic
// rules.
func bucketNameAllowed(name string) bool {
	// The labels of a name are part of a host name.
	for _, bad := range []string{"..", ".-", "-."} {
		if strings.Contains(name, bad) {
			return false
		}
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	for _, s := range reservedSuffixes {
		if strings.HasSuffix(name, s) {
			return false
		}
	}
	return true
}

// checkObjectSize returns an error if the parts together exceed the largest size of an object.
func checkObjectSize(parts []object.PartInfo) error {
	var total int64
	for i := range parts {
		if total += parts[i].Size; total > maxObject {
			return s3err.GetEntityTooLargeErr(total, maxObject)
		}
	}
	return nil
}
