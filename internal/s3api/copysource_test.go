// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestNoWritingOfASourceEvadesAPolicy copies what a policy denies, with the source written in every odd way.
func TestNoWritingOfASourceEvadesAPolicy(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp?versioning",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	version := w.as("alice", 200, "PUT", "/corp/secret.txt", "the secret").Header.Get("x-amz-version-id")
	w.as("alice", 200, "PUT", "/corp/open.txt", "open")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", "s3:*", "corp/*"),
		statement("Allow", "bob", "s3:*", "corp"),
		`{"Effect":"Deny","Principal":{"AWS":["bob"]},"Action":["s3:GetObject","s3:GetObjectVersion"],"Resource":"arn:aws:s3:::corp/secret.txt"}`))
	w.as("bob", 200, "PUT", "/bobs", "")
	r := w.as("bob", 200, "POST", "/bobs/parts?uploads", "")
	id := between(string(r.body), "<UploadId>", "</UploadId>")
	for _, source := range []string{
		"corp/secret.txt", "/corp/secret.txt", "//corp/secret.txt", "corp//secret.txt", "corp/secret.txt?versionId=",
		"corp/secret.txt?versionId=&x",
		"corp/secret.txt?versionId=null", "corp/secret.txt?versionId=" + version, "corp/secret.txt?", "corp/secret.txt?foo",
		"corp/secret.txt?foo=bar",
		"corp/secret.txt?versionId=&versionId=" + version, "corp/secret.txt?versionId=" + version + "&versionId=",
		"corp/secret.txt?versionId=?versionId=",
		"corp/secret.txt%3FversionId%3D", "corp/secret.txt%3FversionId=", "corp/secret.txt%3FversionId=" + version,
		"corp%2Fsecret.txt?versionId=" + version,
		"corp%2Fsecret.txt%3FversionId%3D" + version, "corp/secret.txt%3Fx", "%2Fcorp/secret.txt",
		"corp/%73ecret.txt?versionId=", "corp/secret%2Etxt?versionId=",
		"corp/secret.txt%00?versionId=", "corp/./secret.txt", "corp/x/../secret.txt", "corp/secret.txt?VersionId=",
		"corp/secret.txt?versionid=" + version,
		"corp/secret.txt?%76ersionId=" + version, "corp/secret.txt#?versionId=", "corp/secret.txt;versionId=" + version,
		"Corp/secret.txt",
	} {
		for _, path := range []string{"/bobs/copy", "/bobs/parts?partNumber=1&uploadId=" + id} {
			r, err := w.try("bob", "bob-secret", "PUT", path, nil, "x-amz-copy-source", source)
			if err != nil {
				t.Fatal(err)
			}
			if r.StatusCode < 400 {
				got := w.as("bob", 200, "GET", "/bobs/copy", "")
				t.Errorf("%s of %s: %d, the copy has %q", path, source, r.StatusCode, got.body)
			}
			if r.StatusCode >= 500 {
				t.Errorf("%s of %s: %d %s", path, source, r.StatusCode, r.body)
			}
		}
	}
	// What is allowed stays so, and what is no source is said.
	w.as("bob", 200, "PUT", "/bobs/copy", "", "x-amz-copy-source", "/corp/open.txt")
	w.as("bob", 200, "PUT", "/bobs/copy", "", "x-amz-copy-source", "corp%2Fopen.txt")
	for _, source := range []string{"corp/open.txt?versionId=", "corp/open.txt?foo", "corp/open.txt?versionId=null&x"} {
		if r := w.as("bob", 400, "PUT", "/bobs/copy", "", "x-amz-copy-source", source); r.code() != "InvalidArgument" {
			t.Errorf("%s: %s", source, r.body)
		}
	}
}

// TestConditionsSeeTheVersionOfASource denies one version of an object: a copy of it is denied too.
func TestConditionsSeeTheVersionOfASource(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp?versioning",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	old := w.as("alice", 200, "PUT", "/corp/key", "old").Header.Get("x-amz-version-id")
	next := w.as("alice", 200, "PUT", "/corp/key", "new").Header.Get("x-amz-version-id")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", "s3:*", "corp/*"), fmt.Sprintf(
		`{"Effect":"Deny","Principal":"*","Action":"s3:GetObjectVersion","Resource":"arn:aws:s3:::corp/*","Condition":{"StringEquals":{"s3:VersionId":%q}}}`, old)))
	w.as("bob", 200, "PUT", "/bobs", "")
	w.as("bob", 403, "GET", "/corp/key?versionId="+old, "")
	w.as("bob", 403, "PUT", "/bobs/copy", "", "x-amz-copy-source", "corp/key?versionId="+old)
	w.as("bob", 200, "PUT", "/bobs/copy", "", "x-amz-copy-source", "corp/key?versionId="+next)
}

// TestTagsAreCopiedByWhoMayReadThem copies an object with tags.
func TestTagsAreCopiedByWhoMayReadThem(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/key", "x", "x-amz-tagging", "secret=yes")
	w.as("bob", 200, "PUT", "/bobs", "")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", "s3:GetObject", "corp/*")))
	w.as("bob", 403, "PUT", "/bobs/copy", "", "x-amz-copy-source", "corp/key")
	w.as("bob", 200, "PUT", "/bobs/copy", "", "x-amz-copy-source", "corp/key", "x-amz-tagging-directive", "REPLACE")
	if got := w.as("bob", 200, "HEAD", "/corp/key", "").Header.Get("x-amz-tagging-count"); got != "" {
		t.Errorf("who may not read tags is told their number: %s", got)
	}
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(`{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":["s3:GetObject","s3:GetObjectTagging"],"Resource":"arn:aws:s3:::corp/*"}`))
	w.as("bob", 200, "PUT", "/bobs/copy", "", "x-amz-copy-source", "corp/key")
	if got := w.as("bob", 200, "HEAD", "/corp/key", "").Header.Get("x-amz-tagging-count"); got != "1" {
		t.Errorf("the number of tags: %q", got)
	}
	if r := w.as("bob", 200, "GET", "/bobs/copy?tagging", ""); !strings.Contains(string(r.body), "<Key>secret</Key>") {
		t.Errorf("%s", r.body)
	}
}

// FuzzCopySource: a source that is read names a bucket and a key, and reads back as what it was made of.
func FuzzCopySource(f *testing.F) {
	for _, s := range []string{"b/k", "/b/k?versionId=null", "b%2Fk%3FversionId%3Dx", "b/k?versionId=", "b/k?x", "", "/",
		"b/%zz"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		ref, err := copySource(header)
		if err != nil {
			return
		}
		if ref.Bucket == "" || ref.Key == "" || strings.Contains(ref.Bucket, "/") {
			t.Fatalf("%q: %+v", header, ref)
		}
		if strings.Contains(ref.Key, "?versionId=") {
			return // only a header with the version behind it says this
		}
		text := url.QueryEscape(ref.Bucket) + "/" + url.QueryEscape(ref.Key)
		if ref.Version != "" {
			text += "?versionId=" + url.QueryEscape(ref.Version)
		}
		if again, err := copySource(text); err != nil ||
			again != (object.Ref{Bucket: ref.Bucket, Key: ref.Key, Version: ref.Version}) {
			t.Fatalf("%q: %+v, then %+v %v", header, ref, again, err)
		}
	})
}
