// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// versioned makes a bucket of alice that keeps versions, and n versions of each key. It returns their identifiers.
func (w *world) versioned(bucket string, n int, keys ...string) map[string][]string {
	w.t.Helper()
	w.as("alice", 200, "PUT", "/"+bucket, "")
	w.as("alice", 200, "PUT", "/"+bucket+"?versioning",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	out := map[string][]string{}
	for _, key := range keys {
		for range n {
			r := w.as("alice", 200, "PUT", "/"+bucket+"/"+key, "x")
			out[key] = append(out[key], r.Header.Get("x-amz-version-id"))
		}
	}
	return out
}

// deletion is a document that names objects as KEY or KEY@VERSION.
func deletion(objects ...string) string {
	var b strings.Builder
	for _, o := range objects {
		key, version, ok := strings.Cut(o, "@")
		b.WriteString("<Object><Key>" + key + "</Key>")
		if ok {
			b.WriteString("<VersionId>" + version + "</VersionId>")
		}
		b.WriteString("</Object>")
	}
	return "<Delete>" + b.String() + "</Delete>"
}

// onVersion is a statement with a condition on the version.
func onVersion(effect, who, action, operator, version string) string {
	return fmt.Sprintf(`{"Effect":%q,"Principal":{"AWS":[%q]},"Action":%q,"Resource":"arn:aws:s3:::corp/*","Condition":{%q:{"s3:VersionId":%q}}}`,
		effect, who, action, operator, version)
}

// TestDeletionsOfManyVersionsFollowConditions deletes versions in a list that a policy allows or denies one by one.
func TestDeletionsOfManyVersionsFollowConditions(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	ids := w.versioned("corp", 4, "key")["key"]
	at := func(i int) string { return "key@" + ids[i] }
	there := func(i int, want bool) {
		t.Helper()
		r, err := w.try("alice", "alice-secret", "GET", "/corp/key?versionId="+ids[i], nil)
		if err != nil || (r.StatusCode == 200) != want {
			t.Fatalf("version %d is there: %v, expected %v (%v)", i, !want, want, err)
		}
	}
	// One version is granted, and no other becomes it by an argument.
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(onVersion("Allow", "bob", "s3:DeleteObjectVersion", "StringEquals",
		ids[0])))
	w.as("bob", 400, "POST", "/corp?delete&versionId="+ids[0], deletion(at(1)))
	r := w.as("bob", 200, "POST", "/corp?delete", deletion(at(0), at(1), "key"))
	if n := strings.Count(string(r.body), "<Code>AccessDenied</Code>"); n != 2 {
		t.Errorf("%d refusals, expected 2: %s", n, r.body)
	}
	there(0, false)
	there(1, true)
	// One version is denied, by its own action and by all.
	for _, action := range []string{"s3:DeleteObjectVersion", "s3:*"} {
		w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", "s3:*", "corp/*"),
			onVersion("Deny", "bob", action, "StringEquals", ids[1])))
		w.as("bob", 200, "POST", "/corp?delete", deletion(at(1)))
		there(1, true)
	}
	// Every version but one is denied. What names none is judged as that.
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", "s3:*", "corp/*"),
		onVersion("Deny", "bob", "s3:*", "StringNotEquals", ids[2])))
	r = w.as("bob", 200, "POST", "/corp?delete", deletion(at(1), at(2), "key"))
	if n := strings.Count(string(r.body), "<Code>AccessDenied</Code>"); n != 2 {
		t.Errorf("%d refusals, expected 2: %s", n, r.body)
	}
	there(1, true)
	there(2, false)
	// A condition that holds for the whole request goes with it.
	agent := strings.Replace(onVersion("Allow", "bob", "s3:DeleteObjectVersion", "StringEquals", ids[1]), `"Condition":{`,
		`"Condition":{"StringLike":{"aws:UserAgent":"good*"},`, 1)
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(agent))
	w.as("bob", 200, "POST", "/corp?delete", deletion(at(1)), "User-Agent", "bad")
	there(1, true)
	w.as("bob", 200, "POST", "/corp?delete", deletion(at(1)), "User-Agent", "good one")
	there(1, false)
}

// TestAnACLDeletesNoOldVersions grants writing, which S3 lets nobody but the owner delete versions by.
func TestAnACLDeletesNoOldVersions(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	id := w.versioned("corp", 1, "key")["key"][0]
	w.as("alice", 200, "PUT", "/corp?ownershipControls",
		"<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>")
	w.as("alice", 200, "PUT", "/corp?acl", "", "x-amz-grant-write", `id="bob"`)
	w.as("bob", 403, "DELETE", "/corp/key?versionId="+id, "")
	if r := w.as("bob", 200, "POST", "/corp?delete", deletion("key@"+id)); !strings.Contains(string(r.body),
		"AccessDenied") {
		t.Errorf("%s", r.body)
	}
	w.as("bob", 204, "DELETE", "/corp/key", "")
	w.as("alice", 200, "GET", "/corp/key?versionId="+id, "")
	w.as("alice", 204, "DELETE", "/corp/key?versionId="+id, "")
}

// TestWhatComparesNeedsReading asks by conditions and attributes for what an account may not read.
func TestWhatComparesNeedsReading(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	etag := w.as("alice", 200, "PUT", "/corp/key", "x").Header.Get("ETag")
	act := func(status int) {
		t.Helper()
		for _, tag := range []string{etag, `"0"`} {
			w.as("bob", map[bool]int{true: 412, false: status}[status != 403 && tag != etag], "PUT", "/corp/key", "x",
				"If-Match", tag)
			w.as("bob", map[bool]int{true: 412, false: status}[status != 403 && tag != etag], "PUT", "/corp/key", "", "If-Match",
				tag, "x-amz-copy-source", "corp/open", "x-amz-metadata-directive", "REPLACE")
			w.as("alice", 200, "PUT", "/corp/key", "x")
			doc := "<Delete><Object><Key>key</Key><ETag>" + tag + "</ETag></Object></Delete>"
			if r := w.as("bob", 200, "POST", "/corp?delete", doc); status == 403 &&
				!strings.Contains(string(r.body), "AccessDenied") {
				t.Errorf("%s", r.body)
			}
			w.as("alice", 200, "PUT", "/corp/key", "x")
		}
	}
	w.as("alice", 200, "PUT", "/corp/open", "y")
	writes := policyOf(statement("Allow", "bob", "s3:PutObject", "corp/*"),
		statement("Allow", "bob", "s3:DeleteObject", "corp/*"),
		statement("Allow", "bob", "s3:GetObject", "corp/open"), statement("Allow", "bob", "s3:GetObjectAttributes", "corp/*"))
	w.as("alice", 204, "PUT", "/corp?policy", writes)
	act(403)
	w.as("bob", 403, "DELETE", "/corp/key", "", "If-Match", `"0"`)
	w.as("bob", 404, "PUT", "/corp/none", "x", "If-Match", "*")
	w.as("bob", 412, "PUT", "/corp/key", "x", "If-None-Match", "*")
	w.as("bob", 403, "GET", "/corp/key?attributes", "", "x-amz-object-attributes", "ETag")
	w.as("bob", 200, "GET", "/corp/open?attributes", "", "x-amz-object-attributes", "ETag")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Allow", "bob", "s3:*", "corp/*")))
	w.as("bob", 412, "DELETE", "/corp/key", "", "If-Match", `"0"`)
	w.as("bob", 200, "GET", "/corp/key?attributes", "", "x-amz-object-attributes", "ETag")
	w.as("bob", 200, "PUT", "/corp/key", "x", "If-Match", etag)
}

// TestConditionsAreJudgedOncePerRequest resolves the conditions of a policy for a request that names many objects. What
// is left of the policy has no conditions.
func TestConditionsAreJudgedOncePerRequest(t *testing.T) {
	w := start(t, nil, nil)
	rctx := &fasthttp.RequestCtx{}
	rctx.Init(&fasthttp.Request{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil)
	rctx.Request.Header.Set("User-Agent", "good one")
	request := conditionRequest(w.server.backend, rctx, object.Ref{Bucket: "corp"})
	agent := func(effect, operator, value string) string {
		return fmt.Sprintf(`{"Effect":%q,"Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::corp/*","Condition":{%q:{"aws:UserAgent":%q}}}`, effect, operator, value)
	}
	for text, want := range map[string]int{
		policyOf(agent("Allow", "StringLike", "good*")):                                      1,
		policyOf(agent("Allow", "StringNotLike", "good*")):                                   0,
		policyOf(agent("Deny", "StringLike", "good*"), agent("Deny", "StringEquals", "bad")): 1,
		policyOf(agent("Deny", "NoOperator", "x"), agent("Allow", "StringLike", "good*")):    0, // nothing is allowed
		policyOf(onVersion("Deny", "bob", "s3:*", "StringLike", "x")):                        0, // each object is asked for
		policyOf(onVersion("Allow", "bob", "s3:*", "StringLike", "x")):                       1,
	} {
		r := policy.ReadRules(&object.Bucket{Name: "corp", Settings: map[string][]byte{policy.Setting: []byte(text)}}, "root")
		left, err := r.Resolve(r.Policy, policy.Asked{Request: request, Many: true})
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(left), `"Effect"`); n != want || strings.Contains(string(left), "Condition") {
			t.Errorf("%s: %d statements left, expected %d: %s", text, n, want, left)
		}
	}
}

// TestPatternsThatTakeLong puts policies with long text behind a *.
func TestPatternsThatTakeLong(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	agent := func(pattern string) string {
		return policyOf(strings.Replace(statement("Allow", "bob", "s3:*", "corp/*"), `"Resource"`,
			`"Condition":{"StringNotLike":{"aws:UserAgent":["x",`+pattern+`]}},"Resource"`, 1))
	}
	long := strings.Repeat("a", 2<<10) // the bound of all conditions
	w.as("alice", 204, "PUT", "/corp?policy", agent(`"*`+long+`"`))
	w.as("alice", 204, "PUT", "/corp?policy", agent(`"`+long+`b*"`))
	w.as("alice", 400, "PUT", "/corp?policy", agent(`"*`+long+`b"`))
	w.as("alice", 400, "PUT", "/corp?policy", agent(`"*`+long+`","*b"`))
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Deny", "bob", "s3:GetObject", "corp/"+long+"*")))
	long = long[:512] // the bound of all resources
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(statement("Deny", "bob", "s3:GetObject", "corp/*"+long)))
	if r := w.as("alice", 400, "PUT", "/corp?policy",
		policyOf(statement("Deny", "bob", "s3:GetObject", "corp/*"+long+"b"))); !strings.Contains(string(r.body),
		"behind a *") {
		t.Errorf("%s", r.body)
	}
}

// TestStoredConditionsThatCannotHold has the policy of an older release whose denial could never hold.
func TestStoredConditionsThatCannotHold(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/key", "x")
	text := policyOf(statement("Allow", "bob", "s3:GetObject", "corp/*"),
		strings.Replace(statement("Deny", "bob", "s3:GetObject", "corp/*"), `"Resource"`,
			`"Condition":{"DateGreaterThan":{"aws:CurrentTime":"2020-01-01"}},"Resource"`, 1))
	if err := w.store.UpdateBucket(t.Context(), "corp", func(bk *object.Bucket) error {
		bk.Settings[policy.Setting] = []byte(text)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.as("bob", 403, "GET", "/corp/key", "")
	w.as("alice", 200, "GET", "/corp/key", "")
	w.as("alice", 204, "PUT", "/corp?policy", strings.Replace(text, "2020-01-01", "2020-01-01T00:00:00Z", 1))
	w.as("bob", 403, "GET", "/corp/key", "")
	w.as("alice", 204, "PUT", "/corp?policy", strings.Replace(text, "2020-01-01", "2099-01-01T00:00:00Z", 1))
	w.as("bob", 200, "GET", "/corp/key", "")
}
