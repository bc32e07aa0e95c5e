// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestObjectsBelongToTheirWriters lets bob write into alice's bucket, with each ownership.
func TestObjectsBelongToTheirWriters(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob", "carol")
	for ownership, x := range map[string]struct {
		plain, full string // owner of an object without an ACL, and with bucket-owner-full-control
		alice, bob  int    // status of a GET of the first
	}{
		"BucketOwnerEnforced":  {"alice", "alice", 200, 403},
		"BucketOwnerPreferred": {"bob", "alice", 403, 200},
		"ObjectWriter":         {"bob", "bob", 403, 200},
	} {
		bucket := strings.ToLower(ownership)
		w.as("alice", 200, "PUT", "/"+bucket, "", "x-amz-object-ownership", ownership)
		w.as("alice", 204, "PUT", "/"+bucket+"?policy", policyOf(statement("Allow", "bob", "s3:PutObject", bucket+"/*")))
		w.as("bob", 200, "PUT", "/"+bucket+"/plain", "x")
		w.as("bob", 200, "PUT", "/"+bucket+"/full", "x", "x-amz-acl", "bucket-owner-full-control")
		for key, owner := range map[string]string{"plain": x.plain, "full": x.full} {
			r := w.as(owner, 200, "GET", "/"+bucket+"/"+key+"?acl", "")
			if !strings.Contains(string(r.body), "<Owner><ID>"+owner+"</ID>") {
				t.Errorf("%s %s: %s", ownership, key, r.body)
			}
		}
		w.as("alice", x.alice, "GET", "/"+bucket+"/plain", "")
		w.as("bob", x.bob, "GET", "/"+bucket+"/plain", "")
		w.as("alice", 200, "GET", "/"+bucket+"/full", "")
		w.as("carol", 403, "GET", "/"+bucket+"/plain", "")
		if r := w.as("alice", 200, "GET", "/"+bucket, ""); strings.Count(string(r.body), "<ID>"+x.plain+"</ID>") == 0 {
			t.Errorf("%s: the listing has another owner: %s", ownership, r.body)
		}
		w.as("alice", 204, "DELETE", "/"+bucket+"/plain", "") // a bucket's owner may always delete
	}
}

// TestACLsOfVersionsAndCopies gives each version its own ACL; a copy has none of its source.
func TestACLsOfVersionsAndCopies(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "", "x-amz-object-ownership", "ObjectWriter")
	w.as("alice", 200, "PUT", "/corp?versioning",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	old := w.as("alice", 200, "PUT", "/corp/key", "old", "x-amz-acl", "authenticated-read").Header.Get("x-amz-version-id")
	w.as("alice", 200, "PUT", "/corp/key", "new")
	w.as("bob", 403, "GET", "/corp/key", "")
	w.as("bob", 200, "GET", "/corp/key?versionId="+old, "")
	w.as("alice", 200, "PUT", "/corp/key?acl&versionId="+old, "", "x-amz-acl", "private")
	w.as("bob", 403, "GET", "/corp/key?versionId="+old, "")
	w.as("alice", 200, "PUT", "/corp/key?acl", "", "x-amz-grant-write-acp", "id=bob")
	w.as("bob", 403, "GET", "/corp/key", "")
	w.as("bob", 200, "PUT", "/corp/key?acl", "", "x-amz-acl", "public-read")
	w.as("bob", 200, "GET", "/corp/key", "")
	w.as("bob", 403, "PUT", "/corp/key?acl", "", "x-amz-acl", "public-read") // the grant to bob is gone
	w.as("alice", 200, "PUT", "/corp/copy", "", "x-amz-copy-source", "corp/key")
	w.as("bob", 403, "GET", "/corp/copy", "")
	w.as("bob", 200, "PUT", "/bobs", "")
	w.as("bob", 200, "PUT", "/bobs/copy", "", "x-amz-copy-source", "corp/key")
	w.as("bob", 403, "PUT", "/bobs/copy", "", "x-amz-copy-source", "corp/copy")
	w.as("bob", 403, "GET", "/corp/missing", "") // who may not list does not learn that the key is missing
	w.as("alice", 404, "GET", "/corp/missing", "")
	w.as("alice", 400, "PUT", "/corp/key?acl", "<AccessControlPolicy><Nothing/></AccessControlPolicy>")
}

// TestPublicAccessBlocks sets each part of a public access block, and expects that it takes effect everywhere.
func TestPublicAccessBlocks(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "", "x-amz-object-ownership", "ObjectWriter")
	w.as("alice", 200, "PUT", "/corp/key", "x", "x-amz-acl", "public-read")
	open := policyOf(
		`{"Effect":"Allow","Principal":"*","Action":"*","Resource":["arn:aws:s3:::corp","arn:aws:s3:::corp/*"]}`)
	block := func(parts ...string) {
		t.Helper()
		var doc strings.Builder
		for _, p := range parts {
			doc.WriteString("<" + p + ">true</" + p + ">")
		}
		w.as("alice", 200, "PUT", "/corp?publicAccessBlock",
			"<PublicAccessBlockConfiguration>"+doc.String()+"</PublicAccessBlockConfiguration>")
	}
	if r := w.as("alice", 404, "GET", "/corp?publicAccessBlock", ""); r.code() != "NoSuchPublicAccessBlockConfiguration" {
		t.Errorf("%s", r.body)
	}
	block("BlockPublicAcls")
	w.as("bob", 200, "GET", "/corp/key", "") // older ACLs keep their effect
	w.as("alice", 403, "PUT", "/corp/other", "x", "x-amz-acl", "public-read")
	w.as("alice", 403, "PUT", "/corp/key?acl", "", "x-amz-acl", "authenticated-read")
	w.as("alice", 403, "PUT", "/corp?acl", "", "x-amz-acl", "public-read-write")
	w.as("alice", 200, "PUT", "/corp/other", "x", "x-amz-grant-read", "id=bob")
	block("IgnorePublicAcls")
	w.as("bob", 403, "GET", "/corp/key", "")
	w.as("bob", 200, "GET", "/corp/other", "")
	if err := w.server.Authorizer().Authorize(t.Context(), object.Access{Account: "bob", Action: object.ActionGet,
		Bucket: "corp", Key: "key"}); err == nil {
		t.Error("the door lets bob in")
	}
	block("BlockPublicPolicy")
	w.as("alice", 403, "PUT", "/corp?policy", open)
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", "s3:GetObject", "corp/*")))
	block()
	w.as("alice", 204, "PUT", "/corp?policy", open)
	w.as("bob", 200, "PUT", "/corp/bobs", "x")
	block("RestrictPublicBuckets")
	w.as("bob", 403, "PUT", "/corp/bobs", "x")
	if r, err := w.try("", "", "GET", "/corp/key", nil); err != nil || r.StatusCode != 403 {
		t.Errorf("everybody reads: %v %d", err, r.StatusCode)
	}
	w.as("alice", 200, "PUT", "/corp/key", "x")
	w.as("bob", 403, "PUT", "/corp?publicAccessBlock", "<PublicAccessBlockConfiguration/>")
	w.as("bob", 403, "GET", "/corp?publicAccessBlock", "")
	w.as("alice", 400, "PUT", "/corp?publicAccessBlock",
		"<PublicAccessBlockConfiguration><BlockPublicAcls>maybe</BlockPublicAcls></PublicAccessBlockConfiguration>")
	w.as("alice", 204, "DELETE", "/corp?publicAccessBlock", "")
	w.as("bob", 200, "PUT", "/corp/bobs", "x")
}

// TestConditionsOnObjects puts policies with conditions on tags, copy sources and grants.
func TestConditionsOnObjects(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/open", "x", "x-amz-tagging", "class=open")
	w.as("alice", 200, "PUT", "/corp/secret", "x", "x-amz-tagging", "class=secret")
	conditioned := func(action, condition string) string {
		return policyOf(strings.Replace(statement("Allow", "bob", action, "corp/*"), `"Resource"`,
			`"Condition":{`+condition+`},"Resource"`, 1))
	}
	w.as("alice", 204, "PUT", "/corp?policy", conditioned("s3:*", `"StringEquals":{"s3:ExistingObjectTag/class":"open"}`))
	w.as("bob", 200, "GET", "/corp/open", "")
	w.as("bob", 403, "GET", "/corp/secret", "")
	if r := w.as("bob", 200, "POST", "/corp?delete", "<Delete><Object><Key>secret</Key></Object></Delete>", "Content-MD5",
		md5Base64("<Delete><Object><Key>secret</Key></Object></Delete>")); !strings.Contains(string(r.body), "AccessDenied") {
		t.Errorf("a secret object was deleted: %s", r.body)
	}
	if err := w.server.Authorizer().Authorize(t.Context(), object.Access{Account: "bob", Action: object.ActionGet,
		Bucket: "corp", Key: "secret"}); err == nil {
		t.Error("the door hands out a secret object")
	}
	w.as("bob", 200, "PUT", "/bobs", "")
	w.as("bob", 403, "PUT", "/bobs/copy", "", "x-amz-copy-source", "corp/secret")
	w.as("alice", 204, "PUT", "/corp?policy", conditioned("s3:PutObject*",
		`"StringLike":{"s3:RequestObjectTag/class":"o*"}`))
	w.as("bob", 403, "PUT", "/corp/new", "x")
	w.as("bob", 403, "PUT", "/corp/new", "x", "x-amz-tagging", "class=secret")
	w.as("bob", 200, "PUT", "/corp/new", "x", "x-amz-tagging", "class=open")
	w.as("bob", 200, "PUT", "/bobs/public/a", "x")
	w.as("alice", 204, "PUT", "/corp?policy", conditioned("s3:PutObject",
		`"StringLike":{"s3:x-amz-copy-source":"bobs/public/*"}`))
	w.as("bob", 200, "PUT", "/corp/new", "", "x-amz-copy-source", "/bobs/public/a")
	w.as("bob", 403, "PUT", "/corp/new", "x")
	w.as("alice", 204, "PUT", "/corp?policy", conditioned("s3:GetObject",
		`"StringEquals":{"aws:username":"${aws:username}"}`))
	w.as("bob", 200, "GET", "/corp/open", "")
}

// TestFieldsOfFormsMayHaveFileNames reads a form whose fields all have file names, at once and one byte at a time.
// Only the field with the name "file" keeps its file name, and so is the content of the object.
func TestFieldsOfFormsMayHaveFileNames(t *testing.T) {
	const boundary = "b"
	form := "--b\r\nContent-Disposition: form-data; name=\"key\"; filename=\"key\"\r\n\r\nfilename\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"x; filename=y\"; FileName=z\r\n\r\n" + strings.Repeat("long", 2000) +
		"\r\n--b\r\nContent-Disposition: form-data; name=\"File\"; filename=\"f\"\r\n\r\n--b\r\nContent-Disposition: " +
		"form-data; name=\"a\"; filename=\"a\"\r\n\r\n--b--\r\n"
	want := strings.Replace(form, "name=\"key\"; filename=", "name=\"key\"; filenam-=", 1)
	want = strings.Replace(want, "; FileName=z", "; FileNam-=z", 1)
	for name, r := range map[string]io.Reader{"at once": strings.NewReader(form),
		"by bytes": iotest.OneByteReader(strings.NewReader(form))} {
		got, err := io.ReadAll(newFormHead(r, boundary))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%q\nexpected\n%q", name, err, got, want)
		}
	}
}

// FuzzFormHead reads any form: the number of bytes stays, and the file does not change.
func FuzzFormHead(f *testing.F) {
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"key\"; filename=\"key\"\r\n\r\nx\r\n--b--\r\n"))
	f.Fuzz(func(t *testing.T, form []byte) {
		got, err := io.ReadAll(newFormHead(bytes.NewReader(form), "b"))
		if err != nil || len(got) != len(form) {
			t.Fatalf("%d bytes of %d: %v", len(got), len(form), err)
		}
	})
}
