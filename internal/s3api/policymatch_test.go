// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// TestAQuestionMarkIsOneCharacter reads keys beyond ASCII where a policy speaks of them with a ?.
func TestAQuestionMarkIsOneCharacter(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	keys := []string{"a/é", "a/x", "a/éé", "a/xx", "a/日", "a/😀", "a/", "é", "a/xé", `a/\xff`, "a/?"}
	at := func(key string) string { return "/corp/" + strings.ReplaceAll(url.QueryEscape(key), "%2F", "/") }
	for _, key := range keys {
		w.as("alice", 200, "PUT", at(key), "x")
	}
	check := func(resource string, match ...string) {
		t.Helper()
		for _, denied := range []bool{false, true} {
			policy := policyOf(statement("Allow", "bob", "s3:GetObject", resource))
			if denied {
				policy = policyOf(statement("Allow", "bob", "s3:GetObject", "corp/*"),
					statement("Deny", "bob", "s3:GetObject", resource))
			}
			w.as("alice", 204, "PUT", "/corp?policy", policy)
			for _, key := range keys {
				want := 200
				if slices.Contains(match, key) == denied {
					want = 403
				}
				r := w.as("bob", want, "GET", at(key), "")
				if want == 403 && denied {
					// The message names the key as it is.
					if !strings.Contains(string(r.body), "corp/"+strings.ReplaceAll(key, `\`, `\\`)+"&#34;") {
						t.Errorf("%s: %s", key, r.body)
					}
				}
				err := w.server.Authorizer().Authorize(t.Context(),
					object.Access{Account: "bob", Action: object.ActionGet, Bucket: "corp", Key: key})
				if (err == nil) != (want == 200) {
					t.Errorf("another door says %v of %q with %s", err, key, resource)
				}
				if err != nil && !utf8.ValidString(err.Error()) {
					t.Errorf("%q", err)
				}
			}
		}
	}
	check("corp/a/?", "a/é", "a/x", "a/日", "a/😀", "a/?")
	check("corp/a/??", "a/éé", "a/xx", "a/xé")
	check("corp/?", "é")
	check("corp/?????*", `a/\xff`)
	check("corp/*?é", "a/é", "a/éé", "a/xé")
	check("corp/a/é*", "a/é", "a/éé")
	check("corp*/x?", "a/xx", "a/xé")
	check("corp/a/", "a/")
	// A list of deletions is judged the same way, and its messages too.
	w.as("alice", 204, "PUT", "/corp?policy",
		policyOf(statement("Allow", "bob", "s3:*", "corp/*"), statement("Deny", "bob", "s3:DeleteObject", "corp/a/?")))
	r := w.as("bob", 200, "POST", "/corp?delete", deletion("a/é", "a/éé", `a/\xff`))
	if body := string(r.body); strings.Count(body, "<Deleted>") != 2 ||
		!strings.Contains(body, "arn:aws:s3:::corp/a/é&#34;") {
		t.Errorf("%s", body)
	}
}

// TestActionsMatchInAnyCase grants and denies actions in other cases than versitygw has them.
func TestActionsMatchInAnyCase(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/key", "x")
	for _, action := range []string{"s3:getobject", "S3:GetObject", "s3:GET*", "s3:Get*o*", "s3:get?bject", "S3:*",
		"s3:*ECT"} {
		policy := policyOf(statement("Allow", "bob", action, "corp/*"))
		w.as("alice", 204, "PUT", "/corp?policy", policy)
		w.as("bob", 200, "GET", "/corp/key", "")
		if action[2:] != ":*" && action != "s3:*ECT" {
			w.as("bob", 403, "PUT", "/corp/key", "x")
		}
		if r := w.as("alice", 200, "GET", "/corp?policy", ""); string(r.body) != policy {
			t.Errorf("the policy that was put is shown as %s", r.body)
		}
		w.as("alice", 204, "PUT", "/corp?policy",
			policyOf(statement("Allow", "bob", "s3:*", "corp/*"), statement("Deny", "bob", action, "corp/*")))
		w.as("bob", 403, "GET", "/corp/key", "")
	}
	for _, action := range []string{"s3:nothing", "s4:getobject", "getobject", "*GetObject", "???PutObject", ""} {
		if r := w.as("alice", 400, "PUT", "/corp?policy",
			policyOf(statement("Allow", "bob", action, "corp/*"))); r.code() != "MalformedPolicy" {
			t.Errorf("%q: %s", action, r.body)
		}
	}
	// A stored policy of an older release has the same meaning.
	if err := w.store.UpdateBucket(t.Context(), "corp", func(b *object.Bucket) error {
		b.Settings[policy.Setting] = []byte(policyOf(statement("Allow", "bob", "s3:*", "corp/*"),
			statement("Deny", "bob", "s3:Get*o*", "corp/*")))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.as("bob", 403, "GET", "/corp/key", "")
}
