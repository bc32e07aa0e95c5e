// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"strings"
	"testing"

	vgwbackend "github.com/versity/versitygw/backend"

	"github.com/nebulaio/nebulaio/internal/object"
)

// ranges are Range headers, and what they select of the object "hello world": a status, and the bytes.
var ranges = []struct {
	header, want string
}{
	{"bytes=0-0", "206 h"}, {"bytes=0-", "206 hello world"}, {"bytes=2-5", "206 llo "}, {"bytes=10-10", "206 d"},
	{"bytes=6-99", "206 world"}, {"bytes=6-9223372036854775807", "206 world"}, {"bytes=-1", "206 d"},
	{"bytes=-11", "206 hello world"}, {"bytes=-99", "206 hello world"}, {"bytes=0000-00001", "206 he"},
	{"bytes=11-", "416"}, {"bytes=11-11", "416"}, {"bytes=-0", "416"}, {"bytes=9223372036854775807-", "416"},
	// S3 ignores all of these.
	{"bytes=+1-2", "200"}, {"bytes=1-+2", "200"}, {"bytes=+1-", "200"}, {"bytes=-+1", "200"}, {"bytes=+1-+2", "200"},
	{"bytes= 1-2", "200"}, {"bytes=1 -2", "200"}, {"bytes=1- 2", "200"}, {"bytes =1-2", "200"}, {"bytes=1-2,", "200"},
	{"bytes=,1-2", "200"}, {"bytes=0-1,3-4", "200"}, {"bytes=--1", "200"}, {"bytes=1--2", "200"},
	{"bytes=-1-2", "200"}, {"bytes=0x1-2", "200"}, {"bytes=1-0x2", "200"}, {"bytes=1_0-11", "200"},
	{"bytes=1e0-2", "200"}, {"bytes=1.0-2", "200"}, {"bytes=١-٢", "200"}, {"Bytes=1-2", "200"}, {"BYTES=1-2", "200"},
	{"bytes=1-2=3", "200"}, {"bytes==1-2", "200"}, {"bytes=5-2", "200"}, {"bytes=99-2", "200"}, {"bytes=-", "200"},
	{"bytes=", "200"}, {"bytes", "200"}, {"bytes=1", "200"}, {"1-2", "200"}, {"lines=1-2", "200"},
	{"bytes:1-2", "200"}, {"bytes=a-b", "200"}, {"bytes=9223372036854775808-", "200"},
	{"bytes=0-9223372036854775808", "200"}, {"bytes=-9223372036854775808", "200"},
}

// TestRangesAreReadAsInS3 reads ranges by GET and HEAD, on the fast path and through versitygw.
func TestRangesAreReadAsInS3(t *testing.T) {
	const content = "hello world"
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte(content))
	for _, c := range ranges {
		want, bytes, _ := strings.Cut(c.want, " ")
		if want == "200" {
			bytes = content
		}
		for way, header := range map[string][]string{"fast": nil, "versitygw": {"X-Not-Plain", "1"}} {
			r := w.do("GET", "/bucket/key", nil, append(header, "Range", c.header)...)
			if got := fmt.Sprint(r.StatusCode); got != want || want != "416" && string(r.body) != bytes {
				t.Errorf("%s %q: %s %q, expected %s %q", way, c.header, got, r.body, want, bytes)
			}
			r = w.do("HEAD", "/bucket/key", nil, append(header, "Range", c.header)...)
			if got := fmt.Sprint(r.StatusCode); got != want || want != "416" && r.ContentLength != int64(len(bytes)) {
				t.Errorf("%s HEAD %q: %s %d, expected %s %d", way, c.header, got, r.ContentLength, want, len(bytes))
			}
		}
	}
}

// TestCopiedRangesHaveNoSigns copies parts of which the range is malformed. S3 refuses them.
func TestCopiedRangesHaveNoSigns(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("hello world"))
	id := between(string(w.must(200, "POST", "/bucket/parts?uploads", nil).body), "<UploadId>", "</UploadId>")
	for header, status := range map[string]int{"bytes=1-2": 200, "bytes=+1-2": 400, "bytes=1-+2": 400, "bytes=-2": 400,
		"bytes= 1-2": 400, "bytes=1-2,": 400, "Bytes=1-2": 400, "bytes=1-99": 400} {
		r := w.do("PUT", "/bucket/parts?partNumber=1&uploadId="+id, nil, "x-amz-copy-source", "bucket/key",
			"x-amz-copy-source-range", header)
		if r.StatusCode != status || status == 400 && r.code() != "InvalidArgument" {
			t.Errorf("%q: %d %s", header, r.StatusCode, r.body)
		}
	}
}

// FuzzRange compares our reading of ranges with that of versitygw, which differs only for numbers with a sign.
func FuzzRange(f *testing.F) {
	for _, c := range ranges {
		for _, size := range []int64{0, 1, 11} {
			f.Add(c.header, size)
		}
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		p, err := pickRange(size, header)
		if err == nil && (p.Off < 0 || p.N < 0 || p.Off > size-p.N || p.partial && p.N == 0 || !p.partial && p.N != size) {
			t.Fatalf("%q of %d bytes: %+v", header, size, p)
		}
		if strings.Contains(header, "+") {
			if p.partial || err != nil {
				t.Fatalf("%q of %d bytes: %+v, %v", header, size, p, err)
			}
			return
		}
		off, n, partial, wanted := vgwbackend.ParseObjectRange(size, header)
		if (err == nil) != (wanted == nil) ||
			err == nil && (p.Range != object.Range{Off: off, N: n} || p.partial != partial) {
			t.Fatalf("%q of %d bytes: %+v, %v, expected %d, %d, %v, %v", header, size, p, err, off, n, partial, wanted)
		}
		expecting(t.Context(), &header)
	})
}
