// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/url"
	"strings"
	"testing"
)

// escape writes a key or a prefix as clients do: with %2A for *.
func escape(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(url.PathEscape(s), "%2F", "/"), "*", "%2A")
}

// TestStarsInARequestEvadeNoPolicy asks for keys and prefixes that contain the wildcard of a denial.
func TestStarsInARequestEvadeNoPolicy(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", "s3:*", "corp/*"),
		statement("Allow", "bob", "s3:ListBucket", "corp"), statement("Deny", "bob", "s3:GetObject", "corp/secret/*"),
		`{"Effect":"Deny","Principal":{"AWS":["bob"]},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::corp",`+
			`"Condition":{"StringLike":{"s3:prefix":["secret/*","*/secret"]}}}`))
	for _, key := range []string{"secret/key", "secret/*", "secret/*x", "secret/**", "secret/**x*y", "secret/*é",
		"secret/é*x"} {
		w.as("alice", 200, "PUT", "/corp/"+escape(key), "x")
		if r := w.as("bob", 403, "GET", "/corp/"+escape(key), ""); strings.Contains(string(r.body), "xfd") {
			t.Errorf("the reply for %s names the key in our own form: %s", key, r.body)
		}
		w.as("alice", 200, "GET", "/corp/"+escape(key), "")
	}
	for _, key := range []string{"open*", "*secret/x", "secret*"} {
		w.as("alice", 200, "PUT", "/corp/"+escape(key), "x")
		w.as("bob", 200, "GET", "/corp/"+escape(key), "")
	}
	for prefix, status := range map[string]int{
		"open/": 200, "open*": 200, "secret": 200, "secret/": 403, "secret/*": 403, "secret/*x": 403, "secret/**": 403,
		"secret/***x": 403, "*/secret": 403, "**/secret": 403, "*x/secret": 403, "*x/secrets": 200,
		"secret/" + strings.Repeat("*", 65) + "x": 403, "open/" + strings.Repeat("*", 65): 200,
	} {
		w.as("bob", status, "GET", "/corp?list-type=2&prefix="+escape(prefix), "")
	}
}
