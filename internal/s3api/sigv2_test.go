// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// v2URL signs a URL with version 2 by hand. resource is what is signed, extra stands unsigned behind it.
func v2URL(w *world, secret, method, resource string, expires time.Time, extra string) string {
	at := strconv.FormatInt(expires.Unix(), 10)
	signature := signV2(secret, method+"\n\n\n"+at+"\n"+resource)
	path, query, _ := strings.Cut(resource, "?")
	all := "AWSAccessKeyId=" + rootKey + "&Expires=" + at + "&Signature=" + url.QueryEscape(signature)
	for _, q := range []string{query, extra} {
		if q != "" {
			all += "&" + q
		}
	}
	return path + "?" + all
}

// TestURLsOfVersion2 uses URLs that were signed with version 2, and tries to use them for something else.
func TestURLsOfVersion2(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	soon := time.Now().Add(time.Minute)
	get := func(method, path string, headers ...string) *reply {
		t.Helper()
		r, err := w.try("", "", method, path, []byte("content"), headers...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, key := range []string{"key", "dir/a%20b%2Bc", "a..b", "%C3%BC"} {
		if r := get("PUT", v2URL(w, rootSecret, "PUT", "/bucket/"+key, soon, "")); r.StatusCode != 200 {
			t.Fatalf("PUT %s: %d %s", key, r.StatusCode, r.body)
		}
		if r := get("GET", v2URL(w, rootSecret, "GET", "/bucket/"+key, soon, "")); r.StatusCode != 200 ||
			string(r.body) != "content" {
			t.Errorf("GET %s: %d %s", key, r.StatusCode, r.body)
		}
	}
	if r := get("GET", v2URL(w, rootSecret, "GET", "/bucket/key?response-content-type=a/b", soon,
		"")); r.Header.Get("Content-Type") != "a/b" {
		t.Errorf("an override: %v %s", r.Header, r.body)
	}
	if r := get("GET", v2URL(w, rootSecret, "GET", "/bucket/", soon, "list-type=2&prefix=dir")); r.StatusCode != 200 ||
		!strings.Contains(string(r.body), "dir/a b+c") {
		t.Errorf("a listing: %d %s", r.StatusCode, r.body)
	}
	if r := get("GET", v2URL(w, rootSecret, "GET", "/bucket?location", soon, "")); r.StatusCode != 200 {
		t.Errorf("a sub-resource: %d %s", r.StatusCode, r.body)
	}
	good := v2URL(w, rootSecret, "GET", "/bucket/key", soon, "")
	for name, c := range map[string]struct {
		method, path, code string
		status             int
		headers            []string
	}{
		"another method": {"PUT", good, "SignatureDoesNotMatch", 403, nil},
		"another key":    {"GET", strings.Replace(good, "key", "a..b", 1), "SignatureDoesNotMatch", 403, nil},
		"a later end": {"GET", strings.Replace(good, "Expires=", "Expires=1", 1),
			"AuthorizationQueryParametersError", 400, nil},
		"another sub-resource":  {"GET", good + "&acl", "SignatureDoesNotMatch", 403, nil},
		"tags":                  {"GET", good + "&tagging", "SignatureDoesNotMatch", 403, nil},
		"retention":             {"GET", good + "&retention", "SignatureDoesNotMatch", 403, nil},
		"another version":       {"GET", good + "&versionId=null", "SignatureDoesNotMatch", 403, nil},
		"an override":           {"GET", good + "&response-content-type=text/html", "SignatureDoesNotMatch", 403, nil},
		"another header":        {"GET", good, "SignatureDoesNotMatch", 403, []string{"x-amz-copy-source", "/bucket/key"}},
		"a header in the query": {"GET", good + "&x-amz-acl=public-read", "SignatureDoesNotMatch", 403, nil},
		"an unknown argument":   {"GET", good + "&unknown=1", "AuthorizationQueryParametersError", 400, nil},
		"a content type":        {"GET", good, "SignatureDoesNotMatch", 403, []string{"Content-Type", "a/b"}},
		"both versions":         {"GET", good + "&X-Amz-Signature=0", "InvalidArgument", 400, nil},
		"an Authorization":      {"GET", good, "InvalidArgument", 400, []string{"Authorization", "AWS4-HMAC-SHA256 x"}},
		"two signatures":        {"GET", good + "&Signature=x", "AccessDenied", 403, nil},
		"no signature": {"GET", "/bucket/key?AWSAccessKeyId=" + rootKey + "&Expires=99999999999", "AccessDenied",
			403, nil},
		"no account": {"GET", strings.Replace(good, rootKey, "nobody", 1), "InvalidAccessKeyId", 403, nil},
		"another secret": {"GET", v2URL(w, "wrong", "GET", "/bucket/key", soon, ""), "SignatureDoesNotMatch", 403,
			nil},
		"the past": {"GET", v2URL(w, rootSecret, "GET", "/bucket/key", time.Now().Add(-time.Minute), ""),
			"AccessDenied", 403, nil},
		"more than a week ahead": {"GET", v2URL(w, rootSecret, "GET", "/bucket/key", time.Now().Add(8*24*time.Hour), ""),
			"AuthorizationQueryParametersError", 400, nil},
		"no time":                 {"GET", strings.Replace(good, "Expires=", "Expires=x", 1), "InvalidArgument", 400, nil},
		"a bucket that is not it": {"GET", v2URL(w, rootSecret, "GET", "/none/key", soon, ""), "NoSuchBucket", 404, nil},
	} {
		r := get(c.method, c.path, c.headers...)
		if r.StatusCode != c.status || r.code() != c.code {
			t.Errorf("%s: %d %s, expected %d %s: %s", name, r.StatusCode, r.code(), c.status, c.code, r.body)
		}
	}
	if r := w.must(200, "GET", "/bucket/key", nil); string(r.body) != "content" {
		t.Errorf("the object became %q", r.body)
	}
	cors := `<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>`
	w.must(200, "PUT", "/bucket?cors", []byte(cors), "Content-MD5", md5Base64(cors))
	if r := get("OPTIONS", good, "Origin", "http://a", "Access-Control-Request-Method", "GET"); r.StatusCode != 200 ||
		r.Header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("a browser that asks beforehand: %d %s", r.StatusCode, r.body)
	}
}

// TestVersion2EndsAtTheSameRights: an account with no rights has none with version 2 either, and an account's own
// bucket is its own.
func TestVersion2EndsAtTheSameRights(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("x"))
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "alice", Secret: "alicesecret",
		Role: iam.RoleUserPlus}); err != nil {
		t.Fatal(err)
	}
	client := func(access, secret string) *minio.Core {
		c, err := minio.NewCore(w.addr, &minio.Options{Creds: credentials.NewStaticV2(access, secret, ""),
			Region: testRegion})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	alice := client("alice", "alicesecret")
	ctx := t.Context()
	if err := alice.MakeBucket(ctx, "alices", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.PutObject(ctx, "alices", "a b/c", strings.NewReader("hello"), 5, "", "", minio.PutObjectOptions{
		ContentType: "text/plain", UserMetadata: map[string]string{"Color": "red  and   blue"},
	}); err != nil {
		t.Fatal(err)
	}
	info, err := alice.StatObject(ctx, "alices", "a b/c", minio.StatObjectOptions{})
	if err != nil || info.ContentType != "text/plain" || info.UserMetadata["Color"] != "red  and   blue" {
		t.Errorf("%+v %v", info, err)
	}
	if bk, err := w.store.Bucket(ctx, "alices"); err != nil || bk.Owner != "alice" {
		t.Errorf("the bucket's owner is %+v: %v", bk, err)
	}
	if _, err := alice.StatObject(ctx, "bucket", "key",
		minio.StatObjectOptions{}); minio.ToErrorResponse(err).StatusCode != 403 {
		t.Errorf("root's object: %v", err)
	}
	if _, err := client("alice", "wrong").ListObjectsV2("alices", "", "", "", "",
		10); minio.ToErrorResponse(err).Code != "SignatureDoesNotMatch" {
		t.Errorf("a wrong secret: %v", err)
	}
	old, err := w.try("", "", "GET", "/alices", nil, "Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat),
		"Authorization", "AWS alice:x")
	if err != nil || old.code() != "RequestTimeTooSkewed" {
		t.Errorf("an hour ago: %+v %v", old, err)
	}
}

// TestFormsOfVersion2 uploads forms that were signed with version 2, good ones and others.
func TestFormsOfVersion2(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	conditions := []any{map[string]string{"bucket": "bucket"}, []string{"starts-with", "$key", "up/"},
		[]any{"content-length-range", 0, 20}}
	policy := formPolicy(t, time.Now().Add(time.Minute), conditions...)
	form := func(change func(map[string]string)) map[string]string {
		f := map[string]string{"key": "up/file", "AWSAccessKeyId": rootKey, "policy": policy,
			"signature": signV2(rootSecret, policy)}
		if change != nil {
			change(f)
		}
		return f
	}
	at := fmt.Sprintf("http://%s/bucket", w.addr)
	if r := post(t, w.http, at, form(nil), "content"); r.StatusCode != 204 {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	if r := w.must(200, "GET", "/bucket/up/file", nil); string(r.body) != "content" {
		t.Errorf("%q", r.body)
	}
	far := formPolicy(t, time.Now().Add(8*24*time.Hour), conditions...)
	past := formPolicy(t, time.Now().Add(-time.Hour), conditions...)
	for name, c := range map[string]struct {
		status int
		change func(map[string]string)
	}{
		"another key":        {403, func(f map[string]string) { f["key"] = "down/file" }},
		"a wrong signature":  {403, func(f map[string]string) { f["signature"] = signV2("wrong", policy) }},
		"an empty signature": {400, func(f map[string]string) { f["signature"] = "" }},
		"no signature":       {400, func(f map[string]string) { delete(f, "signature") }},
		"no policy":          {400, func(f map[string]string) { delete(f, "policy") }},
		"no account":         {403, func(f map[string]string) { f["AWSAccessKeyId"] = "nobody" }},
		"both versions":      {400, func(f map[string]string) { f["x-amz-signature"] = "0" }},
		"a far end":          {400, func(f map[string]string) { f["policy"], f["signature"] = far, signV2(rootSecret, far) }},
		"the past": {403, func(f map[string]string) {
			f["policy"], f["signature"] = past,
				signV2(rootSecret, past)
		}},
		"a field too many": {403, func(f map[string]string) { f["acl"] = "public-read" }},
	} {
		f := form(c.change)
		if r := post(t, w.http, at, f, "other"); r.StatusCode != c.status {
			t.Errorf("%s: %d, expected %d: %s", name, r.StatusCode, c.status, r.body)
		}
	}
	if r := w.must(200, "GET", "/bucket/up/file", nil); string(r.body) != "content" {
		t.Errorf("the object became %q", r.body)
	}
}
