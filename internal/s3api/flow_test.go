// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// TestARepeatedCompletionSucceeds: a client whose answer was lost asks again.
func TestARepeatedCompletionSucceeds(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	var up struct{ UploadId string }
	if err := xml.Unmarshal(w.must(200, "POST", "/bucket/key?uploads", nil).body, &up); err != nil {
		t.Fatal(err)
	}
	etag := w.must(200, "PUT", "/bucket/key?partNumber=2&uploadId="+up.UploadId, []byte("hello")).Header.Get("ETag")
	done := fmt.Appendf(nil,
		"<CompleteMultipartUpload><Part><PartNumber>2</PartNumber><ETag>%s</ETag></Part></CompleteMultipartUpload>", etag)
	var first, second struct{ ETag string }
	for _, into := range []any{&first, &second} {
		if err := xml.Unmarshal(w.must(200, "POST", "/bucket/key?uploadId="+up.UploadId, done).body, into); err != nil {
			t.Fatal(err)
		}
	}
	if first != second || first.ETag == "" {
		t.Errorf("%v and %v", first, second)
	}
	if r := w.must(206, "GET", "/bucket/key?partNumber=1", nil); string(r.body) != "hello" ||
		r.Header.Get("x-amz-mp-parts-count") != "1" {
		t.Errorf("%q %v", r.body, r.Header)
	}
	w.must(200, "PUT", "/bucket/key", []byte("another"))
	if r := w.do("POST", "/bucket/key?uploadId="+up.UploadId, done); r.code() != "NoSuchUpload" {
		t.Errorf("after the object was replaced: %d %s", r.StatusCode, r.body)
	}
}

// TestARepeatedCompletionWithOtherPartsIsRefused completes an upload again with lists that did not make the object.
func TestARepeatedCompletionWithOtherPartsIsRefused(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	var up struct{ UploadId string }
	if err := xml.Unmarshal(w.must(200, "POST", "/bucket/key?uploads", nil).body, &up); err != nil {
		t.Fatal(err)
	}
	put := func(n int, content []byte) string {
		at := fmt.Sprintf("/bucket/key?partNumber=%d&uploadId=%s", n, up.UploadId)
		return w.must(200, "PUT", at, content).Header.Get("ETag")
	}
	part := func(n int, etag string) string {
		return fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", n, etag)
	}
	first, second := put(1, bytes.Repeat([]byte("a"), 5<<20)), put(3, []byte("b"))
	complete := func(parts string) *reply {
		return w.do("POST", "/bucket/key?uploadId="+up.UploadId,
			[]byte("<CompleteMultipartUpload>"+parts+"</CompleteMultipartUpload>"))
	}
	all := part(1, first) + part(3, second)
	want := complete(all)
	if want.StatusCode != 200 {
		t.Fatalf("%d %s", want.StatusCode, want.body)
	}
	for name, parts := range map[string]string{
		"fewer parts":     part(1, first),
		"another number":  part(1, first) + part(2, second),
		"another ETag":    part(1, first) + part(3, first),
		"another order":   part(3, second) + part(1, first),
		"one more":        all + part(4, second),
		"a part no ETag":  "<Part><PartNumber>1</PartNumber></Part>",
		"a part unnumber": "<Part><ETag>x</ETag></Part>",
	} {
		if r := complete(parts); r.StatusCode/100 != 4 || r.code() != "NoSuchUpload" && r.code() != "MalformedXML" {
			t.Errorf("%s: %d %s", name, r.StatusCode, r.body)
		}
	}
	again := complete(strings.ReplaceAll(all, "&#34;", ""))
	if again.StatusCode != 200 || again.Header.Get("ETag") != want.Header.Get("ETag") {
		t.Errorf("the same parts: %d %s", again.StatusCode, again.body)
	}
	if r := w.must(200, "GET", "/bucket/key", nil); len(r.body) != 5<<20+1 {
		t.Errorf("%d bytes", len(r.body))
	}
}

// TestWrongBytesAreRefused sends content that is not what its header says, by
// each way of saying it; nothing of it may be seen.
func TestWrongBytesAreRefused(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for name, headers := range map[string][]string{
		"crc64nvme":   {"x-amz-checksum-crc64nvme", "AAAAAAAAAAA="},
		"crc32":       {"x-amz-checksum-crc32", "AAAAAA=="},
		"sha256":      {"x-amz-checksum-sha256", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="},
		"content-md5": {"Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="},
	} {
		if r := w.do("PUT", "/bucket/"+name, []byte("hello"), headers...); r.StatusCode != 400 || r.code() != "BadDigest" {
			t.Errorf("%s: %d %s", name, r.StatusCode, r.body)
		}
		w.must(404, "GET", "/bucket/"+name, nil)
	}
}

func TestTLS(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	conf := &tls.Config{Certificates: certs.TLS.Certificates}
	roots := x509.NewCertPool()
	roots.AddCert(certs.Certificate())
	certs.Close()
	w := start(t, nil, func(o *Options) { o.TLS = conf })
	content := bytes.Repeat([]byte("0123456789"), 100<<10)
	if err := w.store.CreateBucket(t.Context(), object.Bucket{Name: "bucket", Owner: rootKey}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Put(t.Context(), object.Put{Bucket: "bucket", Key: "key", Size: int64(len(content)),
		Body: bytes.NewReader(content)}); err != nil {
		t.Fatal(err)
	}
	// A policy that asks for TLS is satisfied by it, and by nothing else.
	w.people("bob")
	if err := w.store.UpdateBucket(t.Context(), "bucket", func(b *object.Bucket) error {
		b.Settings = map[string][]byte{policy.Setting: []byte(
			policyOf(`{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*"}`,
				`{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bucket/*","Condition":{"Bool":{"aws:SecureTransport":"false"}}}`))}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.scheme = "https"
	w.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
		ServerName: "example.com"}}}
	if r := w.must(206, "GET", "/bucket/key", nil, "Range", "bytes=10-1000009"); !bytes.Equal(r.body,
		content[10:1000010]) {
		t.Errorf("%d bytes", len(r.body))
	}
	w.as("bob", 200, "GET", "/bucket/key", "")
	if err := w.server.Authorizer().Authorize(t.Context(),
		object.Access{Account: "bob", Action: object.ActionGet, Bucket: "bucket", Key: "key"}); err == nil {
		t.Error("another door counts as TLS")
	}
}
