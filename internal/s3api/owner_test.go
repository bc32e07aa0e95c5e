// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// as sends a request of one of the accounts that people adds, and checks the status of its reply.
func (w *world) as(name string, status int, method, path, body string, headers ...string) *reply {
	w.t.Helper()
	if body != "" {
		headers = append(headers, "Content-MD5", md5Base64(body))
	}
	r, err := w.try(name, name+"-secret", method, path, []byte(body), headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	if r.StatusCode != status {
		w.t.Fatalf("%s: %s %s: status %d, expected %d: %s", name, method, path, r.StatusCode, status, r.body)
	}
	return r
}

func (w *world) people(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := w.iam.Add(w.t.Context(), iam.Account{AccessKey: name, Secret: name + "-secret",
			Role: iam.RoleUserPlus}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func statement(effect, who, action, resource string) string {
	return fmt.Sprintf(`{"Effect":%q,"Principal":{"AWS":[%q]},"Action":%q,"Resource":"arn:aws:s3:::%s"}`, effect, who,
		action, resource)
}

func policyOf(statements ...string) string {
	return `{"Version":"2012-10-17", "Statement":[` + strings.Join(statements, ",") + `]}`
}

// TestAnOwnerKeepsTheBucket puts policies that do not name the owner: they take nothing away that they do not deny.
func TestAnOwnerKeepsTheBucket(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/alices", "")
	w.as("alice", 200, "PUT", "/alices/key", "x")
	doc := policyOf(statement("Allow", "bob", "s3:GetObject", "alices/*"))
	w.as("alice", 204, "PUT", "/alices?policy", doc)
	w.as("alice", 200, "GET", "/alices", "")
	w.as("alice", 200, "GET", "/alices/key", "")
	if got := w.as("alice", 200, "GET", "/alices?policy", ""); string(got.body) != doc {
		t.Errorf("the owner sees another policy: %s", got.body)
	}
	if got := w.as("alice", 200, "GET", "/alices?policyStatus", ""); !strings.Contains(string(got.body),
		"<IsPublic>false") {
		t.Errorf("%s", got.body)
	}
	w.as("bob", 200, "GET", "/alices/key", "")
	w.as("bob", 403, "GET", "/alices", "")
	w.as("bob", 403, "GET", "/alices?policy", "")
	w.as("alice", 204, "PUT", "/alices?policy", policyOf(statement("Deny", "alice", "s3:ListBucket", "alices")))
	w.as("alice", 403, "GET", "/alices", "")
	w.as("alice", 200, "GET", "/alices/key", "")
	w.as("alice", 204, "DELETE", "/alices?policy", "")
	w.as("bob", 403, "GET", "/alices/key", "")
	w.as("alice", 404, "GET", "/alices?policy", "", "X-Amz-Bypass-Governance-Retention", "true")
}

// TestAnOwnerMayOverrideGovernance asks for it in words; nobody may override the other mode.
func TestAnOwnerMayOverrideGovernance(t *testing.T) {
	const bypass = "X-Amz-Bypass-Governance-Retention"
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/alices", "", "x-amz-bucket-object-lock-enabled", "true")
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	kept := func(mode string) string {
		r := w.as("alice", 200, "PUT", "/alices/key", "x", "x-amz-object-lock-mode", mode,
			"x-amz-object-lock-retain-until-date", until)
		return "/alices/key?versionId=" + r.Header.Get("x-amz-version-id")
	}
	governed, strict := kept("GOVERNANCE"), kept("COMPLIANCE")
	w.as("alice", 403, "DELETE", governed, "")
	w.as("alice", 403, "DELETE", governed, "", bypass, "false")
	w.as("alice", 403, "DELETE", strict, "", bypass, "true")
	w.as("alice", 204, "PUT", "/alices?policy", policyOf(statement("Allow", "bob", "s3:DeleteObjectVersion", "alices/*"),
		statement("Deny", "alice", "s3:BypassGovernanceRetention", "alices/*")))
	w.as("bob", 403, "DELETE", governed, "", bypass, "true")
	w.as("alice", 403, "DELETE", governed, "", bypass, "true")
	w.as("alice", 204, "DELETE", "/alices?policy", "")
	w.as("bob", 403, "DELETE", governed, "", bypass, "true")
	sooner := `<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>` +
		time.Now().Add(time.Minute).UTC().Format(time.RFC3339) + `</RetainUntilDate></Retention>`
	at := strings.Replace(governed, "?", "?retention&", 1)
	w.as("alice", 403, "PUT", at, sooner)
	w.as("alice", 200, "PUT", at, sooner, bypass, "true")
	w.as("alice", 204, "DELETE", governed, "", bypass, "true")
	if r := w.as("alice", 200, "GET", "/alices?versions", ""); strings.Count(string(r.body), "<VersionId>") != 1 {
		t.Errorf("left are %s", r.body)
	}
	version := strings.TrimPrefix(kept("GOVERNANCE"), "/alices/key?versionId=")
	r := w.as("alice", 200, "POST", "/alices?delete", `<Delete><Object><Key>key</Key><VersionId>`+version+
		`</VersionId></Object></Delete>`, bypass, "true")
	if strings.Contains(string(r.body), "<Error>") {
		t.Errorf("%s", r.body)
	}
}

func TestTagsComeInOneOrder(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("x"))
	var tags strings.Builder
	for i := range 10 {
		fmt.Fprintf(&tags, "<Tag><Key>k%d</Key><Value>+%d é</Value></Tag>", i, i)
	}
	doc := "<Tagging><TagSet>" + tags.String() + "</TagSet></Tagging>"
	for path, status := range map[string]int{"/bucket/key?tagging": 200, "/bucket?tagging": 204} {
		w.must(status, "PUT", path, []byte(doc), "Content-MD5", md5Base64(doc))
		r := w.must(200, "GET", path, nil)
		if !strings.Contains(string(r.body), tags.String()) || !strings.HasPrefix(string(r.body), "<?xml") ||
			r.ContentLength != int64(len(r.body)) {
			t.Errorf("%s: %s", path, r.body)
		}
	}
}
