// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/object"
)

func statementOf(effect, who, action, resource string) string {
	return fmt.Sprintf(`{"Effect":%q,"Principal":{"AWS":[%q]},"Action":%q,"Resource":"arn:aws:s3:::%s"}`, effect, who,
		action, resource)
}

func policyOf(statements ...string) string {
	return `{"Version":"2012-10-17", "Statement":[` + strings.Join(statements, ",") + `]}`
}

// agree holds the decisions on requests without an account against those of package document, which evaluates policies
// of users by other code. Policies with conditions are left out.
func agree(t *testing.T, text string, doc *bucketPolicy, judged []byte) {
	t.Helper()
	r := &Rules{Of: &object.Bucket{Name: "corp"}}
	var applying []*document.Policy
	for i := range doc.statements {
		s := &doc.statements[i]
		if s.condition != nil {
			return
		}
		if slices.Contains(s.accounts("root"), "*") == s.notPrincipal {
			continue // the statement does not apply to requests without an account
		}
		one, err := json.Marshal(map[string]any{"Statement": map[string]any{"Effect": s.effect,
			fieldName("Action", s.notAction): s.action, fieldName("Resource", s.notResource): s.resource}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := document.Parse(one)
		if err != nil {
			t.Fatalf("%s: a policy of a user with %s: %v", text, one, err)
		}
		applying = append(applying, p)
	}
	for _, action := range knownActions {
		for _, key := range []string{"", "secret", "a/b", "a/é", "log/x"} {
			resource := strings.TrimSuffix(auth.ResourceArnPrefix+"corp/"+key, "/")
			want := document.None
			for _, p := range applying {
				want = max(want, p.Decide(&document.Request{Action: string(action), Resource: resource}))
			}
			resolved, err := r.Resolve(judged, Asked{Key: key})
			if err != nil {
				t.Fatal(err)
			}
			got := auth.VerifyPublicBucketPolicy(resolved, "corp", key, nil, Comparable, action)
			if (got == nil) != (want == document.Allow) {
				t.Fatalf("%s: %s of %q: %v, expected %v", text, action, key, got, want)
			}
		}
	}
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
		policyOf(statementOf("Allow", "*", "s3:*", "corp/*"),
			`{"Effect":"Deny","NotPrincipal":{"AWS":["bob"]},"Action":"s3:*","Resource":"arn:aws:s3:::corp/secret"}`),
		policyOf(`{"Effect":"Allow","Principal":"*","NotAction":["s3:Put*","s3:getobject"],"Resource":"arn:aws:s3:::corp*"}`),
		policyOf(
			`{"Effect":"Allow","Principal":"*","Action":"s3:*","NotResource":["arn:aws:s3:::corp/a/?","arn:aws:s3:::corp"]}`),
		policyOf(
			`{"Effect":"Deny","NotPrincipal":{"AWS":"*","Service":["logging.s3.amazonaws.com","logs.eu-west-1.amazonaws.com"]},`+
				`"NotAction":"s3:*","NotResource":"arn:aws:s3:::c?rp/*"}`, statementOf("Allow", "*", "s3:*", "corp/*")),
		policyOf(`{"Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject",` +
			`"Resource":"arn:aws:s3:::corp/log/*","Condition":{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::*"}}}`),
		policyOf(`{"Effect":"Allow","NotPrincipal":"*","Action":"s3:*","NotResource":"arn:aws:s3:::corp"}`),
		policyOf(
			`{"Effect":"Allow","Principal":"*","Action":"s3:*","NotAction":"s3:GetObject","NotResource":"arn:aws:s3:::corp"}`),
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
		if accepted {
			agree(t, text, doc, judged)
		}
		if Spell([]byte(text), "corp") != nil || strings.ToLower(text) != text && strings.ContainsAny(text, "*?") {
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
