// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"strings"
	"testing"
)

// unsigned sends a list of deletions without an account.
func (w *world) unsigned(path, doc string, headers ...string) *reply {
	w.t.Helper()
	return w.nobody("POST", path, doc, append(headers, "Content-MD5", md5Base64(doc))...)
}

// TestUnsignedDeletionsAreJudgedByKey deletes objects without an account, some of which a policy lets everybody delete.
func TestUnsignedDeletionsAreJudgedByKey(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice")
	ids := w.versioned("corp", 2, "open/a", "open/kept", "closed/b")
	list := deletion("open/a", "closed/b", "open/kept", "open/a@"+ids["open/a"][0])
	refused := func(what string, policies ...string) {
		t.Helper()
		if len(policies) > 0 {
			w.as("alice", 204, "PUT", "/corp?policy", policyOf(policies...))
		}
		if r := w.unsigned("/corp?delete", list); r.StatusCode != 403 || r.code() != "AccessDenied" {
			t.Errorf("%s: %d %s", what, r.StatusCode, r.body)
		}
	}
	refused("no policy")
	refused("reading is public", statement("Allow", "*", "s3:GetObject", "corp/*"))
	refused("another account deletes", statement("Allow", "alice", "s3:DeleteObject", "corp/*"))
	refused("a denial alone", statement("Deny", "*", "s3:DeleteObject", "corp/*"))

	w.as("alice", 204, "PUT", "/corp?policy", policyOf(
		statement("Allow", "*", "s3:DeleteObject", "corp/open/*"),
		statement("Deny", "*", "s3:DeleteObject", "corp/open/kept")))
	r := w.unsigned("/corp?delete", list)
	body := string(r.body)
	if r.StatusCode != 200 || strings.Count(body, "<Code>AccessDenied</Code>") != 3 ||
		strings.Count(body, "<Deleted>") != 1 {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	w.as("alice", 404, "GET", "/corp/open/a", "")
	for _, key := range []string{"/corp/open/kept", "/corp/closed/b", "/corp/open/a?versionId=" + ids["open/a"][0]} {
		w.as("alice", 200, "GET", key, "")
	}
	// A version needs its own action.
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "*", "s3:DeleteObjectVersion", "corp/open/*")))
	r = w.unsigned("/corp?delete", deletion("open/kept", "open/a@"+ids["open/a"][0]))
	if body := string(r.body); r.StatusCode != 200 || strings.Count(body, "AccessDenied</Code>") != 1 ||
		strings.Count(body, "<Deleted>") != 1 {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	// the store of this test has short identifiers
	w.as("alice", 400, "GET", "/corp/open/a?versionId="+ids["open/a"][0], "")
}

// TestUnsignedDeletionsKeepTheOtherRules sends lists that are refused whoever sends them, and conditions that do not
// hold.
func TestUnsignedDeletionsKeepTheOtherRules(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/key", "x")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "*", "s3:DeleteObject", "corp/*")))
	for name, c := range map[string]struct {
		doc    string
		header []string
		code   string
	}{
		"an empty list": {"<Delete></Delete>", nil, "MalformedXML"},
		"another digest": {deletion("key"), []string{"x-amz-content-sha256", strings.Repeat("0", 64)},
			"XAmzContentSHA256Mismatch"},
		"a signed stream": {deletion("key"), []string{"x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}, ""},
		"a list that is long": {"<Delete>" + strings.Repeat("<Object><Key>k</Key></Object>", 1001) + "</Delete>", nil,
			"MalformedXML"},
		"a condition to learn": {"<Delete><Object><Key>key</Key><ETag>x</ETag></Object></Delete>", nil, "AccessDenied"},
	} {
		r := w.unsigned("/corp?delete", c.doc, c.header...)
		if !strings.Contains(string(r.body), "<Code>"+c.code) || r.StatusCode == 200 && c.code != "AccessDenied" {
			t.Errorf("%s: %d %s", name, r.StatusCode, r.body)
		}
	}
	agent := fmt.Sprintf(
		`{"Effect":"Allow","Principal":"*","Action":"s3:DeleteObject","Resource":"arn:aws:s3:::corp/*","Condition":%s}`,
		`{"StringEquals":{"aws:UserAgent":"good"}}`)
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(agent))
	if r := w.unsigned("/corp?delete", deletion("key"), "User-Agent", "bad"); !strings.Contains(string(r.body),
		"AccessDenied") {
		t.Errorf("%s", r.body)
	}
	w.as("alice", 200, "GET", "/corp/key", "")
	if r := w.unsigned("/nothing?delete", deletion("key")); r.StatusCode == 200 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := w.unsigned("/corp?delete", deletion("key"), "User-Agent", "good"); r.StatusCode != 200 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	w.as("alice", 404, "GET", "/corp/key", "")
}
