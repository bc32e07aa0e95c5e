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

// Bounds of S3.
const (
	maxUpload = 5 << 30 // bytes of an object that is put at once, and of a part
	maxObject = 5 << 40 // bytes of an object
)

// invalid is S3's error for an argument that cannot be one.
func invalid(message string) s3err.S3Error {
	return s3err.APIError{Code: "InvalidArgument", Description: message, HTTPStatusCode: http.StatusBadRequest}
}

// checkName refuses a path that is badly escaped, or no UTF-8. An object whose key is no UTF-8,
// of a version that took such keys, can still be deleted.
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

// noticed is what the guard wants to know of a request's headers.
type noticed struct {
	refused        *refusedHeader // the first header that cannot be served
	class, decoded []byte         // X-Amz-Storage-Class and X-Amz-Decoded-Content-Length
	payload        []byte         // X-Amz-Content-Sha256
	trailer        []byte         // X-Amz-Trailer
	emptySource    bool           // X-Amz-Copy-Source is there and names nothing
	emptyMatch     bool           // If-Match is there and has quotes alone
}

// noticeHeaders looks at each header once. Its slices are those of the header.
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
			default:
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

// checkArgs refuses what S3 calls invalid in the arguments and headers of every operation.
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
		// The versions stand in the body. Conditions of a policy would be judged by this one instead.
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
	return checkClass(string(class))
}

// resources are the arguments of which a request has one at most: each names what the request is about.
var resources = setOf("accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption",
	"intelligent-tiering", "inventory", "legal-hold",
	"lifecycle", "location", "logging", "metrics", "notification", "object-lock", "ownershipControls", "policy",
	"policyStatus",
	"publicAccessBlock", "replication", "requestPayment", "restore", "retention", "select", "tagging", "uploads",
	"versioning",
	"versions", "website")

// checkClass refuses storage classes that this server does not have: all but STANDARD.
func checkClass(class string) s3err.S3Error {
	if class == "" || class == "STANDARD" {
		return nil
	}
	return s3err.APIError{
		Code: "InvalidStorageClass", HTTPStatusCode: http.StatusBadRequest,
		Description: "The storage class you specified is not valid. This server offers STANDARD alone.",
	}
}

// checkLength refuses content without a length or beyond S3's bounds, before a byte of it is read.
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

// lengthGiven says whether the lines of a header name a length. The HTTP server adds a length of 0 to its own copy.
func lengthGiven(lines []byte) bool {
	const name = "content-length:"
	for line := range bytes.SplitSeq(lines, []byte("\n")) {
		if len(line) >= len(name) && strings.EqualFold(string(line[:len(name)]), name) {
			return true
		}
	}
	return false
}

// reservedPrefixes and reservedSuffixes are those of bucket names that S3 keeps for itself.
var (
	reservedPrefixes = []string{"xn--", "sthree-", "amzn-s3-demo-"}
	reservedSuffixes = []string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"}
)

// bucketNameAllowed says whether S3 takes a name for a new bucket that the front end has let pass.
func bucketNameAllowed(name string) bool {
	// The labels of a name make a host name.
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

// checkObjectSize refuses parts that make more than S3 allows an object to have.
func checkObjectSize(parts []object.PartInfo) error {
	var total int64
	for i := range parts {
		if total += parts[i].Size; total > maxObject {
			return s3err.GetEntityTooLargeErr(total, maxObject)
		}
	}
	return nil
}
