// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

func TestNamesThatS3KeepsForItself(t *testing.T) {
	w := start(t, nil, nil)
	for _, name := range []string{
		"xn--bucket", "sthree-bucket", "sthree-configurator-bucket", "amzn-s3-demo-bucket", "bucket-s3alias", "bucket--ol-s3",
		"bucket.mrap", "bucket--x-s3", "bucket--table-s3",
	} {
		if r := w.do("PUT", "/"+name, nil); r.StatusCode != 400 || r.code() != "InvalidBucketName" {
			t.Errorf("%s: %d %s", name, r.StatusCode, r.code())
		}
	}
	for _, name := range []string{"bucket-xn--a", "sthree", "bucket-s3alias-1", "mrap"} {
		w.must(200, "PUT", "/"+name, nil)
	}
}

func TestOnlyStandardIsAStorageClass(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("x"), "x-amz-storage-class", "STANDARD")
	for _, class := range []string{"REDUCED_REDUNDANCY", "GLACIER", "standard", "nonsense"} {
		for _, c := range []struct{ method, path, source string }{
			{"PUT", "/bucket/new", ""}, {"POST", "/bucket/new?uploads", ""}, {"PUT", "/bucket/new", "/bucket/key"},
			{"PUT", "/bucket/new?x-amz-storage-class=" + class, ""},
		} {
			headers := []string{"x-amz-storage-class", class}
			if c.source != "" {
				headers = append(headers, "x-amz-copy-source", c.source)
			}
			if strings.Contains(c.path, "class") {
				headers = nil
			}
			if r := w.do(c.method, c.path, nil, headers...); r.StatusCode != 400 || r.code() != "InvalidStorageClass" {
				t.Errorf("%s %s as %s: %d %s", c.method, c.path, class, r.StatusCode, r.body)
			}
		}
	}
	w.must(404, "GET", "/bucket/new", nil)
}

// TestLengthsAreCheckedFirst announces lengths that S3 refuses, and sends no body.
func TestLengthsAreCheckedFirst(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	for _, c := range []struct {
		head, code string
		status     int
	}{
		{"PUT /public/key HTTP/1.1\r\nContent-Length: 6597069766656\r\n", "EntityTooLarge", 400},
		{"PUT /public/key HTTP/1.1\r\nContent-Length: 5368709121\r\n", "EntityTooLarge", 400},
		{"PUT /public/key?partNumber=1&uploadId=x HTTP/1.1\r\nContent-Length: 5368709121\r\n", "EntityTooLarge", 400},
		{"POST /public HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=a\r\nContent-Length: 6597069766656\r\n",
			"EntityTooLarge", 400},
		{"PUT /public/key HTTP/1.1\r\nX-Amz-Decoded-Content-Length: 6597069766656\r\nContent-Length: 9000\r\n",
			"EntityTooLarge", 400},
		{"PUT /public/key HTTP/1.1\r\nX-Amz-Decoded-Content-Length: -1\r\nContent-Length: 9000\r\n", "MissingContentLength",
			411},
		{"PUT /public/key HTTP/1.1\r\nX-Amz-Decoded-Content-Length: 1e3\r\nContent-Length: 9000\r\n", "MissingContentLength",
			411},
		{"PUT /public/key HTTP/1.1\r\nX-Amz-Decoded-Content-Length: 5\r\nContent-Length: 65970697666560\r\n",
			"EntityTooLarge", 400},
		{"PUT /public/key HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", "MissingContentLength", 411},
		{"POST /public HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=a\r\nTransfer-Encoding: chunked\r\n",
			"MissingContentLength", 411},
	} {
		all := raw(t, w, c.head+"Host: a\r\n\r\n"+strings.Repeat("0", 9000))
		if len(all) != 1 || all[0].StatusCode != c.status || all[0].code() != c.code {
			t.Errorf("%s: %s, expected %d %s", c.head, statuses(all), c.status, c.code)
		}
	}
}

// TestAPutWithoutALength: what says nothing of a body is no empty object.
func TestAPutWithoutALength(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	if all := raw(t, w, "PUT /public/key HTTP/1.1\r\nHost: a\r\n\r\n"); len(all) != 1 || all[0].StatusCode != 411 {
		t.Errorf("%s", statuses(all))
	}
	if all := raw(t, w, "PUT /public/key HTTP/1.1\r\nHost: a\r\ncontent-length: 0\r\n\r\n"); len(all) != 1 ||
		all[0].StatusCode != 200 {
		t.Errorf("%s", statuses(all))
	}
}

func TestObjectsOfPartsAreBounded(t *testing.T) {
	parts := make([]object.PartInfo, 1025)
	for i := range parts {
		parts[i].Size = maxUpload
	}
	if err := checkObjectSize(parts[:1024]); err != nil {
		t.Errorf("5 TiB: %v", err)
	}
	var known s3err.S3Error
	if err := checkObjectSize(parts); !errors.As(err, &known) || known.BaseError().Code != "EntityTooLarge" {
		t.Errorf("more: %v", err)
	}
}

func TestArgumentsThatCannotBe(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("hello"))
	for _, query := range []string{
		"list-type=2&continuation-token=nonsense", "list-type=2&continuation-token=%00", "list-type=2&continuation-token=" +
			tokenOfKey("a") + "x",
		"list-type=2&continuation-token=" + base64.RawURLEncoding.EncodeToString([]byte("0000key")),
		"encoding-type=base64", "list-type=2&encoding-type=URL", "versions&encoding-type=x", "uploads&encoding-type=x",
		"prefix=%FF", "list-type=2&delimiter=%C3", "marker=%FF", "max-keys=-1", "max-keys=x", "max-keys=99999999999999999999",
	} {
		if r := w.do("GET", "/bucket?"+query, nil); r.StatusCode != 400 || r.code() != "InvalidArgument" {
			t.Errorf("%s: %d %s", query, r.StatusCode, r.body)
		}
	}
	if r := w.do("GET", "/?continuation-token=%01", nil); r.StatusCode != 400 || r.code() != "InvalidArgument" {
		t.Errorf("a token of buckets: %d %s", r.StatusCode, r.body)
	}
	if r, err := w.try("", "", "POST", "/bucket/key?select&select-type=2", nil); err != nil || r.StatusCode != 403 {
		t.Errorf("S3 Select by anybody: %+v %v", r, err)
	}
	if r := w.do("POST", "/bucket/key?select", nil); r.StatusCode != 501 {
		t.Errorf("S3 Select without its type: %d %s", r.StatusCode, r.body)
	}
	if r := w.do("POST", "/bucket/key?select&select-type=2",
		[]byte("<SelectObjectContentRequest></SelectObjectContentRequest>")); r.StatusCode != 501 ||
		r.code() != "NotImplemented" {
		t.Errorf("S3 Select: %d %s", r.StatusCode, r.body)
	}
}

// TestTokensGoOn lists keys of all kinds one by one.
func TestTokensGoOn(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	keys := []string{"a", "b/c", "base64:x", "d\x01", "e f+g", "ü"}
	for _, k := range keys {
		w.must(200, "PUT", "/bucket/"+escapeV4(k), nil)
	}
	token, n := "", 0
	for range len(keys) + 1 {
		r := w.must(200, "GET", "/bucket?list-type=2&max-keys=1&encoding-type=url&continuation-token="+token, nil)
		n += strings.Count(string(r.body), "<Key>")
		_, rest, more := strings.Cut(string(r.body), "<NextContinuationToken>")
		if !more {
			break
		}
		token, _, _ = strings.Cut(rest, "<")
	}
	if n != len(keys) {
		t.Errorf("%d keys, expected %d", n, len(keys))
	}
}

// TestControlCharactersStayOutOfHeaders brings them in by every way that ends in a header of a reply.
func TestControlCharactersStayOutOfHeaders(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("x"))
	w.must(204, "PUT", "/bucket?policy", []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::bucket","arn:aws:s3:::bucket/*"]}]}`))
	at := fmt.Sprintf("http://%s/bucket", w.addr)
	for _, bad := range []string{"a\x00b", "a\rb", "a\nb", "a\r\nSet-Cookie: x", "a\x7f", "a\x1b"} {
		for _, field := range []string{
			"Content-Type", "Content-Disposition", "Content-Encoding", "Content-Language", "Cache-Control", "Expires",
			"x-amz-website-redirect-location", "x-amz-meta-a", "success_action_redirect", "x-amz-storage-class", "acl",
		} {
			if r := post(t, w.http, at, map[string]string{"key": "form", field: bad}, "x"); r.StatusCode != 400 {
				t.Errorf("field %s %q: %d %v %s", field, bad, r.StatusCode, r.Header, r.body)
			}
		}
		for _, arg := range []string{"content-type", "content-disposition", "content-encoding", "content-language",
			"cache-control", "expires"} {
			if r := w.do("GET", "/bucket/key?response-"+arg+"="+url.QueryEscape(bad), nil); r.StatusCode != 400 ||
				r.code() != "InvalidArgument" {
				t.Errorf("response-%s %q: %d %v", arg, bad, r.StatusCode, r.Header)
			}
		}
	}
	w.must(404, "GET", "/bucket/form", nil)
	r := post(t, w.http, at, map[string]string{"key": "new\r\nSet-Cookie: x\x00"}, "x")
	if r.StatusCode != 204 || r.Header.Get("Set-Cookie") != "" ||
		!strings.HasSuffix(r.Header.Get("Location"), "/bucket/new%0D%0ASet-Cookie:%20x%00") {
		t.Errorf("a key: %d %v", r.StatusCode, r.Header)
	}
	// What another version has stored comes out without them.
	put := object.Put{Bucket: "bucket", Key: "old", Size: 1, Body: strings.NewReader("x"),
		Attributes: map[string]string{attrType: "a\x00b", metaPrefix + "m": "c\x1bd"}}
	if _, err := w.store.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	r = w.must(200, "GET", "/bucket/old", nil)
	if r.Header.Get("Content-Type") != "a b" || r.Header.Get("x-amz-meta-m") != "c d" {
		t.Errorf("%q", r.Header)
	}
}

// TestFieldsOfFormsAreBounded sends fields without an end, before anybody knows who signs them.
func TestFieldsOfFormsAreBounded(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	at := fmt.Sprintf("http://%s/public", w.addr)
	r := post(t, w.http, at, map[string]string{"key": "form", "x-amz-meta-a": strings.Repeat("x", 4<<20)}, "x")
	if r.StatusCode != 400 || r.code() != "MaxPostPreDataLengthExceeded" {
		t.Errorf("a field of 4 MiB: %d %s", r.StatusCode, r.body)
	}
	many := map[string]string{"key": "form"}
	for i := range 10_000 {
		many[fmt.Sprint("x-amz-meta-", i)] = "x"
	}
	if r := post(t, w.http, at, many, "x"); r.StatusCode != 400 || r.code() != "MaxPostPreDataLengthExceeded" {
		t.Errorf("10,000 fields: %d %s", r.StatusCode, r.body)
	}
	if r := post(t, w.http, at, map[string]string{"key": "form", "x-amz-server-side-encryption": "AES256"},
		"x"); r.StatusCode != 501 {
		t.Errorf("encryption: %d %s", r.StatusCode, r.body)
	}
	for name, body := range map[string]string{
		"no end":        "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nx",
		"no file":       "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nx\r\n--b--\r\n",
		"no boundary":   "x",
		"bare newlines": "--b\nContent-Disposition: form-data; name=\"key\"\n\nx\n--b--\n",
		"a file cut short": "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nx\r\n--b\r\nContent-Disposition: " +
			"form-data; name=\"file\"\r\n\r\nx",
		"an empty name": "--b\r\nContent-Disposition: form-data; name=\"\"\r\n\r\nx\r\n--b--\r\n",
	} {
		resp, err := w.http.Post(at, "multipart/form-data; boundary=b", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	big := bytes.Repeat([]byte("0123456789"), 1<<20)
	if r := post(t, w.http, at, map[string]string{"key": "big"}, string(big)); r.StatusCode != 204 {
		t.Fatalf("10 MiB of file: %d %s", r.StatusCode, r.body)
	}
	if r := w.must(200, "GET", "/public/big", nil); !bytes.Equal(r.body, big) {
		t.Error("the file is another one")
	}
}

// TestFormsAreDeniedByTheirKey: a policy that denies some keys also denies them to forms, signed or not.
func TestFormsAreDeniedByTheirKey(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "alice", Secret: "alicesecret",
		Role: iam.RoleUser}); err != nil {
		t.Fatal(err)
	}
	w.must(204, "PUT", "/bucket?policy", []byte(`{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::bucket","arn:aws:s3:::bucket/*"]},
		{"Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/secret/*"}]}`))
	at := fmt.Sprintf("http://%s/bucket", w.addr)
	policy := formPolicy(t, time.Now().Add(time.Minute), map[string]string{"bucket": "bucket"},
		[]string{"starts-with", "$key", ""})
	for key, status := range map[string]int{"open/a": 204, "secret/a": 403} {
		if r := post(t, w.http, at, map[string]string{"key": key}, "x"); r.StatusCode != status {
			t.Errorf("%s by anybody: %d, expected %d: %s", key, r.StatusCode, status, r.body)
		}
		signed := map[string]string{"key": key, "AWSAccessKeyId": "alice", "policy": policy,
			"signature": signV2("alicesecret", policy)}
		if r := post(t, w.http, at, signed, "x"); r.StatusCode != status {
			t.Errorf("%s by alice: %d, expected %d: %s", key, r.StatusCode, status, r.body)
		}
	}
}

// TestWhatNoBucketHas reads and deletes configurations that this server does not have.
func TestWhatNoBucketHas(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "alice", Secret: "alicesecret",
		Role: iam.RoleUser}); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"lifecycle": "NoSuchLifecycleConfiguration", "encryption": "ServerSideEncryptionConfigurationNotFoundError",
		"replication": "ReplicationConfigurationNotFoundError", "publicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
		"website": "NoSuchWebsiteConfiguration", "cors": "NoSuchCORSConfiguration", "tagging": "NoSuchTagSet",
		"policy":       "NoSuchBucketPolicy",
		"policyStatus": "NoSuchBucketPolicy", "object-lock": "ObjectLockConfigurationNotFoundError",
		"analytics&id=a": "NoSuchConfiguration", "inventory&id=a": "NoSuchConfiguration",
		"metrics&id=a": "NoSuchConfiguration", "intelligent-tiering&id=a": "NoSuchConfiguration",
		"notification": "<NotificationConfiguration", "logging": "<BucketLoggingStatus",
		"accelerate": "<AccelerateConfiguration", "requestPayment": "<Payer>BucketOwner</Payer>",
		"analytics": "<ListBucketAnalyticsConfigurationResult", "inventory": "<ListInventoryConfigurationsResult",
		"metrics":             "<ListMetricsConfigurationsResult",
		"intelligent-tiering": "<ListBucketIntelligentTieringConfigurationsOutput",
	} {
		r := w.do("GET", "/bucket?"+query, nil)
		switch document := strings.HasPrefix(want, "<"); {
		case document && (r.StatusCode != 200 || !strings.Contains(string(r.body), want) ||
			r.Header.Get("Content-Type") != "application/xml"):
			t.Errorf("%s: %d %v %s", query, r.StatusCode, r.Header, r.body)
		case !document && (r.StatusCode != 404 || r.code() != want):
			t.Errorf("%s: %d %s, expected 404 %s", query, r.StatusCode, r.body, want)
		}
		for _, c := range []struct {
			key, secret, bucket string
			status              int
		}{{"alice", "alicesecret", "bucket", 403}, {"", "", "bucket", 403}, {"alice", "wrong", "bucket", 403},
			{rootKey, rootSecret, "none", 404}} {
			r, err := w.try(c.key, c.secret, "GET", "/"+c.bucket+"?"+query, nil)
			if err != nil || r.StatusCode != c.status {
				t.Errorf("%s of %s to %q: %d, expected %d: %v", query, c.bucket, c.key, r.StatusCode, c.status, err)
			}
		}
	}
	for _, query := range []string{"lifecycle", "encryption", "replication", "publicAccessBlock", "analytics&id=a",
		"inventory&id=a", "metrics&id=a", "intelligent-tiering&id=a", "website", "cors", "tagging", "policy"} {
		if r := w.must(http.StatusNoContent, "DELETE", "/bucket?"+query, nil); len(r.body) > 0 {
			t.Errorf("DELETE %s: %s", query, r.body)
		}
		r, err := w.try("alice", "alicesecret", "DELETE", "/bucket?"+query, nil)
		if err != nil || r.StatusCode != 403 {
			t.Errorf("DELETE %s by a stranger: %+v %v", query, r, err)
		}
	}
	for _, query := range []string{"encryption", "accelerate", "requestPayment", "analytics&id=a"} {
		if r := w.do("PUT", "/bucket?"+query, []byte("<a></a>")); r.StatusCode != 501 {
			t.Errorf("PUT %s: %d %s", query, r.StatusCode, r.body)
		}
	}
	for _, query := range []string{"notification", "logging"} {
		if r := w.do("PUT", "/bucket?"+query, []byte("<a></a>")); r.StatusCode != 400 || r.code() != "MalformedXML" {
			t.Errorf("PUT %s: %d %s", query, r.StatusCode, r.body)
		}
		if r, err := w.try("alice", "alicesecret", "PUT", "/bucket?"+query, []byte("<a></a>")); err != nil ||
			r.StatusCode != 403 {
			t.Errorf("PUT %s by a stranger: %+v %v", query, r, err)
		}
	}
	w.must(200, "HEAD", "/bucket", nil)
}

// TestOnlyOneSignature signs requests of all kinds in the URL and in a header.
func TestOnlyOneSignature(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("x"))
	presigned := func(method, path, header string) string {
		return w.exchange(rawRequest{method: method, target: path, query: "60", more: []string{"Authorization", header}}.
			text(w.addr))
	}
	v2 := func(method string) string {
		return w.exchange(method + " " + v2URL(w, rootSecret, method, "/bucket/key", time.Now().Add(time.Minute), "") +
			" HTTP/1.1\r\nHost: " + w.addr + "\r\nContent-Length: 0\r\nAuthorization: Basic x\r\n\r\n")
	}
	signed := func(method, target string) string {
		return w.exchange(rawRequest{method: method, target: target}.text(w.addr))
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
		for name, reply := range map[string]string{
			"version 4 and basic":  presigned(method, "/bucket/key", "Basic x"),
			"version 4 on buckets": presigned(method, "/bucket", "Basic x"),
			"version 4 twice": presigned(method, "/bucket/key", algorithmV4+
				" Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"),
			"version 4 and 2":             presigned(method, "/bucket/key", "AWS a:b"),
			"version 2 and basic":         v2(method),
			"a signature of version 2":    signed(method, "/bucket/key?Signature=a"),
			"an access key of version 2":  signed(method, "/bucket/key?AWSAccessKeyId=a"),
			"an algorithm of version 4":   signed(method, "/bucket/key?X-Amz-Algorithm=a"),
			"a signature of version 4":    signed(method, "/bucket/key?X-Amz-Signature=a"),
			"an argument without a value": signed(method, "/bucket/key?X-Amz-Signature="),
		} {
			told := strings.Contains(reply, "<Code>InvalidArgument</Code><Message>Only one auth mechanism allowed; only the "+
				"X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be "+
				"specified</Message>")
			if !strings.Contains(reply[:min(len(reply), 20)], "HTTP/1.1 400") || !told && method != "HEAD" {
				t.Errorf("%s, %s: %.600s", method, name, reply)
			}
		}
	}
	if r := w.must(200, "GET", "/bucket/key", nil); string(r.body) != "x" {
		t.Errorf("the object became %q", r.body)
	}
}
