// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// signedWith signs the policy of a form.
func signedWith(secret, day, policy string) string {
	key := []byte("AWS4" + secret)
	for _, text := range []string{day, testRegion, "s3", "aws4_request", policy} {
		h := hmac.New(sha256.New, key)
		_, _ = h.Write([]byte(text))
		key = h.Sum(nil)
	}
	return hex.EncodeToString(key)
}

// presigned asks with a presigned URL that was dated at, and is valid for that many seconds.
func (w *world) presigned(access, secret, method, path string, at time.Time, seconds string, headers ...string) *reply {
	w.t.Helper()
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	req := w.request(method, path+sep+"X-Amz-Expires="+seconds, nil, headers...)
	uri, signed, err := v4.NewSigner().PresignHTTP(context.Background(),
		aws.Credentials{AccessKeyID: access, SecretAccessKey: secret}, req, "UNSIGNED-PAYLOAD", "s3", testRegion, at,
		func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err != nil {
		w.t.Fatal(err)
	}
	again, err := http.NewRequest(method, uri, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for k, v := range signed {
		if k != "Host" {
			again.Header[k] = v
		}
	}
	return w.sent(again)
}

// TestSignaturesOfAnotherTime dates requests ahead and back.
func TestSignaturesOfAnotherTime(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("x"))
	now := time.Now()
	for name, x := range map[string]struct {
		at      time.Time
		seconds string
		status  int
	}{
		"now":                  {now, "60", 200},
		"ten minutes ahead":    {now.Add(10 * time.Minute), "60", 200},
		"twenty minutes ahead": {now.Add(20 * time.Minute), "60", 403},
		"a year ahead":         {now.AddDate(1, 0, 0), "604800", 403},
		"an hour ago":          {now.Add(-time.Hour), "7200", 200},
		"over":                 {now.Add(-time.Hour), "60", 403},
		"for eight days":       {now, "691200", 400},
	} {
		if r := w.presigned(rootKey, rootSecret, "GET", "/bucket/key", x.at, x.seconds); r.StatusCode != x.status {
			t.Errorf("%s: %d, expected %d: %s", name, r.StatusCode, x.status, r.body)
		}
	}
	for _, at := range []time.Duration{-20 * time.Minute, 20 * time.Minute, 365 * 24 * time.Hour} {
		req := w.request("GET", "/bucket/key", nil, "X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		err := v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: rootKey, SecretAccessKey: rootSecret}, req,
			"UNSIGNED-PAYLOAD", "s3", testRegion, now.Add(at))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 403 {
			t.Errorf("a header dated %v from now: %d", at, resp.StatusCode)
		}
	}
	w.posted(204, "bucket", "form")
	if r := w.postedAs(rootKey, rootSecret, now.AddDate(1, 0, 0), 403, "bucket", "form"); r.code() != "AccessDenied" {
		t.Errorf("%s", r.body)
	}
}

// TestFormsAreJudgedByTheirKey posts forms where a policy speaks of keys.
func TestFormsAreJudgedByTheirKey(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(
		`{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":["arn:aws:s3:::corp","arn:aws:s3:::corp/*"]}`,
		`{"Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/secret/*"}`))
	now := time.Now()
	w.postedAs("bob", "bob-secret", now, 204, "corp", "open/key")
	w.postedAs("bob", "bob-secret", now, 403, "corp", "secret/key")
	w.postedAs("", "", now, 204, "corp", "open/key")
	w.postedAs("", "", now, 403, "corp", "secret/key")
	w.postedAs("bob", "bob-secret", now, 403, "corp", "open/key", "tagging",
		"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>")
	for field, status := range map[string]int{"acl=public-read": 400, "acl=private": 204,
		"acl=bucket-owner-full-control":   204,
		"x-amz-object-lock-legal-hold=ON": 501, "x-amz-server-side-encryption=AES256": 501} {
		name, value, _ := strings.Cut(field, "=")
		w.postedAs("bob", "bob-secret", now, status, "corp", "open/key", name, value)
	}
}

// TestEverybodySeesOnlyWhatWasGranted asks without a signature for what lies beside an object's content.
func TestEverybodySeesOnlyWhatWasGranted(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/corp", nil, "x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-acl", "public-read",
		"x-amz-bucket-object-lock-enabled", "true")
	old := w.must(200, "PUT", "/corp/key", []byte("old"), "x-amz-tagging", "secret=old", "x-amz-acl",
		"public-read").Header.Get("x-amz-version-id")
	w.must(200, "PUT", "/corp/key", []byte("new"), "x-amz-tagging", "secret=new", "x-amz-object-lock-legal-hold", "ON",
		"x-amz-acl", "public-read")
	ask := func(status int, method, path string, headers ...string) *reply {
		t.Helper()
		r, err := w.try("", "", method, path, nil, headers...)
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != status {
			t.Errorf("%s %s: %d, expected %d: %s", method, path, r.StatusCode, status, r.body)
		}
		return r
	}
	attributes := []string{"x-amz-object-attributes", "ETag,ObjectSize"}
	check := func(tags, oldTags, attrs, oldAttrs int, count, hold string) {
		t.Helper()
		ask(tags, "GET", "/corp/key?tagging")
		ask(oldTags, "GET", "/corp/key?tagging&versionId="+old)
		ask(attrs, "GET", "/corp/key?attributes", attributes...)
		ask(oldAttrs, "GET", "/corp/key?attributes&versionId="+old, attributes...)
		for _, method := range []string{"GET", "HEAD"} {
			h := ask(200, method, "/corp/key").Header
			if h.Get("x-amz-tagging-count") != count || h.Get("x-amz-object-lock-legal-hold") != hold {
				t.Errorf("%s: %v", method, h)
			}
		}
	}
	allow := func(actions string) {
		w.must(204, "PUT", "/corp?policy", []byte(policyOf(`{"Effect":"Allow","Principal":"*","Action":[`+actions+
			`],"Resource":"arn:aws:s3:::corp/*"}`)))
	}
	check(403, 403, 200, 403, "", "")
	allow(`"s3:GetObject"`)
	check(403, 403, 200, 403, "", "")
	allow(`"s3:GetObject","s3:GetObjectTagging","s3:GetObjectLegalHold"`)
	check(200, 403, 200, 403, "1", "ON")
	allow(`"s3:GetObject","s3:GetObjectVersion","s3:GetObjectTagging","s3:GetObjectVersionTagging","s3:GetObjectVersionAttributes"`)
	check(200, 200, 200, 200, "1", "")
	allow(`"s3:PutObjectTagging","s3:DeleteObjectTagging"`)
	doc := "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
	r, err := w.try("", "", "PUT", "/corp/key?tagging&versionId="+old, []byte(doc), "Content-MD5", md5Base64(doc))
	if err != nil || r.StatusCode != 403 {
		t.Errorf("tags of an old version were put: %v %+v", err, r)
	}
	ask(403, "DELETE", "/corp/key?tagging&versionId="+old)
	ask(204, "DELETE", "/corp/key?tagging")
}

// TestFormsOfAnotherDay posts forms that were signed with the key of another day than they are dated.
func TestFormsOfAnotherDay(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	now := time.Now()
	w.postedOn(now.UTC().Format("20060102"), rootKey, rootSecret, now, 204, "bucket", "key")
	for _, day := range []string{now.AddDate(0, 0, -3).UTC().Format("20060102"), "20200101",
		now.AddDate(0, 0, 2).UTC().Format("20060102")} {
		w.postedOn(day, rootKey, rootSecret, now, 400, "bucket", "other")
	}
	w.must(404, "GET", "/bucket/other", nil)
}
