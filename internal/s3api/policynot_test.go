// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// negated returns a statement with the given fields, such as "Not" before Action.
func negated(effect, principal, action, resource string) string {
	field := func(name, value string) string {
		if rest, ok := strings.CutPrefix(value, "!"); ok {
			name, value = "Not"+name, rest
		}
		var list []string
		for _, v := range strings.Split(value, ",") {
			switch {
			case name == "Resource" || name == "NotResource":
				v = "arn:aws:s3:::" + v
			case strings.HasSuffix(v, "amazonaws.com"):
				return fmt.Sprintf(`%q:{"Service":%q}`, name, v)
			}
			list = append(list, fmt.Sprintf("%q", v))
		}
		text := "[" + strings.Join(list, ",") + "]"
		if strings.HasSuffix(name, "Principal") {
			text = `{"AWS":` + text + `}`
		}
		return fmt.Sprintf("%q:%s", name, text)
	}
	return fmt.Sprintf(`{"Effect":%q,%s,%s,%s}`, effect, field("Principal", principal), field("Action", action),
		field("Resource", resource))
}

// negation is one decision of a policy with NotPrincipal, NotAction, NotResource or a service.
type negation struct {
	n      string
	policy string
	who    string // alice owns the bucket; empty: nobody
	do     string // get, put, delete, list, copy, form, deletes, policy, tags; empty: get
	key    string // empty: k
	want   bool
}

// negations are decisions that AWS documents for these fields.
func negations() []negation {
	const all, keys = "corp,corp/*", "corp/*"
	open := negated("Allow", "*", "s3:*", all)
	var (
		others       = policyOf(open, negated("Deny", "!bob", "s3:*", all))
		several      = policyOf(open, negated("Deny", "!bob,arn:aws:iam::123456789012:user/carol", "s3:*", all))
		nobody       = policyOf(open, negated("Deny", "!*", "s3:*", all))
		whole        = policyOf(open, negated("Deny", "!arn:aws:iam::123456789012:root", "s3:*", all))
		puts         = policyOf(open, negated("Deny", "!bob", "s3:PutObject", "corp/a/*"))
		service      = policyOf(open, negated("Deny", "!logging.s3.amazonaws.com", "s3:PutObject", keys))
		reads        = policyOf(negated("Allow", "bob", "!s3:Put*,s3:Delete*,s3:Abort*", all))
		publicReads  = policyOf(negated("Allow", "*", "!s3:Put*,s3:Delete*", all))
		noWrites     = policyOf(open, negated("Deny", "*", "!s3:Get*,s3:List*", all))
		nothing      = policyOf(negated("Allow", "*", "!s3:*", all))
		denyNothing  = policyOf(open, negated("Deny", "*", "!*", all))
		anyCase      = policyOf(negated("Allow", "bob", "!S3:getOBJECT", keys))
		outside      = policyOf(negated("Allow", "bob", "s3:*", "!corp/a/*"))
		publicOut    = policyOf(negated("Allow", "*", "s3:*", "!corp/a/*"))
		onlyInside   = policyOf(open, negated("Deny", "*", "s3:*", "!corp,corp/a/*"))
		inBucket     = policyOf(open, negated("Deny", "*", "s3:*", "!corp"))
		onKeys       = policyOf(open, negated("Deny", "*", "s3:*", "!corp/*"))
		question     = policyOf(negated("Allow", "bob", "s3:GetObject", "!corp/?"))
		noKey        = policyOf(negated("Allow", "bob", "s3:*", "!corp*"))
		three        = policyOf(open, negated("Deny", "!bob", "!s3:GetObject", "!corp,corp/a/*"))
		allowService = policyOf(negated("Allow", "logging.s3.amazonaws.com", "s3:*", all))
		denyService  = policyOf(open, negated("Deny", "logging.s3.amazonaws.com", "s3:*", all))
	)
	return []negation{
		{"NotPrincipal spares its own", others, "bob", "", "", true},
		{"NotPrincipal spares its own in a list of deletions", others, "bob", "deletes", "", true},
		{"NotPrincipal denies others", others, "carol", "", "", false},
		{"NotPrincipal denies others a listing", others, "carol", "list", "", false},
		{"NotPrincipal denies nobody without an account", others, "", "", "", false},
		{"NotPrincipal denies the owner who is not named", others, "alice", "", "", false},
		{"two in NotPrincipal, the first", several, "bob", "put", "", true},
		{"two in NotPrincipal, by ARN", several, "carol", "put", "", true},
		{"two in NotPrincipal, nobody", several, "", "put", "", false},
		{"NotPrincipal of everybody denies no user", nobody, "carol", "", "", true},
		{"NotPrincipal of everybody denies nobody", nobody, "", "", "", true},
		{"NotPrincipal of a whole account names its root alone", whole, "bob", "", "", false},
		{"NotPrincipal denies its action alone", puts, "carol", "", "a/k", true},
		{"NotPrincipal denies its action", puts, "carol", "put", "a/k", false},
		{"NotPrincipal denies its resource alone", puts, "carol", "put", "k", true},
		{"NotPrincipal denies a form", puts, "carol", "form", "a/k", false},
		{"NotPrincipal spares a form of its own", puts, "bob", "form", "a/k", true},
		{"NotPrincipal of a service denies users", service, "bob", "put", "", false},
		{"NotPrincipal of a service denies nobody", service, "", "put", "", false},
		{"NotPrincipal of a service leaves reading", service, "", "", "", true},
		{"NotAction allows the others", reads, "bob", "", "", true},
		{"NotAction allows others on the bucket", reads, "bob", "list", "", true},
		{"NotAction does not allow its own", reads, "bob", "put", "", false},
		{"NotAction does not allow its own deletion", reads, "bob", "delete", "", false},
		{"NotAction allows another user nothing", reads, "carol", "", "", false},
		{"NotAction is no denial", policyOf(negated("Allow", "bob", "!s3:PutObject", keys),
			negated("Allow", "bob", "s3:PutObject", keys)), "bob", "put", "", true},
		{"NotAction allows everybody", publicReads, "", "", "", true},
		{"NotAction allows everybody to list", publicReads, "", "list", "", true},
		{"NotAction does not allow everybody its own", publicReads, "", "put", "", false},
		{"NotAction denies others", noWrites, "bob", "put", "", false},
		{"NotAction denies others to the owner", noWrites, "alice", "put", "", false},
		{"NotAction denies others to everybody", noWrites, "", "put", "", false},
		{"NotAction does not deny its own", noWrites, "bob", "", "", true},
		{"NotAction does not deny everybody its own", noWrites, "", "list", "", true},
		{"NotAction of all actions allows nothing", nothing, "bob", "", "", false},
		{"NotAction of * denies nothing", denyNothing, "bob", "put", "", true},
		{"NotAction in another case", anyCase, "bob", "", "", false},
		{"NotAction in another case allows the rest", anyCase, "bob", "tags", "", true},
		{"NotResource allows the others", outside, "bob", "", "", true},
		{"NotResource does not allow its own", outside, "bob", "", "a/k", false},
		{"NotResource allows the bucket", outside, "bob", "list", "", true},
		{"NotResource allows a form elsewhere", outside, "bob", "form", "", true},
		{"NotResource does not allow a form", outside, "bob", "form", "a/f", false},
		{"NotResource allows everybody", publicOut, "", "", "", true},
		{"NotResource does not allow everybody its own", publicOut, "", "", "a/k", false},
		{"NotResource, a form of nobody", publicOut, "", "form", "f", true},
		{"NotResource, a refused form of nobody", publicOut, "", "form", "a/f", false},
		{"NotResource, nobody deletes a list", publicOut, "", "deletes", "k", true},
		{"NotResource, nobody deletes its own in a list", publicOut, "", "deletes", "a/k", false},
		{"NotResource, a list of deletions", outside, "bob", "deletes", "k", true},
		{"NotResource, its own in a list of deletions", outside, "bob", "deletes", "a/k", false},
		{"NotResource denies the others", onlyInside, "bob", "", "k", false},
		{"NotResource denies the others to the owner", onlyInside, "alice", "put", "k", false},
		{"NotResource denies the others to everybody", onlyInside, "", "", "k", false},
		{"NotResource does not deny its own", onlyInside, "bob", "put", "a/k", true},
		{"NotResource does not deny the bucket", onlyInside, "bob", "list", "", true},
		{"NotResource denies the others in a list", onlyInside, "bob", "deletes", "k", false},
		{"NotResource does not deny its own in a list", onlyInside, "bob", "deletes", "a/k", true},
		{"NotResource, a copy into its own", onlyInside, "bob", "copy", "a/copy", true},
		{"NotResource, a copy to elsewhere", onlyInside, "bob", "copy", "copy", false},
		{"NotResource does not allow a copy of its own", outside, "bob", "copy", "copy", false},
		{"NotResource of the bucket denies its keys", inBucket, "bob", "", "", false},
		{"NotResource of the bucket does not deny it", inBucket, "bob", "list", "", true},
		{"NotResource of the keys denies the bucket", onKeys, "bob", "list", "", false},
		{"NotResource of the keys does not deny them", onKeys, "bob", "", "", true},
		{"NotResource with a ? names a key", question, "bob", "", "k", false},
		{"NotResource with a ? names one character", question, "bob", "", "é", false},
		{"NotResource with a ? does not name two", question, "bob", "", "éé", true},
		{"NotResource of everything", noKey, "bob", "", "", false},
		{"NotResource of everything, the bucket", noKey, "bob", "list", "", false},
		{"all three deny", three, "carol", "put", "k", false},
		{"all three spare the account", three, "bob", "put", "k", true},
		{"all three spare the action", three, "carol", "", "k", true},
		{"all three spare the resource", three, "carol", "put", "a/k", true},
		{"all three spare the bucket", three, "carol", "list", "", true},
		{"a service is no user", allowService, "bob", "", "", false},
		{"a service is not nobody", allowService, "", "", "", false},
		{"a service is not the owner", allowService, "alice", "", "", true},
		{"a denial of a service denies no user", denyService, "bob", "", "", true},
		{"a denial of a service denies nobody else", denyService, "", "put", "", true},
	}
}

// TestNegationsDecide asks for each row by an HTTP request, and by the authorizer of the door if the row has an
// account.
func TestNegationsDecide(t *testing.T) {
	rows := negations()
	if len(rows) < 40 {
		t.Fatalf("%d rows, expected at least 40", len(rows))
	}
	w := start(t, nil, nil)
	w.people("alice", "bob", "carol")
	w.as("alice", 200, "PUT", "/corp", "")
	for _, x := range rows {
		w.must(204, "DELETE", "/corp?policy", nil)
		if x.key == "" {
			x.key = "k"
		}
		for _, key := range []string{"k", "a/k", "a/from", "%C3%A9", "%C3%A9%C3%A9"} {
			w.as("alice", 200, "PUT", "/corp/"+key, "x")
		}
		w.as("alice", 204, "PUT", "/corp?policy", x.policy)
		if got, detail := w.negationOverS3(x); got != x.want {
			t.Errorf("%s: S3 allows it: %v, expected %v: %s", x.n, got, x.want, detail)
		}
		action := map[string]object.Action{"": object.ActionGet, "put": object.ActionPut, "delete": object.ActionDelete,
			"deletes": object.ActionDelete, "form": object.ActionPut, "list": object.ActionList}[x.do]
		if x.who == "" || action == "" {
			continue
		}
		if action == object.ActionList {
			x.key = ""
		}
		err := w.server.Authorizer().Authorize(t.Context(),
			object.Access{Account: x.who, Action: action, Bucket: "corp", Key: x.key})
		if (err == nil) != x.want {
			t.Errorf("%s: another door says %v, expected it to be allowed: %v", x.n, err, x.want)
		}
	}
}

// negationOverS3 sends the request of a row, and reports whether the server allowed it.
func (w *world) negationOverS3(x negation) (bool, string) {
	w.t.Helper()
	secret := ""
	if x.who != "" {
		secret = x.who + "-secret"
	}
	at := "/corp/" + strings.NewReplacer("é", "%C3%A9").Replace(x.key)
	method, path, body, header := "GET", at, "", []string(nil)
	switch x.do {
	case "put", "delete":
		method = strings.ToUpper(x.do)
	case "list":
		path = "/corp"
	case "tags":
		path += "?tagging"
	case "copy":
		method, header = "PUT", []string{"x-amz-copy-source", "/corp/a/from"}
	case "deletes":
		method, path, body = "POST", "/corp?delete", deletion(x.key)
		header = []string{"Content-MD5", md5Base64(body)}
	case "form":
		return w.negationByForm(x)
	}
	r, err := w.try(x.who, secret, method, path, []byte(body), header...)
	if err != nil {
		w.t.Fatal(err)
	}
	if x.do == "deletes" && r.StatusCode == http.StatusOK {
		return strings.Contains(string(r.body), "<Deleted>"), string(r.body)
	}
	return w.wasAllowed(x, r.StatusCode, string(r.body)), string(r.body)
}

func (w *world) wasAllowed(x negation, status int, body string) bool {
	w.t.Helper()
	if status/100 != 2 && (status != http.StatusForbidden || !strings.Contains(body, "AccessDenied")) {
		w.t.Errorf("%s: status %d: %s", x.n, status, body)
	}
	return status/100 == 2
}

// negationByForm posts a form with the key of a row.
func (w *world) negationByForm(x negation) (bool, string) {
	w.t.Helper()
	want := map[bool]int{true: http.StatusNoContent, false: http.StatusForbidden}[x.want]
	r := w.postedAs(x.who, x.who+"-secret", time.Now(), want, "corp", x.key)
	return w.wasAllowed(x, r.StatusCode, string(r.body)), string(r.body)
}

// TestNegationsAndPublicAccess puts policies into a bucket that blocks public policies, and asks for their status.
func TestNegationsAndPublicAccess(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/k", "x")
	block := func(name string) {
		w.as("alice", 200, "PUT", "/corp?publicAccessBlock",
			"<PublicAccessBlockConfiguration><"+name+">true</"+name+"></PublicAccessBlockConfiguration>")
	}
	const all = "corp,corp/*"
	service := negated("Allow", "logging.s3.amazonaws.com", "s3:PutObject", "corp/*")
	sourced := strings.Replace(negated("Allow", "*", "s3:PutObject", "corp/*"), `"Action"`,
		`"Condition":{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::pictures"}},"Action"`, 1)
	for name, x := range map[string]struct {
		policy string
		public bool
	}{
		"NotPrincipal grants nothing": {policyOf(negated("Deny", "!bob", "s3:*", "corp/secret/*")), false},
		"a denial to everybody":       {policyOf(negated("Deny", "*", "s3:*", "corp/secret/*")), false},
		"NotAction to everybody":      {policyOf(negated("Allow", "*", "!s3:Put*", all)), true},
		"NotAction to bob":            {policyOf(negated("Allow", "bob", "!s3:Put*", all)), false},
		"NotAction that denies":       {policyOf(negated("Deny", "*", "!s3:Get*", "corp/secret/*")), false},
		"NotResource to everybody":    {policyOf(negated("Allow", "*", "s3:*", "!corp/a/*")), true},
		"NotResource to bob":          {policyOf(negated("Allow", "bob", "s3:*", "!corp/a/*")), false},
		"NotResource that denies":     {policyOf(negated("Deny", "*", "s3:PutObject", "!corp,corp/a/*")), false},
		"a service":                   {policyOf(service), false},
		"everybody for one source":    {policyOf(sourced), false},
		"everybody for all sources":   {policyOf(strings.Replace(sourced, "pictures", "*", 1)), true},
		"everybody beside a NotPrincipal": {policyOf(negated("Allow", "*", "s3:GetObject", all),
			negated("Deny", "!bob", "s3:Put*", all)), true},
		"a service beside a denial of keys": {policyOf(service, negated("Deny", "*", "s3:GetObject", "!corp,corp/k")), false},
	} {
		block("BlockPublicAcls") // blocks no policy
		w.as("alice", 204, "PUT", "/corp?policy", x.policy)
		if r := w.as("alice", 200, "GET", "/corp?policyStatus", ""); !strings.Contains(strings.ToLower(string(r.body)),
			fmt.Sprintf("<ispublic>%t</ispublic>", x.public)) {
			t.Errorf("%s: public: %v expected: %s", name, x.public, r.body)
		}
		w.as("alice", 204, "DELETE", "/corp?policy", "")
		block("BlockPublicPolicy")
		want := map[bool]int{true: 403, false: 204}[x.public]
		w.as("alice", want, "PUT", "/corp?policy", x.policy)
	}
	// A public policy has no effect in a bucket that restricts public policies, and its denials stay.
	block("BlockPublicAcls")
	w.as("alice", 204, "PUT", "/corp?policy", policyOf(negated("Allow", "*", "s3:*", "!corp/a/*")))
	w.as("bob", 200, "GET", "/corp/k", "")
	block("RestrictPublicBuckets")
	w.as("bob", 403, "GET", "/corp/k", "")
	w.as("alice", 200, "GET", "/corp/k", "")
	if r := w.nobody("GET", "/corp/k", ""); r.StatusCode != 403 {
		t.Errorf("nobody gets %d", r.StatusCode)
	}
}
