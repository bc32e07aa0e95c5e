// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/xml"
	"net/http"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestStorageClassesOfAnUpstream passes storage classes on to an upstream and back to the client.
func TestStorageClassesOfAnUpstream(t *testing.T) {
	s, w := newFar(t)
	class := func(what string, r *reply, want string) {
		t.Helper()
		if got := r.Header.Get("X-Amz-Storage-Class"); r.StatusCode != 200 || got != want {
			t.Errorf("%s: %d with the class %q, expected %q: %s", what, r.StatusCode, got, want, r.body)
		}
	}
	contains := func(path, text string) {
		t.Helper()
		if r := w.do(http.MethodGet, path, nil, "X-Amz-Object-Attributes", "StorageClass"); r.StatusCode != 200 ||
			!strings.Contains(string(r.body), text) {
			t.Errorf("%s: %d %s, expected %q", path, r.StatusCode, r.body, text)
		}
	}
	w.must(200, "PUT", "/far/plain", []byte("x"))
	if v, ok := s.written[object.AttrClass]; ok {
		t.Errorf("a PUT without a class has the class %q", v)
	}
	w.must(200, "PUT", "/far/cold", []byte("x"), classHeader, "STANDARD_IA")
	class("GET of an object without a class", w.do("GET", "/far/plain", nil), "STANDARD")
	class("GET", w.do("GET", "/far/cold", nil), "STANDARD_IA")
	class("HEAD", w.do("HEAD", "/far/cold", nil), "STANDARD_IA")
	w.must(200, "PUT", "/far/signed?x-amz-storage-class=GLACIER", []byte("x"))
	class("HEAD of a PUT with an argument", w.do("HEAD", "/far/signed", nil), "GLACIER")
	w.must(200, "PUT", "/far/copy", nil, "x-amz-copy-source", "/far/cold")
	class("HEAD of a copy, which does not have the class of its source", w.do("HEAD", "/far/copy", nil), "STANDARD")
	w.must(200, "PUT", "/far/copy", nil, "x-amz-copy-source", "/far/plain", classHeader, "ONEZONE_IA")
	class("HEAD of a copy with a class", w.do("HEAD", "/far/copy", nil), "ONEZONE_IA")
	for _, path := range []string{"/far?prefix=cold", "/far?list-type=2&prefix=cold", "/far?versions&prefix=cold",
		"/far/cold?attributes"} {
		contains(path, "<StorageClass>STANDARD_IA</StorageClass>")
	}
	w.must(200, "POST", "/far/parts?uploads", nil, classHeader, "DEEP_ARCHIVE")
	contains("/far?uploads", "<StorageClass>DEEP_ARCHIVE</StorageClass>")
	for _, bad := range []string{"GLACIER\u00e4", "a", strings.Repeat("A", 65), "A B"} {
		if r := w.do("PUT", "/far/bad", []byte("x"), classHeader, bad); r.StatusCode != 400 ||
			r.code() != "InvalidStorageClass" {
			t.Errorf("the class %q: %d %s", bad, r.StatusCode, r.body)
		}
	}
	for method, path := range map[string]string{"GET": "/far/cold", "PUT": "/far/cold?tagging", "DELETE": "/far/cold"} {
		if r := w.do(method, path, nil, classHeader, "GLACIER"); r.StatusCode != 400 || r.code() != "InvalidStorageClass" {
			t.Errorf("%s %s with a class: %d %s", method, path, r.StatusCode, r.body)
		}
	}
}

// GetUpload describes an upload. The upstream keeps no checksums of parts.
func (s *farStore) GetUpload(ctx context.Context, bucket, key, id string) (object.Upload, error) {
	u, err := s.Store.GetUpload(ctx, bucket, key, id)
	u.NoSums = bucket == "far"
	return u, err
}

// TestCompletionsWithoutSumsOfParts completes uploads for which the client asked for a checksum. Clients repeat the
// checksums that the replies to the parts have named, and an upstream without checksums names none.
func TestCompletionsWithoutSumsOfParts(t *testing.T) {
	_, w := newFar(t)
	for bucket, want := range map[string]int{"far": 200, "near": 400} {
		var up struct {
			ID string `xml:"UploadId"`
		}
		r := w.must(200, "POST", "/"+bucket+"/k?uploads", nil, "X-Amz-Checksum-Algorithm", "CRC32")
		if err := xml.Unmarshal(r.body, &up); err != nil {
			t.Fatal(err)
		}
		part := w.must(200, "PUT", "/"+bucket+"/k?partNumber=1&uploadId="+up.ID, []byte("abc"), "X-Amz-Checksum-Crc32",
			"NSRBwg==")
		if named := part.Header.Get("X-Amz-Checksum-Crc32") != ""; named != (bucket == "near") {
			t.Errorf("%s: the reply to the part has %v", bucket, part.Header)
		}
		doc := "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" + part.Header.Get("ETag") +
			"</ETag></Part></CompleteMultipartUpload>"
		if r := w.do("POST", "/"+bucket+"/k?uploadId="+up.ID, []byte(doc)); r.StatusCode != want {
			t.Errorf("%s: a completion without checksums: %d %s, expected %d", bucket, r.StatusCode, r.body, want)
		}
	}
}
