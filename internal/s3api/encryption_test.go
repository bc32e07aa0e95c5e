// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/keyring"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/internal/store/sealed"
)

// startEncrypting starts a front end over a store that encrypts, with a bucket and the key payroll.
func startEncrypting(t *testing.T) *world {
	t.Helper()
	below := model.NewIn(t.TempDir())
	master, err := keyring.ParseMaster([]byte(strings.Repeat("5a", 32)), "test")
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.Open(t.Context(), below, master)
	if err == nil {
		err = ring.Create(t.Context(), "payroll")
	}
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, sealed.New(below, ring), nil)
	w.must(200, "PUT", "/bucket", nil)
	return w
}

// customerHeaders are the headers of SSE-C for a key of equal bytes.
func customerHeaders(prefix string, b byte) []string {
	key := bytes.Repeat([]byte{b}, 32)
	sum := md5.Sum(key)
	at := "x-amz-" + prefix + "server-side-encryption-customer-"
	return []string{at + "algorithm", "AES256", at + "key", base64.StdEncoding.EncodeToString(key),
		at + "key-md5", base64.StdEncoding.EncodeToString(sum[:])}
}

var (
	withS3  = []string{"x-amz-server-side-encryption", "AES256"}
	withKMS = []string{"x-amz-server-side-encryption", "aws:kms", "x-amz-server-side-encryption-aws-kms-key-id", "payroll"}
)

// TestEncryptedObjectsLookLikeOthers writes objects of each kind and compares what every request shows with the
// content.
func TestEncryptedObjectsLookLikeOthers(t *testing.T) {
	w := startEncrypting(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	own := customerHeaders("", 7)
	for name, c := range map[string]struct{ write, read, shown []string }{
		"s3":  {withS3, nil, withS3},
		"kms": {withKMS, nil, withKMS},
		"c":   {own, own, []string{own[0], own[1], own[4], own[5]}},
	} {
		path := "/bucket/" + name
		put := w.must(200, "PUT", path, content, c.write...)
		get := w.must(200, "GET", path, nil, c.read...)
		head := w.must(200, "HEAD", path, nil, c.read...)
		for _, r := range []*reply{put, get, head} {
			for i := 0; i+1 < len(c.shown); i += 2 {
				if got := r.Header.Get(c.shown[i]); got != c.shown[i+1] {
					t.Errorf("%s, %s: %s is %q, expected %q", name, r.Request.Method, c.shown[i], got, c.shown[i+1])
				}
			}
		}
		if !bytes.Equal(get.body, content) || head.ContentLength != int64(len(content)) {
			t.Errorf("%s: %d and %d bytes, expected %d", name, len(get.body), head.ContentLength, len(content))
		}
		isMD5 := put.Header.Get("ETag") == fmt.Sprintf(`"%x"`, md5.Sum(content))
		if isMD5 != (name == "s3") || get.Header.Get("ETag") != put.Header.Get("ETag") {
			t.Errorf("%s: ETag %s, %s", name, put.Header.Get("ETag"), get.Header.Get("ETag"))
		}
		part := w.must(206, "GET", path, nil, append([]string{"Range", "bytes=65530-65550"}, c.read...)...)
		if !bytes.Equal(part.body, content[65530:65551]) ||
			part.Header.Get("Content-Range") != fmt.Sprintf("bytes 65530-65550/%d", len(content)) {
			t.Errorf("%s: a range is %q, %s", name, part.body, part.Header.Get("Content-Range"))
		}
		size := fmt.Sprintf("<ObjectSize>%d</ObjectSize>", len(content))
		if r := w.must(200, "GET", path+"?attributes", nil, append([]string{"x-amz-object-attributes", "ObjectSize"},
			c.read...)...); !strings.Contains(string(r.body), size) {
			t.Errorf("%s: %s", name, r.body)
		}
	}
	size := fmt.Sprintf("<Size>%d</Size>", len(content))
	for _, query := range []string{"list-type=2", "versions"} {
		if r := w.must(200, "GET", "/bucket?"+query, nil); strings.Count(string(r.body), size) != 3 {
			t.Errorf("%s: %s", query, r.body)
		}
	}
}

// TestEncryptionHeadersAreChecked sends headers that S3 refuses.
func TestEncryptionHeadersAreChecked(t *testing.T) {
	w := startEncrypting(t)
	own, other := customerHeaders("", 7), customerHeaders("", 8)
	w.must(200, "PUT", "/bucket/c", []byte("hello"), own...)
	w.must(200, "PUT", "/bucket/p", []byte("hello"))
	const sse, kms = "x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id"
	for _, c := range []struct {
		method, path string
		status       int
		code         string
		headers      []string
	}{
		{"PUT", "/bucket/x", 400, "InvalidArgument", []string{sse, "AES192"}},
		{"PUT", "/bucket/x", 501, "NotImplemented", []string{sse, "aws:kms:dsse"}},
		{"PUT", "/bucket/x", 400, "InvalidArgument", []string{sse, "AES256", kms, "payroll"}},
		{"PUT", "/bucket/x", 400, "InvalidArgument", []string{kms, "payroll"}},
		{"PUT", "/bucket/x", 400, "KMS.NotFoundException", []string{sse, "aws:kms", kms, "none"}},
		{"PUT", "/bucket/x", 400, "InvalidArgument", []string{sse, "aws:kms", sse + "-context", "no JSON"}},
		{"PUT", "/bucket/x", 400, "InvalidArgument", []string{sse, "aws:kms", sse + "-bucket-key-enabled", "maybe"}},
		{"PUT", "/bucket/x", 400, "InvalidArgument", append([]string{sse, "AES256"}, own...)},
		{"PUT", "/bucket/x", 400, "InvalidArgument", own[:2]},
		{"PUT", "/bucket/x", 400, "InvalidArgument", own[:4]},
		{"PUT", "/bucket/x", 400, "InvalidArgument", own[2:]},
		{"PUT", "/bucket/x", 400, "InvalidArgument", append(own[:4:4], other[4:]...)},
		{"PUT", "/bucket/x", 400, "InvalidArgument", []string{own[0], "AES256", own[2], "c2hvcnQ=", own[4], own[5]}},
		{"PUT", "/bucket/x", 400, "InvalidEncryptionAlgorithmError", append([]string{own[0], "AES128"}, own[2:]...)},
		{"GET", "/bucket/c", 400, "InvalidRequest", nil},
		{"GET", "/bucket/c", 403, "AccessDenied", other},
		{"HEAD", "/bucket/c", 400, "", nil},
		{"HEAD", "/bucket/c", 403, "", other},
		{"GET", "/bucket/p", 400, "InvalidRequest", own},
		{"GET", "/bucket/p", 400, "InvalidArgument", withS3},
		{"GET", "/bucket/c?attributes", 400, "InvalidRequest", []string{"x-amz-object-attributes", "ObjectSize"}},
		{"PUT", "/bucket/x", 400, "InvalidRequest", []string{"x-amz-copy-source", "/bucket/c"}},
		{"PUT", "/bucket/x", 403, "AccessDenied", append([]string{"x-amz-copy-source", "/bucket/c"},
			customerHeaders("copy-source-", 8)...)},
		{"PUT", "/bucket/x?x-amz-server-side-encryption=AES256", 501, "NotImplemented", nil},
	} {
		body := []byte("content")
		if len(c.headers) > 0 && c.headers[0] == "x-amz-copy-source" {
			body = nil
		}
		r := w.do(c.method, c.path, body, c.headers...)
		if r.StatusCode != c.status || c.code != "" && r.code() != c.code {
			t.Errorf("%s %s %v: %d %s, expected %d %s: %s", c.method, c.path, c.headers, r.StatusCode, r.code(), c.status,
				c.code, r.body)
		}
	}
	w.must(404, "GET", "/bucket/x", nil)
	r := w.must(200, "PUT", "/bucket/d", []byte("x"), "x-amz-server-side-encryption", "aws:kms",
		"x-amz-server-side-encryption-context", base64.StdEncoding.EncodeToString([]byte(`{"a":"b"}`)))
	if got := r.Header.Get(kms); got != keyring.Default {
		t.Errorf("the default key is %q", got)
	}
}

// TestADefaultEncryptsWhateverIsWritten sets, reads and deletes a bucket's default and writes in every way.
func TestADefaultEncryptsWhateverIsWritten(t *testing.T) {
	w := startEncrypting(t)
	const doc = `<ServerSideEncryptionConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Rule>` +
		`<ApplyServerSideEncryptionByDefault><SSEAlgorithm>%s</SSEAlgorithm>%s</ApplyServerSideEncryptionByDefault>` +
		`<BucketKeyEnabled>true</BucketKeyEnabled></Rule></ServerSideEncryptionConfiguration>`
	kms := fmt.Sprintf(doc, "aws:kms", "<KMSMasterKeyID>payroll</KMSMasterKeyID>")
	if r := w.must(404, "GET", "/bucket?encryption", nil); r.code() != "ServerSideEncryptionConfigurationNotFoundError" {
		t.Errorf("%s", r.body)
	}
	for text, code := range map[string]string{
		"<a></a>": "MalformedXML", fmt.Sprintf(doc, "AES128", ""): "MalformedXML",
		fmt.Sprintf(doc, "AES256", "<KMSMasterKeyID>payroll</KMSMasterKeyID>"): "InvalidArgument",
		fmt.Sprintf(doc, "aws:kms", "<KMSMasterKeyID>none</KMSMasterKeyID>"):   "KMS.NotFoundException",
		strings.Replace(kms, "<Rule>", "<Rule><Other/>", 1):                    "MalformedXML",
	} {
		if r := w.do("PUT", "/bucket?encryption", []byte(text)); r.StatusCode != 400 || r.code() != code {
			t.Errorf("%s: %d %s, expected %s", text, r.StatusCode, r.body, code)
		}
	}
	w.must(200, "PUT", "/bucket?encryption", []byte(kms))
	if r := w.must(200, "GET", "/bucket?encryption", nil); !strings.Contains(string(r.body), "<KMSMasterKeyID>payroll<") ||
		!strings.Contains(string(r.body), "<BucketKeyEnabled>true<") {
		t.Errorf("%s", r.body)
	}
	w.people("alice")
	if r, err := w.try("alice", "alice-secret", "GET", "/bucket?encryption", nil); err != nil || r.StatusCode != 403 {
		t.Errorf("a stranger reads the default: %+v %v", r, err)
	}
	if r, err := w.try("alice", "alice-secret", "DELETE", "/bucket?encryption", nil); err != nil || r.StatusCode != 403 {
		t.Errorf("a stranger deletes the default: %+v %v", r, err)
	}
	w.must(200, "PUT", "/bucket/put", []byte("hello"))
	w.must(200, "PUT", "/bucket/large", bytes.Repeat([]byte("hello"), 1<<20))
	w.must(200, "PUT", "/bucket/copy", nil, "x-amz-copy-source", "/bucket/put")
	w.postedAs(rootKey, rootSecret, time.Now(), 204, "bucket", "form")
	create := w.must(200, "POST", "/bucket/parts?uploads", nil)
	id := textInside(string(create.body), "<UploadId>", "</UploadId>")
	etag := w.must(200, "PUT", "/bucket/parts?partNumber=1&uploadId="+id, []byte("hello")).Header.Get("ETag")
	w.must(200, "POST", "/bucket/parts?uploadId="+id,
		[]byte("<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"+
			etag+"</ETag></Part></CompleteMultipartUpload>"))
	for _, key := range []string{"put", "large", "copy", "form", "parts"} {
		r := w.must(200, "GET", "/bucket/"+key, nil)
		if r.Header.Get("x-amz-server-side-encryption") != "aws:kms" || len(r.body) == 0 ||
			r.Header.Get("x-amz-server-side-encryption-bucket-key-enabled") != "true" {
			t.Errorf("%s: %v", key, r.Header)
		}
	}
	w.must(204, "DELETE", "/bucket?encryption", nil)
	w.must(200, "PUT", "/bucket/plain", []byte("hello"))
	if r := w.must(200, "GET", "/bucket/plain", nil); r.Header.Get("x-amz-server-side-encryption") != "" {
		t.Errorf("%v", r.Header)
	}
}

// TestPoliciesOfFormsAndDefaults posts forms to a bucket with a default encryption. As in S3, the policy of a form need
// not name encryption. A condition on a field that the form does not have fails, also if the condition admits any
// value.
func TestPoliciesOfFormsAndDefaults(t *testing.T) {
	w := startEncrypting(t)
	w.people("alice")
	w.as("alice", 200, "PUT", "/corp", "")
	for _, kind := range []string{"AES256", "aws:kms"} {
		w.as("alice", 200, "PUT", "/corp?encryption", "<ServerSideEncryptionConfiguration><Rule>"+
			"<ApplyServerSideEncryptionByDefault><SSEAlgorithm>"+kind+"</SSEAlgorithm></ApplyServerSideEncryptionByDefault>"+
			"</Rule></ServerSideEncryptionConfiguration>")
		const key, file = `["starts-with","$key",""]`, `; filename="f"`
		if r := w.fileForm("alice", "corp", "form", file, key); r.StatusCode != 204 {
			t.Errorf("%s: %d %s", kind, r.StatusCode, r.body)
		}
		if r := w.as("alice", 200, "GET", "/corp/form", ""); r.Header.Get("x-amz-server-side-encryption") != kind {
			t.Errorf("%s: %v", kind, r.Header)
		}
		r := w.fileForm("alice", "corp", "form", file, key, `["starts-with","$x-amz-server-side-encryption",""]`)
		if r.StatusCode != 403 || r.code() != "AccessDenied" || !strings.Contains(string(r.body), "Policy Condition failed") {
			t.Errorf("%s, with a condition on a missing field: %d %s", kind, r.StatusCode, r.body)
		}
	}
}

func textInside(text, from, to string) string {
	_, text, _ = strings.Cut(text, from)
	text, _, _ = strings.Cut(text, to)
	return text
}

// TestPartsNeedTheKeyOfTheirUpload sends parts with wrong keys.
func TestPartsNeedTheKeyOfTheirUpload(t *testing.T) {
	w := startEncrypting(t)
	own, other := customerHeaders("", 7), customerHeaders("", 8)
	id := textInside(string(w.must(200, "POST", "/bucket/k?uploads", nil, own...).body), "<UploadId>", "</UploadId>")
	at := "/bucket/k?partNumber=1&uploadId=" + id
	for _, headers := range [][]string{nil, other, withS3} {
		if r := w.do("PUT", at, []byte("hello"), headers...); r.StatusCode != http.StatusBadRequest ||
			r.code() != "InvalidRequest" {
			t.Errorf("%v: %d %s", headers, r.StatusCode, r.body)
		}
	}
	r := w.must(200, "PUT", at, []byte("hello"), own...)
	done := []byte("<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" + r.Header.Get("ETag") +
		"</ETag></Part></CompleteMultipartUpload>")
	if r := w.do("POST", "/bucket/k?uploadId="+id, done, other...); r.StatusCode != 400 {
		t.Errorf("completed with another key: %d %s", r.StatusCode, r.body)
	}
	w.must(200, "POST", "/bucket/k?uploadId="+id, done)
	if r := w.must(200, "GET", "/bucket/k", nil, own...); string(r.body) != "hello" {
		t.Errorf("%q", r.body)
	}
	w.must(400, "GET", "/bucket/k", nil)
	// A copy onto itself changes the encryption.
	w.must(200, "PUT", "/bucket/k", nil, append(append([]string{"x-amz-copy-source", "/bucket/k"},
		customerHeaders("copy-source-", 7)...), withS3...)...)
	if r := w.must(200, "GET", "/bucket/k", nil); string(r.body) != "hello" ||
		r.Header.Get("x-amz-server-side-encryption") != "AES256" {
		t.Errorf("%q %v", r.body, r.Header)
	}
}
