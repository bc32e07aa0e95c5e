// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/versity/versitygw/auth"
)

func statementOf(effect, who, action, resource string) string {
	return fmt.Sprintf(`{"Effect":%q,"Principal":{"AWS":[%q]},"Action":%q,"Resource":"arn:aws:s3:::%s"}`, effect, who,
		action, resource)
}

func policyOf(statements ...string) string {
	return `{"Version":"2012-10-17", "Statement":[` + strings.Join(statements, ",") + `]}`
}

// FuzzPolicy: whatever is accepted is judged as it was written, and what is not accepted allows nothing that versitygw
// would not.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{
		policyOf(statementOf("Allow", "*", "s3:GetObject", "corp/*")),
		policyOf(`{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::corp","arn:aws:s3:::corp/*"]}`,
			`{"Effect":"Deny","Principal":"*","Action":["s3:GetObject"],"Resource":"arn:aws:s3:::corp/secret"}`),
		`{"Statement":[{"Effect":"Deny","NotPrincipal":"x"}]}`, `{"Statement":null}`, `{`, `{"Statement":[{}]}`,
		`{"Statement":[{"Effect":"Allow","Effect":"Deny"}]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		written := func(_, key string) string { return key }
		compared := Comparable
		decide := func(policy []byte, as func(bucket, key string) string, action auth.Action, key string) error {
			return auth.VerifyPublicBucketPolicy(policy, "corp", key, nil, as, action)
		}
		doc, err := parse([]byte(text), "corp")
		if err != nil {
			return
		}
		judged, sealed, fault := doc.rewrite("root")
		accepted := Check([]byte(text), "corp") == nil && fault == nil
		if accepted == (fault != nil || sealed) && len(text) <= MaxSize {
			t.Fatalf("%s: accepted %v, sealed %v, fault %v", text, accepted, sealed, fault)
		}
		if Spell([]byte(text)) != nil || strings.ToLower(text) != text && strings.ContainsAny(text, "*?") {
			return // versitygw compares actions by their case: see TestActionsMatchInAnyCase
		}
		for _, action := range []auth.Action{auth.GetObjectAction, auth.PutObjectAction, auth.ListBucketAction} {
			for _, key := range []string{"secret", "a/b", ""} {
				is, was := decide(judged, compared, action, key), decide([]byte(text), written, action, key)
				if is == nil && was != nil || accepted && !strings.Contains(text, "arn:aws:iam") && (is == nil) != (was == nil) {
					t.Fatalf("%s: %s of %q: %v, versitygw says %v", text, action, key, is, was)
				}
			}
		}
	})
}
