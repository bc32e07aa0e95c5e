// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

const originTime = "2021-03-04T05:06:07.891Z"

// TestCopiesKeepTheirOrigin: an admin adds versions with the time, the ETag and the place that they have elsewhere.
func TestCopiesKeepTheirOrigin(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil, "x-amz-bucket-object-lock-enabled", "true")
	lock := []byte("<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>" +
		"<Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>")
	w.must(200, "PUT", "/bucket?object-lock", lock, "Content-MD5", md5Base64(string(lock)))
	first := w.must(200, "PUT", "/bucket/key", []byte("one"), object.HeaderOriginModified, originTime,
		object.HeaderOriginETag, "abcdef-3", object.HeaderOriginVersion, "null")
	if got := first.Header.Get("ETag"); got != `"abcdef-3"` {
		t.Errorf("ETag %s", got)
	}
	head := w.must(200, "HEAD", "/bucket/key", nil)
	if head.Header.Get("Last-Modified") != "Thu, 04 Mar 2021 05:06:07 GMT" ||
		head.Header.Get("x-amz-object-lock-mode") != "" {
		t.Errorf("the copy has %v, expected the time of its origin and no default retention", head.Header)
	}
	again := w.do("PUT", "/bucket/key", []byte("one"), object.HeaderOriginModified, originTime)
	if again.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("a repeated copy gets %d %s", again.StatusCode, again.code())
	}
	marker := w.must(204, "DELETE", "/bucket/key", nil, object.HeaderOriginModified, originTime, object.HeaderOriginNewest,
		"null")
	if marker.Header.Get("x-amz-delete-marker") != "true" {
		t.Errorf("no delete marker: %v", marker.Header)
	}
	if again := w.do("DELETE", "/bucket/key", nil, object.HeaderOriginModified, originTime, object.HeaderOriginNewest,
		"null"); again.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("a repeated delete marker gets %d %s", again.StatusCode, again.code())
	}
	exact := string(w.must(200, "GET", "/bucket?versions", nil, object.HeaderExact, "true").body)
	at, older := strings.Index(exact, "<DeleteMarker>"), strings.Index(exact, "<Version>")
	if at < 0 || older < at || strings.Count(exact, "<LastModified>"+originTime+"</LastModified>") != 2 {
		t.Errorf("the exact listing is %s", exact)
	}
}

// TestOnlyAdminsChooseOrigins: a client that may write cannot choose the time or the ETag of an object.
func TestOnlyAdminsChooseOrigins(t *testing.T) {
	w := start(t, nil, nil)
	account := iam.Account{AccessKey: "writer", Secret: "writer-secret", Role: iam.RoleUserPlus}
	if err := w.iam.Add(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	if r, err := w.try(account.AccessKey, account.Secret, "PUT", "/writers", nil); err != nil || r.StatusCode != 200 {
		t.Fatalf("make a bucket: %v, %v", r, err)
	}
	for _, method := range []string{"PUT", "DELETE"} {
		r, err := w.try(account.AccessKey, account.Secret, method, "/writers/key", nil, object.HeaderOriginModified,
			originTime)
		if err != nil || r.StatusCode != http.StatusForbidden {
			t.Errorf("%s by a user gets %v, %v", method, r, err)
		}
	}
	req := w.request("PUT", "/writers/key", []byte("x"))
	sum := sha256.Sum256([]byte("x"))
	sign(t, req, rootKey, rootSecret, hex.EncodeToString(sum[:]))
	req.Header.Set(object.HeaderOriginModified, originTime)
	if r := w.sent(req); r.StatusCode != http.StatusForbidden {
		t.Errorf("a header that the signature does not cover gets %d", r.StatusCode)
	}
	for name, value := range map[string]string{object.HeaderOriginModified: "yesterday", object.HeaderOriginETag: `a"b`,
		object.HeaderOriginNewest: strings.Repeat("v", maxVersion+1)} {
		headers := map[string]string{object.HeaderOriginModified: originTime, name: value}
		var list []string
		for k, v := range headers {
			list = append(list, k, v)
		}
		r := w.do("PUT", "/writers/key", []byte("x"), list...)
		if r.StatusCode != 400 || r.code() != "InvalidArgument" || !strings.Contains(string(r.body), "expected") {
			t.Errorf("%s %q gets %d %s", name, value, r.StatusCode, r.body)
		}
	}
	w.must(404, "HEAD", "/writers/key", nil)
}

func FuzzParseOrigin(f *testing.F) {
	f.Add(originTime, "abc-3", "null", "v1")
	f.Fuzz(func(t *testing.T, modified, etag, version, newest string) {
		var h fasthttp.RequestHeader
		h.Set(object.HeaderOriginModified, modified)
		h.Set(object.HeaderOriginETag, etag)
		h.Set(object.HeaderOriginVersion, version)
		h.Set(object.HeaderOriginNewest, newest)
		if o, err := parseOrigin(&h); err == nil &&
			(len(o.ETag) > maxETag || len(o.Newest) > maxVersion || o.Modified.IsZero()) {
			t.Errorf("%+v", o)
		}
	})
}
