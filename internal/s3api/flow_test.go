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
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
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
	done := fmt.Appendf(nil, "<CompleteMultipartUpload><Part><PartNumber>2</PartNumber><ETag>%s</ETag></Part></CompleteMultipartUpload>", etag)
	var first, second struct{ ETag string }
	for _, into := range []any{&first, &second} {
		if err := xml.Unmarshal(w.must(200, "POST", "/bucket/key?uploadId="+up.UploadId, done).body, into); err != nil {
			t.Fatal(err)
		}
	}
	if first != second || first.ETag == "" {
		t.Errorf("%v and %v", first, second)
	}
	if r := w.must(206, "GET", "/bucket/key?partNumber=1", nil); string(r.body) != "hello" || r.Header.Get("x-amz-mp-parts-count") != "1" {
		t.Errorf("%q %v", r.body, r.Header)
	}
	w.must(200, "PUT", "/bucket/key", []byte("another"))
	if r := w.do("POST", "/bucket/key?uploadId="+up.UploadId, done); r.code() != "NoSuchUpload" {
		t.Errorf("after the object was replaced: %d %s", r.StatusCode, r.body)
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
	if _, err := w.store.Put(t.Context(), object.Put{Bucket: "bucket", Key: "key", Size: int64(len(content)), Body: bytes.NewReader(content)}); err != nil {
		t.Fatal(err)
	}
	// A policy that asks for TLS is satisfied by it, and by nothing else.
	w.people("bob")
	if err := w.store.UpdateBucket(t.Context(), "bucket", func(b *object.Bucket) error {
		b.Settings = map[string][]byte{settingPolicy: []byte(policyOf(`{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*"}`,
			`{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bucket/*","Condition":{"Bool":{"aws:SecureTransport":"false"}}}`))}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.scheme = "https"
	w.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}}}
	if r := w.must(206, "GET", "/bucket/key", nil, "Range", "bytes=10-1000009"); !bytes.Equal(r.body, content[10:1000010]) {
		t.Errorf("%d bytes", len(r.body))
	}
	w.as("bob", 200, "GET", "/bucket/key", "")
	if err := w.server.Authorizer().Authorize(t.Context(), object.Access{Account: "bob", Action: object.ActionGet, Bucket: "bucket", Key: "key"}); err == nil {
		t.Error("another door counts as TLS")
	}
}
