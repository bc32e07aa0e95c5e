// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// background is the context of calls that only read settings in memory.
var background = context.Background()

// accessLine returns the line of a request in the format of Amazon S3's server access logs, with 26 fields.
func accessLine(owner string, e *Event) []byte {
	h := e.HTTP
	if h == nil {
		h = &HTTP{Size: -1}
	}
	remote := e.Remote
	if host, _, err := net.SplitHostPort(remote); err == nil {
		remote = host
	}
	total := strconv.FormatInt(e.Duration.Milliseconds(), 10)
	line := make([]byte, 0, 512)
	add := func(fields ...string) {
		for _, f := range fields {
			if len(line) > 0 {
				line = append(line, ' ')
			}
			if f == "" {
				f = "-"
			}
			line = append(line, f...)
		}
	}
	add(word(owner), word(e.Bucket), "["+e.Time.UTC().Format("02/Jan/2006:15:04:05 -0700")+"]", word(remote),
		word(e.Account), word(e.RequestID), operationOf(e), keyWord(e.Key), quote(e.Method+" "+h.URI+" "+h.Proto),
		strconv.Itoa(e.Status), word(e.Code), positive(e.Out), size(h.Size), total, total, quote(h.Referer),
		quote(h.Agent), word(h.VersionID), word(h.HostID), word(h.Signature), word(h.Cipher), word(h.Auth), word(h.Host),
		word(h.TLS), "-", "-")
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
