// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestOddRequestsAreAnsweredAsS3Does sends signed requests with arguments that cannot be. None is a failure of the
// server's, and none changes the object.
func TestOddRequestsAreAnsweredAsS3Does(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("0123456789"))
	r := w.must(200, "POST", "/bucket/mp?uploads", nil)
	_, rest, _ := strings.Cut(string(r.body), "<UploadId>")
	upload, _, _ := strings.Cut(rest, "<")
	const one = "<CompleteMultipartUpload><Part><PartNumber>%s</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>"
	for _, c := range []struct {
		want         string // status and code
		method, path string
		body         string
		headers      []string
	}{
		{"416 InvalidRange", "GET", "/bucket/key", "", []string{"Range", "bytes=-0"}},
		{"416 InvalidRange", "GET", "/bucket/key", "", []string{"Range", "bytes=99-"}},
		{"416 InvalidRange", "GET", "/bucket/key", "", []string{"Range", "bytes=9223372036854775807-"}},
		{"206 ", "GET", "/bucket/key", "", []string{"Range", "bytes=0-9223372036854775807"}},
		{"200 ", "GET", "/bucket/key", "", []string{"Range", "bytes=5-2"}},
		{"200 ", "GET", "/bucket/key", "", []string{"Range", "bytes=--5"}},
		{"200 ", "GET", "/bucket/key", "", []string{"Range", "bytes=" + strings.Repeat("0-0,", 1000) + "1-1"}},
		{"400 InvalidRequest", "GET", "/bucket/key?partNumber=1", "", []string{"Range", "bytes=0-1"}},
		{"400 InvalidArgument", "GET", "/bucket/key?partNumber=0", "", nil},
		{"400 InvalidArgument", "GET", "/bucket/key?partNumber=99999999999999999999", "", nil},
		{"400 InvalidArgument", "GET", "/bucket/key?versionId=%00", "", nil},
		{"400 InvalidArgument", "GET", "/bucket/key?tagging&retention", "", nil},
		{"400 InvalidArgument", "PUT", "/bucket?acl&policy", "{}", nil},
		{"400 InvalidArgument", "DELETE", "/bucket?cors&tagging", "", nil},
		{"400 InvalidArgument", "GET", "/bucket?location&acl&policy", "", nil},
		{"400 InvalidArgument", "GET", "/bucket?list-type=3", "", nil},
		{"400 InvalidArgument", "GET", "/bucket?max-keys=2147483648", "", nil},
		{"400 InvalidArgument", "GET", "/bucket?uploads&max-uploads=-1", "", nil},
		{"200 ", "GET", "/bucket?prefix=" + strings.Repeat("p", 3000), "", nil},
		{"400 InvalidArgument", "PUT", "/bucket/mp?partNumber=0&uploadId=" + upload, "x", nil},
		{"400 InvalidArgument", "PUT", "/bucket/mp?partNumber=-1&uploadId=" + upload, "x", nil},
		{"400 InvalidArgument", "PUT", "/bucket/mp?partNumber=1.5&uploadId=" + upload, "x", nil},
		{"400 InvalidArgument", "PUT", "/bucket/mp?partNumber=1&partNumber=2&uploadId=" + upload, "x", nil},
		{"404 NoSuchUpload", "PUT", "/bucket/mp?partNumber=1&uploadId=../../x", "x", nil},
		{"400 MalformedXML", "POST", "/bucket/mp?uploadId=" + upload, "", nil},
		{"400 MalformedXML", "POST", "/bucket/mp?uploadId=" + upload, "{}", nil},
		{"400 MalformedXML", "POST", "/bucket/mp?uploadId=" + upload, "<CompleteMultipartUpload/>", nil},
		{"400 InvalidArgument", "POST", "/bucket/mp?uploadId=" + upload, fmt.Sprintf(one, "-1"), nil},
		{"400 MalformedXML", "POST", "/bucket/mp?uploadId=" + upload, fmt.Sprintf(one, "99999999999999"), nil},
		{"400 InvalidRequest", "POST", "/bucket/mp?uploadId=" + upload, fmt.Sprintf(one, "1"),
			[]string{"x-amz-mp-object-size", "-1"}},
		{"400 InvalidArgument", "PUT", "/bucket/new", "", []string{"x-amz-copy-source", ""}},
		{"400 InvalidArgument", "PUT", "/bucket/new", "", []string{"x-amz-copy-source", "bucket/%zz"}},
		{"400 InvalidArgument", "PUT", "/bucket/new", "", []string{"x-amz-copy-source", "../bucket/key"}},
		{"404 NoSuchKey", "PUT", "/bucket/new", "", []string{"x-amz-copy-source", "bucket/%ff"}},
		{"400 InvalidArgument", "PUT", "/bucket/mp?partNumber=1&uploadId=" + upload, "",
			[]string{"x-amz-copy-source", "bucket/key", "x-amz-copy-source-range", "bytes=5-2"}},
		{"400 InvalidDigest", "PUT", "/bucket/new", "x", []string{"Content-MD5", "x"}},
		{"400 InvalidRequest", "PUT", "/bucket/new", "x",
			[]string{"x-amz-checksum-crc32", "AAAAAA==", "x-amz-checksum-sha1", "AAAAAA=="}},
		{"400 InvalidArgument", "PUT", "/bucket/new", "x", []string{"x-amz-tagging", "a=b&a=c"}},
		{"400 MetadataTooLarge", "PUT", "/bucket/new", "x", []string{"x-amz-meta-a", strings.Repeat("m", 3000)}},
		{"400 KeyTooLongError", "PUT", "/bucket/" + strings.Repeat("k", 1025), "x", nil},
		{"405 MethodNotAllowed", "GET", "//bucket/key", "", nil},
		{"400 InvalidBucketName", "GET", "/../bucket/key", "", nil},
		{"400 InvalidBucketName", "GET", "/bu%0d%0acket", "", nil},
		{"400 InvalidBucketName", "GET", "/bucket%00", "", nil},
		{"405 MethodNotAllowed", "TRACE", "/bucket/key", "", nil},
		{"405 MethodNotAllowed", "BREW", "/bucket/key", "", nil},
		{"405 MethodNotAllowed", "PATCH", "/bucket/key", "", nil},
	} {
		r, err := w.try(rootKey, rootSecret, c.method, c.path, []byte(c.body), c.headers...)
		if err != nil {
			t.Errorf("%s %s %v: %v", c.method, c.path, c.headers, err)
			continue
		}
		if got := fmt.Sprint(r.StatusCode, " ", r.code()); got != c.want {
			t.Errorf("%s %.90s %.90v: %s, expected %s", c.method, c.path, c.headers, got, c.want)
		}
	}
	doc := "<Delete><Object><Key></Key></Object></Delete>"
	if r := w.must(200, "POST", "/bucket?delete", []byte(doc), "Content-MD5",
		md5Base64(doc)); !strings.Contains(string(r.body), "<Code>UserKeyMustBeSpecified</Code>") {
		t.Errorf("%s", r.body)
	}
	if r := w.must(200, "GET", "/bucket/key", nil); string(r.body) != "0123456789" {
		t.Errorf("the object became %q", r.body)
	}
	if page, err := w.store.List(t.Context(), object.List{Bucket: "bucket"}); err != nil || len(page.Objects) != 1 {
		t.Errorf("%d objects, expected 1: %v", len(page.Objects), err)
	}
	if text := w.log.String(); text != "" {
		t.Errorf("the server logged failures of its own: %s", text)
	}
}

// TestOddFirstLines sends what is no request of S3's. Each is refused by its name, none as a failure of the server's.
func TestOddFirstLines(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	for text, status := range map[string]int{
		"GET /public/key\r\n\r\n":                                 400,
		"GET  /public/key HTTP/1.1\r\nHost: a\r\n\r\n":            400,
		"GET /public/key  HTTP/1.1\r\nHost: a\r\n\r\n":            400,
		"GET\t/public/key HTTP/1.1\r\nHost: a\r\n\r\n":            400,
		"GET /public/key HTTP/1.1\r\nHost: a b\r\n\r\n":           400,
		"GET /public/key HTTP/1.1\r\nHost: a/b\r\n\r\n":           400,
		"GET /public/key HTTP/1.1\r\nHost: \r\n\r\n":              400,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                        400,
		"get /public/key HTTP/1.1\r\nHost: a\r\n\r\n":             405,
		"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n":                405,
		"GET * HTTP/1.1\r\nHost: a\r\n\r\n":                       405,
		"GET http://evil/private/key HTTP/1.1\r\nHost: a\r\n\r\n": 400,
	} {
		if all := raw(t, w, text); len(all) != 1 || all[0].StatusCode != status {
			t.Errorf("%q: %s, expected %d", text, statuses(all), status)
		}
	}
}

// TestStreamsThatLie sends payloads in aws-chunked whose sizes are wrong. Nothing is stored, and no memory is taken for
// what was only announced.
func TestStreamsThatLie(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	for name, body := range map[string]string{
		"a huge chunk":          "7fffffffffffffff\r\nhello\r\n0\r\n\r\n",
		"a chunk of 4 GiB":      "ffffffff\r\nhello\r\n0\r\n\r\n",
		"a negative chunk":      "-5\r\nhello\r\n0\r\n\r\n",
		"more than was said":    "6\r\nhello!\r\n0\r\n\r\n",
		"less than was said":    "4\r\nhell\r\n0\r\n\r\n",
		"no last chunk":         "5\r\nhello\r\n",
		"no chunks":             "hello",
		"nothing":               "",
		"an endless size":       strings.Repeat("0", 100_000) + "5\r\nhello\r\n0\r\n\r\n",
		"an endless trailer":    "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:" + strings.Repeat("A", 1<<20) + "\r\n\r\n",
		"another trailer":       "5\r\nhello\r\n0\r\nx-amz-checksum-sha1:AAAA\r\n\r\n",
		"a wrong checksum":      "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
		"a zero byte in a size": "5\x00\r\nhello\r\n0\r\n\r\n",
	} {
		head := "PUT /public/key HTTP/1.1\r\nHost: a\r\nContent-Encoding: aws-chunked\r\nX-Amz-Content-Sha256: " +
			"STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n" +
			"X-Amz-Trailer: x-amz-checksum-crc32\r\nX-Amz-Decoded-Content-Length: 5\r\nContent-Length: " +
			fmt.Sprint(len(body)) + "\r\n\r\n"
		all := raw(t, w, head+body+smuggled)
		if len(all) == 0 || all[0].StatusCode/100 != 4 {
			t.Errorf("%s: %s", name, statuses(all))
		}
		if _, err := w.store.Stat(t.Context(), object.Ref{Bucket: "public", Key: "key"}); err == nil {
			t.Fatalf("%s: the object is there", name)
		}
	}
}
