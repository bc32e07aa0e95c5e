// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// attacked is a bucket of alice's in which bob may do everything but read or write what lies under secret.
func attacked(t *testing.T) (w *world, version string) {
	w = start(t, nil, nil)
	w.people("alice", "bob", "mallory")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp?versioning",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	version = w.as("alice", 200, "PUT", "/corp/secret.txt", "the secret").Header.Get("x-amz-version-id")
	w.as("alice", 200, "PUT", "/corp/open.txt", "open")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(
		`{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":["s3:GetObject","s3:GetObjectVersion","s3:PutObject","s3:DeleteObject","s3:DeleteObjectVersion","s3:GetObjectTagging"],"Resource":"arn:aws:s3:::corp/*"}`,
		`{"Effect":"Deny","Principal":{"AWS":["bob"]},"Action":["s3:GetObject","s3:PutObject","s3:DeleteObject"],"Resource":"arn:aws:s3:::corp/secret*"}`,
		`{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::corp","Condition":{"StringLike":{"s3:prefix":"open*"}}}`))
	w.as("bob", 200, "PUT", "/bobs", "")
	return w, version
}

// TestWritingsOfAKeyAreOneKey reads what is denied under every other writing of its name.
func TestWritingsOfAKeyAreOneKey(t *testing.T) {
	w, version := attacked(t)
	for _, path := range []string{
		"/corp/secret.txt", "/corp/%73ecret.txt", "/corp/secret%2Etxt", "/corp%2Fsecret.txt", "//corp/secret.txt",
		"/corp//secret.txt", "/corp/./secret.txt",
		"/corp/x/../secret.txt", "/corp/secret.txt/", "/corp/secret.txt%00", "/corp/Secret.txt", "/Corp/secret.txt",
		"/CORP/secret.txt", "/corp./secret.txt",
		"/corp/secret.txt%3F", "/corp/secret.txt%23", "/corp/secret.txt;x", "/corp/%2573ecret.txt",
		"/corp/secret.txt?versionId=", "/corp/secret.txt?versionId=&versionId=" + version,
		"/corp/secret.txt?partNumber=1", "/corp/secret.txt?response-content-type=a", "/corp/secret.txt?x-id=GetObject",
		"/corp/secret.txt?foo=bar", "/corp/open.txt/../secret.txt", "/bobs/../corp/secret.txt",
		"/corp/secret.txt?VersionId=" + version,
	} {
		for _, method := range []string{"GET", "HEAD"} {
			r, err := w.try("bob", "bob-secret", method, path, nil)
			if err != nil {
				continue // no request of HTTP
			}
			if r.StatusCode < 400 || strings.Contains(string(r.body), "the secret") {
				t.Errorf("%s %s: %d %q", method, path, r.StatusCode, r.body)
			}
		}
	}
	w.as("bob", 200, "GET", "/corp/open.txt?versionId=", "")
}

// TestListsAreOfThePrefixThatWasJudged lists with several prefixes.
func TestListsAreOfThePrefixThatWasJudged(t *testing.T) {
	w, _ := attacked(t)
	w.as("bob", 200, "GET", "/corp?list-type=2&prefix=open", "")
	for _, q := range []string{"list-type=2", "list-type=2&prefix=", "list-type=2&prefix=secret",
		"prefix=secret&prefix=open", "list-type=2&prefix=open&prefix=secret", "prefix=&prefix=open", "Prefix=open",
		"list-type=2&prefix=secret%00open", "versions&prefix=open", "uploads&prefix=open", "list-type=1&prefix=secret"} {
		r, err := w.try("bob", "bob-secret", "GET", "/corp?"+q, nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(r.body), "<Key>secret") {
			t.Errorf("%s: %d %s", q, r.StatusCode, r.body)
		}
	}
}

// TestOneSubResourceAllowsNoOther asks for two sub-resources where one is allowed.
func TestOneSubResourceAllowsNoOther(t *testing.T) {
	bodies := map[string]string{
		"policy": policyOf(
			`{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::corp","arn:aws:s3:::corp/*"]}`),
		"versioning":        "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>",
		"tagging":           "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>",
		"cors":              "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin></CORSRule></CORSConfiguration>",
		"ownershipControls": strings.Replace(enforcedControls, "BucketOwnerEnforced", "ObjectWriter", 1),
		"acl":               "",
	}
	actions := map[string]string{"policy": "s3:PutBucketPolicy", "versioning": "s3:PutBucketVersioning",
		"tagging": "s3:PutBucketTagging", "cors": "s3:PutBucketCORS",
		"ownershipControls": "s3:PutBucketOwnershipControls", "acl": "s3:PutBucketAcl"}
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "", "x-amz-object-ownership", "BucketOwnerPreferred")
	for allowed, action := range actions {
		w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", action, "corp")))
		for wanted, body := range bodies {
			if wanted == allowed {
				continue
			}
			before, err := w.store.Bucket(t.Context(), "corp")
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"/corp?" + allowed + "&" + wanted, "/corp?" + wanted + "&" + allowed, "/corp?" +
				allowed + "=&" + wanted + "=x", "/corp?" + wanted} {
				headers := []string{"Content-MD5", md5Base64(body)}
				if wanted == "acl" {
					headers = append(headers, "x-amz-acl", "public-read")
				}
				if _, err := w.try("bob", "bob-secret", "PUT", path, []byte(body), headers...); err != nil {
					t.Fatal(err)
				}
			}
			after, err := w.store.Bucket(t.Context(), "corp")
			if err != nil {
				t.Fatal(err)
			}
			if after.Versioning != before.Versioning {
				t.Errorf("%s allowed: versioning is %q", allowed, after.Versioning)
			}
			for name, setting := range map[string]string{"policy": policy.Setting, "tagging": settingTags, "cors": settingCORS,
				"ownershipControls": policy.SettingOwnership, "acl": policy.SettingACL} {
				if name != allowed && string(before.Settings[setting]) != string(after.Settings[setting]) {
					t.Errorf("%s allowed, %s asked for: %s is %s", allowed, wanted, name, after.Settings[setting])
				}
			}
		}
	}
}

// TestDeletionsAreJudgedOneByOne deletes many objects, some of which are denied.
func TestDeletionsAreJudgedOneByOne(t *testing.T) {
	w, version := attacked(t)
	for _, object := range []string{
		"<Key>secret.txt</Key>", "<Key>secret.txt</Key><VersionId></VersionId>", "<Key>&#115;ecret.txt</Key>",
		"<Key>open.txt</Key><Key>secret.txt</Key>", "<Key><![CDATA[secret.txt]]></Key>",
	} {
		doc := "<Delete><Object>" + object + "</Object></Delete>"
		r, err := w.try("bob", "bob-secret", "POST", "/corp?delete", []byte(doc), "Content-MD5", md5Base64(doc))
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode < 400 && !strings.Contains(string(r.body), "AccessDenied") {
			t.Errorf("%s: %d %s", object, r.StatusCode, r.body)
		}
		w.as("alice", 200, "GET", "/corp/secret.txt", "")
	}
	// A version is another action, which is allowed.
	doc := "<Delete><Object><Key>secret.txt</Key><VersionId>" + version + "</VersionId></Object></Delete>"
	if r, err := w.try("bob", "bob-secret", "POST", "/corp?delete", []byte(doc), "Content-MD5",
		md5Base64(doc)); err != nil || !strings.Contains(string(r.body), "<Deleted>") {
		t.Errorf("%v %s", err, r.body)
	}
	if r, err := w.try("", "", "POST", "/corp?delete", []byte(doc), "Content-MD5", md5Base64(doc)); err != nil ||
		r.StatusCode != 403 {
		t.Errorf("nobody: %v %d", err, r.StatusCode)
	}
}

// TestUploadsStayWithTheirKey uses an upload of one key for another.
func TestUploadsStayWithTheirKey(t *testing.T) {
	w, _ := attacked(t)
	id := between(string(w.as("bob", 200, "POST", "/corp/open/x?uploads", "").body), "<UploadId>", "</UploadId>")
	etag := w.as("bob", 200, "PUT", "/corp/open/x?partNumber=1&uploadId="+id, "part").Header.Get("ETag")
	done := "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" + etag +
		"</ETag></Part></CompleteMultipartUpload>"
	w.as("bob", 403, "POST", "/corp/secret/y?uploads", "")
	w.as("bob", 403, "POST", "/corp/secret/y?uploadId="+id, done)
	w.as("bob", 404, "POST", "/corp/open/y?uploadId="+id, done)
	w.as("bob", 404, "POST", "/bobs/open/x?uploadId="+id, done)
	w.as("mallory", 403, "POST", "/corp/open/x?uploadId="+id, done)
	w.as("mallory", 403, "DELETE", "/corp/open/x?uploadId="+id, "")
	w.as("mallory", 403, "GET", "/corp/open/x?uploadId="+id, "")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Deny", "bob", "s3:*", "corp/*")))
	w.as("bob", 403, "POST", "/corp/open/x?uploadId="+id, done)
	w.as("bob", 403, "PUT", "/corp/open/x?partNumber=2&uploadId="+id, "part")
}

// TestPresignedURLsAllowNothingMore changes URLs that were signed for one request.
func TestPresignedURLsAllowNothingMore(t *testing.T) {
	w, version := attacked(t)
	now := time.Now()
	if r := w.presigned("bob", "bob-secret", "GET", "/corp/open.txt", now, "60"); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	if r := w.presigned("bob", "bob-secret", "GET", "/corp/secret.txt", now, "60"); r.StatusCode != 403 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := w.presigned("mallory", "mallory-secret", "GET", "/corp/open.txt", now, "60"); r.StatusCode != 403 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	signed := w.presigned("alice", "alice-secret", "GET", "/corp/open.txt", now, "60").Request.URL
	for _, change := range []func(string) string{
		func(u string) string { return u + "&versionId=" + version },
		func(u string) string { return u + "&acl" },
		func(u string) string { return u + "&X-Amz-Expires=604800" },
		func(u string) string { return strings.Replace(u, "X-Amz-Expires=60", "X-Amz-Expires=61", 1) },
		func(u string) string { return strings.Replace(u, "open.txt", "secret.txt", 1) },
		func(u string) string { return strings.Replace(u, "/corp/open.txt", "//corp/secret.txt", 1) },
		func(u string) string {
			return strings.Replace(u, "X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=", 1)
		},
		func(u string) string { return strings.Replace(u, "%2Fs3%2Faws4_request", "%2Fiam%2Faws4_request", 1) },
		func(u string) string { return strings.Replace(u, "alice", rootKey, 1) },
		func(u string) string { u, _, _ = strings.Cut(u, "&X-Amz-Signature"); return u },
	} {
		uri := change(signed.String())
		req, err := http.NewRequest("GET", uri, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := w.sent(req); r.StatusCode < 400 {
			t.Errorf("%s: %d", uri, r.StatusCode)
		}
	}
	for _, method := range []string{"HEAD", "DELETE", "PUT"} {
		if r := w.nobody(method, signed.RequestURI(), ""); r.StatusCode < 400 {
			t.Errorf("%s with a URL for GET: %d", method, r.StatusCode)
		}
	}
	// What a signer moved into the URL and this server does not read there is refused.
	for _, name := range []string{"x-amz-object-lock-mode=COMPLIANCE", "x-amz-object-lock-legal-hold=ON",
		"x-amz-copy-source=corp%2Fopen.txt", "x-amz-tagging=a%3Db",
		"x-amz-bypass-governance-retention=true", "x-amz-server-side-encryption=AES256", "x-amz-acl=public-read",
		"x-amz-expected-bucket-owner=mallory", "x-amz-grant-read=bob"} {
		if r := w.presigned("bob", "bob-secret", "PUT", "/corp/open.txt?"+name, now, "60", "Content-Length",
			"0"); r.StatusCode < 400 {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
	}
	if r := w.presigned("bob", "bob-secret", "PUT",
		"/corp/open.txt?x-amz-acl=bucket-owner-full-control&x-amz-sdk-checksum-algorithm=CRC32",
		now, "60", "Content-Length", "0"); r.StatusCode != 200 {
		t.Errorf("what changes nothing: %d %s", r.StatusCode, r.body)
	}
	if r := w.presigned("bob", "bob-secret", "PUT", "/third?x-amz-acl=public-read", now, "60"); r.StatusCode < 400 {
		t.Errorf("a bucket with an ACL that has no effect: %d", r.StatusCode)
	}
}

// TestConditionsBelieveNoHeader claims to be somebody else, from somewhere else.
func TestConditionsBelieveNoHeader(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/key", "x")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(
		`{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/*","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}}`,
		`{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::corp/*","Condition":{"Bool":{"aws:SecureTransport":"true"}}}`))
	for _, h := range [][]string{{"X-Forwarded-For", "10.0.0.1"}, {"X-Real-IP", "10.0.0.1"},
		{"Forwarded", "for=10.0.0.1;proto=https"}, {"X-Forwarded-Proto", "https"},
		{"X-Forwarded-Ssl", "on"}, {"X-Url-Scheme", "https"}, {"aws:SourceIp", "10.0.0.1"}, {"True-Client-IP", "10.0.0.1"}} {
		for _, who := range []string{"", "bob"} {
			for _, method := range []string{"GET", "PUT"} {
				r, err := w.try(who, who+"-secret", method, "/corp/key", nil, h...)
				if err == nil && r.StatusCode != 403 {
					t.Errorf("%s %s by %q: %d", method, h, who, r.StatusCode)
				}
			}
		}
	}
}

// TestLocksAgainstTheirOwner tries to get rid of a version in COMPLIANCE mode as root.
func TestLocksAgainstTheirOwner(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.must(200, "PUT", "/corp", nil, "x-amz-bucket-object-lock-enabled", "true")
	until := time.Now().AddDate(0, 0, 2).UTC().Format(time.RFC3339)
	version := w.must(200, "PUT", "/corp/key", []byte("x"), "x-amz-object-lock-mode", "COMPLIANCE",
		"x-amz-object-lock-retain-until-date", until).Header.Get("x-amz-version-id")
	governed := w.must(200, "PUT", "/corp/governed", []byte("x"), "x-amz-object-lock-mode", "GOVERNANCE",
		"x-amz-object-lock-retain-until-date", until).Header.Get("x-amz-version-id")
	at := "/corp/key?versionId=" + version
	bypass := []string{"x-amz-bypass-governance-retention", "true"}
	refused := func(method, path string, body string, headers ...string) {
		t.Helper()
		if body != "" {
			headers = append(headers, "Content-MD5", md5Base64(body))
		}
		if r := w.do(method, path, []byte(body), headers...); r.StatusCode < 400 {
			t.Errorf("%s %s: %d %s", method, path, r.StatusCode, r.body)
		}
	}
	refused("DELETE", at, "")
	refused("DELETE", at, "", bypass...)
	refused("PUT", "/corp/key?retention&versionId="+version, string(retention("GOVERNANCE", 9)), bypass...)
	refused("PUT", "/corp/key?retention&versionId="+version, string(retention("COMPLIANCE", 1)), bypass...)
	refused("PUT", "/corp/key?retention", string(retention("COMPLIANCE", 1)), bypass...)
	refused("PUT", "/corp/key?retention&versionId="+version, "<Retention></Retention>", bypass...)
	refused("PUT", "/corp/key?retention&versionId="+version, "", bypass...)
	refused("PUT", "/corp?versioning", "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>")
	refused("PUT", "/corp?object-lock", "<ObjectLockConfiguration></ObjectLockConfiguration>")
	refused("PUT", "/corp?object-lock",
		"<ObjectLockConfiguration><ObjectLockEnabled>Disabled</ObjectLockEnabled></ObjectLockConfiguration>")
	refused("DELETE", "/corp", "")
	doc := fmt.Sprintf("<Delete><Object><Key>key</Key><VersionId>%[1]s</VersionId></Object><Object><Key>key</Key><VersionId>%[1]s</VersionId></Object></Delete>", version)
	if r := w.must(200, "POST", "/corp?delete", []byte(doc),
		append(bypass, "Content-MD5", md5Base64(doc))...); strings.Contains(string(r.body), "<Deleted>") {
		t.Errorf("%s", r.body)
	}
	w.must(200, "PUT", "/corp/key", []byte("y"))
	w.must(200, "PUT", "/corp/key", nil, "x-amz-copy-source", "corp/key?versionId="+version, "x-amz-metadata-directive",
		"REPLACE")
	w.must(204, "DELETE", "/corp/key", nil)
	w.posted(204, "corp", "key")
	w.must(200, "GET", at, nil)
	if h := w.must(200, "HEAD", at, nil).Header; h.Get("x-amz-object-lock-mode") != "COMPLIANCE" {
		t.Errorf("%v", h)
	}
	// Who may delete versions may not override retention for that.
	w.must(204, "PUT", "/corp?policy", []byte(policyOf(`{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":["s3:DeleteObject*","s3:PutObjectRetention"],"Resource":"arn:aws:s3:::corp/*"}`)))
	w.as("bob", 403, "DELETE", "/corp/governed?versionId="+governed, "", bypass...)
	w.as("bob", 403, "PUT", "/corp/governed?retention&versionId="+governed, string(retention("GOVERNANCE", 1)), bypass...)
	w.as("bob", 200, "PUT", "/corp/governed?retention&versionId="+governed, string(retention("GOVERNANCE", 9)))
	w.must(204, "PUT", "/corp?policy", []byte(policyOf(`{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":["s3:DeleteObject*","s3:BypassGovernanceRetention"],"Resource":"arn:aws:s3:::corp/*"}`)))
	w.as("bob", 403, "DELETE", "/corp/governed?versionId="+governed, "")
	w.as("bob", 204, "DELETE", "/corp/governed?versionId="+governed, "", bypass...)
}
