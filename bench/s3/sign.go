// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"
)

// credentials sign the requests to all targets in the same way.
type credentials struct{ access, secret string }

const (
	region    = "us-east-1"
	amzTime   = "20060102T150405Z"
	algorithm = "AWS4-HMAC-SHA256"
	// validity is the longest that a presigned URL may live, so that what is
	// signed before a row is still valid in its last round.
	validity = "604800"
)

// presign returns the request target (path and query) of a presigned URL with an unsigned payload. path is not
// escaped yet and begins with "/".
func presign(k credentials, now time.Time, method, host, path string, query url.Values) string {
	return presignFor(k, now, method, host, path, query, validity)
}

func presignFor(k credentials, now time.Time, method, host, path string, query url.Values, expires string) string {
	stamp := now.UTC().Format(amzTime)
	q := url.Values{}
	for name, v := range query {
		q[name] = v
	}
	q.Set("X-Amz-Algorithm", algorithm)
	q.Set("X-Amz-Credential", k.access+"/"+scope(stamp))
	q.Set("X-Amz-Date", stamp)
	q.Set("X-Amz-Expires", expires)
	q.Set("X-Amz-SignedHeaders", "host")
	uri, canonical := escapePath(path), canonicalQuery(q)
	return uri + "?" + canonical + "&X-Amz-Signature=" + signature(k, stamp, method, host, uri, canonical)
}

// verify does the work of a server that checks a presigned request: the canonical request, its hash, the chain of
// keys and the signature. It ignores the expiry.
func verify(k credentials, r *http.Request) bool {
	query, last, ok := strings.Cut(r.URL.RawQuery, "&X-Amz-Signature=")
	if !ok {
		return false
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return false
	}
	stamp := values.Get("X-Amz-Date")
	if len(stamp) != len(amzTime) || values.Get("X-Amz-Credential") != k.access+"/"+scope(stamp) {
		return false
	}
	want := signature(k, stamp, r.Method, r.Host, escapePath(r.URL.Path), canonicalQuery(values))
	return hmac.Equal([]byte(want), []byte(last))
}

func scope(stamp string) string { return stamp[:8] + "/" + region + "/s3/aws4_request" }

func signature(k credentials, stamp, method, host, uri, query string) string {
	request := method + "\n" + uri + "\n" + query + "\nhost:" + host + "\n\nhost\nUNSIGNED-PAYLOAD"
	sum := sha256.Sum256([]byte(request))
	text := algorithm + "\n" + stamp + "\n" + scope(stamp) + "\n" + hex.EncodeToString(sum[:])
	key := mac([]byte("AWS4"+k.secret), stamp[:8])
	for _, part := range []string{region, "s3", "aws4_request"} {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, text))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func canonicalQuery(q url.Values) string {
	var pairs []string
	for name, values := range q {
		for _, v := range values {
			pairs = append(pairs, escape(name, false)+"="+escape(v, false))
		}
	}
	sort.Strings(pairs)
	return strings.Join(pairs, "&")
}

func escapePath(path string) string { return escape(path, true) }

// escape encodes text for a signature: every character except the unreserved characters of RFC 3986 becomes
// upper-case hex.
func escape(s string, slashes bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '-', c == '.', c == '_', c == '~', c == '/' && slashes:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}
