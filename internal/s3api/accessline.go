// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// background is the context of calls that only read settings in memory.
var background = context.Background()

// accessLine returns the line of a request in the format of Amazon S3's server access logs, with 26 fields.
func accessLine(owner string, e *Event) []byte {
	h := httpOf(e)
	total := strconv.FormatInt(e.Duration.Milliseconds(), 10)
	line := startLine(owner, e)
	line = addFields(line, operationOf(e), keyWord(e.Key), quote(e.Method+" "+h.URI+" "+h.Proto), strconv.Itoa(e.Status),
		word(e.Code), positive(e.Out), size(h.Size), total, total, quote(h.Referer), quote(h.Agent), word(h.VersionID))
	return endLine(line, h, h.ACL)
}

// removal is a key that a list of deletions has deleted.
type removal struct {
	key     string
	asked   string // version that the request names
	version string // version that was deleted, or that of the new delete marker
	acl     bool   // an ACL was needed to allow the deletion
}

// removalLine returns the line of one key of a list of deletions. As in S3, fields of the HTTP request are in the line
// of the list alone.
func removalLine(owner string, e *Event, r removal) []byte {
	h := httpOf(e)
	line := startLine(owner, e)
	line = addFields(line, "BATCH.DELETE.OBJECT", keyWord(r.key), "", strconv.Itoa(http.StatusNoContent), "", "", "", "",
		"", "", "", word(r.version))
	return endLine(line, h, r.acl)
}

// httpOf returns the HTTP side of a request, or an empty one if it is not known.
func httpOf(e *Event) *HTTP {
	if e.HTTP != nil {
		return e.HTTP
	}
	return &HTTP{Size: -1}
}

// startLine returns the first six fields of a line, which tell the request apart from others.
func startLine(owner string, e *Event) []byte {
	remote := e.Remote
	if host, _, err := net.SplitHostPort(remote); err == nil {
		remote = host
	}
	return addFields(make([]byte, 0, 512), word(owner), word(e.Bucket),
		"["+e.Time.UTC().Format("02/Jan/2006:15:04:05 -0700")+"]", word(remote), word(e.Account), word(e.RequestID))
}

// endLine adds the last eight fields to a line of the access log. The eight fields tell how the client was
// authenticated and why the request was allowed.
func endLine(line []byte, h *HTTP, needsACL bool) []byte {
	required := ""
	if needsACL {
		required = "Yes"
	}
	return addFields(line, word(h.HostID), word(h.Signature), word(h.Cipher), word(h.Auth), word(h.Host), word(h.TLS), "",
		required)
}

// addFields adds fields to a line. An empty field becomes "-".
func addFields(line []byte, fields ...string) []byte {
	for _, f := range fields {
		if len(line) > 0 {
			line = append(line, ' ')
		}
		if f == "" {
			f = "-"
		}
		line = append(line, f...)
	}
	return line
}

// word returns a text as one field: without spaces, quotes and line breaks.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '"' || r == 0x7f {
			return '_'
		}
		return r
	}, s)
}

// keyWord returns a key as Amazon S3 logs it: escaped twice, and with slashes.
func keyWord(key string) string {
	if key == "" {
		return ""
	}
	once := strings.ReplaceAll(url.PathEscape(key), "%2F", "/")
	return strings.ReplaceAll(once, "%", "%25")
}

// quote returns a text in quotes, without quotes and line breaks in it, or "-" for an empty text.
func quote(s string) string {
	if s == "" {
		return `"-"`
	}
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r == '"' || r == 0x7f {
			return '_'
		}
		return r
	}, s) + `"`
}

func positive(n int64) string {
	if n <= 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func size(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// logResources are the names of sub-logResources in operations of access logs. The first argument that a request has
// counts.
var logResources = []struct{ arg, bucket, object string }{
	{"partNumber", "", "PART"}, {"uploadId", "", "UPLOAD"}, {"uploads", "UPLOADS", "UPLOADS"},
	{"delete", "MULTI_OBJECT_DELETE", ""}, {"acl", "ACL", "ACL"}, {"tagging", "TAGGING", "OBJECT_TAGGING"},
	{"retention", "", "OBJECT_LOCK_RETENTION"}, {"legal-hold", "", "OBJECT_LOCK_LEGALHOLD"},
	{"object-lock", "OBJECT_LOCK_CONFIGURATION", ""}, {"attributes", "", "OBJECT_ATTRIBUTES"},
	{"versioning", "VERSIONING", ""}, {"versions", "BUCKETVERSIONS", ""}, {"policy", "BUCKETPOLICY", ""},
	{"policyStatus", "BUCKETPOLICYSTATUS", ""}, {"logging", "LOGGING_STATUS", ""}, {"notification", "NOTIFICATION", ""},
	{"lifecycle", "LIFECYCLE", ""}, {"cors", "CORS", ""}, {"location", "LOCATION", ""}, {"website", "WEBSITE", ""},
	{"encryption", "ENCRYPTION", ""}, {"replication", "REPLICATION", ""}, {"inventory", "INVENTORY", ""},
	{"ownershipControls", "OWNERSHIP_CONTROLS", ""}, {"publicAccessBlock", "PUBLIC_ACCESS_BLOCK", ""},
	{"requestPayment", "REQUEST_PAYMENT", ""}, {"accelerate", "ACCELERATE", ""},
}

// operationOf returns the operation of a request as access logs name it, such as REST.PUT.OBJECT.
func operationOf(e *Event) string {
	method, resource := e.Method, "BUCKET"
	if e.Key != "" {
		resource = "OBJECT"
	}
	var args url.Values
	if h := e.HTTP; h != nil {
		if _, query, ok := strings.Cut(h.URI, "?"); ok {
			args, _ = url.ParseQuery(query) // what it understood counts
		}
	}
	for _, r := range logResources {
		name := r.bucket
		if e.Key != "" {
			name = r.object
		}
		if args.Has(r.arg) && name != "" {
			resource = name
			break
		}
	}
	if e.Operation == "CopyObject" || e.Operation == "UploadPartCopy" {
		method = "COPY"
	}
	return "REST." + method + "." + resource
}
