// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/test/effort"
)

// TestGrantsLeaveTheRestOfAPolicy adds and takes grants in a policy that somebody wrote.
func TestGrantsLeaveTheRestOfAPolicy(t *testing.T) {
	const mine = `{ "Sid": "mine",  "Effect":"Deny","Principal":"*","Action":["s3:DeleteObject"],"Resource":"arn:aws:s3:::corp/keep/*" }`
	bk := &object.Bucket{Name: "corp", Owner: "alice",
		Settings: map[string][]byte{Setting: []byte(`{"Version":"2008-10-17","Id":"x","Statement":[` + mine + `]}`)}}
	for _, g := range []iam.Grant{{User: "bob", Access: iam.AccessRead},
		{User: "bob", Access: iam.AccessWrite, Prefix: "in/"}, {User: "b.o-b", Access: iam.AccessRead}} {
		if changed, err := AddGrant(bk, g, "root"); err != nil || !changed {
			t.Fatalf("%+v: %v, %v", g, changed, err)
		}
	}
	compact := func(text string) string {
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(text)); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := string(bk.Settings[Setting])
	if !strings.Contains(text, compact(mine)) || !strings.Contains(text, `"Version":"2008-10-17","Id":"x"`) {
		t.Errorf("the rest was changed: %s", text)
	}
	if got, others := Grants(bk, "bob"); len(got) != 2 || others != 1 {
		t.Errorf("%+v, %d others", got, others)
	}
	// Another access for the same prefix takes the place of the first.
	if changed, err := AddGrant(bk, iam.Grant{User: "bob", Access: iam.AccessRead, Prefix: "in/"}, "root"); err != nil ||
		!changed {
		t.Errorf("%v, %v", changed, err)
	}
	if got, _ := Grants(bk, "bob"); len(got) != 2 || got[1].Access != iam.AccessRead {
		t.Errorf("%+v", got)
	}
	if changed, err := RemoveGrants(bk, "bob", nil, "root"); err != nil || !changed {
		t.Errorf("%v, %v", changed, err)
	}
	if got, _ := Grants(bk, "b.o-b"); len(got) != 1 {
		t.Errorf("another account lost its grant: %s", bk.Settings[Setting])
	}
	if changed, err := RemoveGrants(bk, "b.o-b", nil, "root"); err != nil || !changed {
		t.Errorf("%v, %v", changed, err)
	}
	if got := compact(string(bk.Settings[Setting])); got != compact(`{"Version":"2008-10-17","Id":"x","Statement":[`+mine+
		`]}`) {
		t.Errorf("what is left: %s", got)
	}
}

func TestGrantsThatAreRefused(t *testing.T) {
	effort.SingleThreaded(t)
	with := func(policy string) *object.Bucket {
		bk := &object.Bucket{Name: "corp", Settings: map[string][]byte{}}
		if policy != "" {
			bk.Settings[Setting] = []byte(policy)
		}
		return bk
	}
	full := with("")
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = AddGrant(full, iam.Grant{User: fmt.Sprintf("user%03d%s", n, strings.Repeat("x", 40)),
			Access: iam.AccessRead}, "root")
	}
	if n < 100 || err == nil || !strings.Contains(err.Error(), "expected at most 20480") ||
		len(full.Settings[Setting]) > MaxSize {
		t.Errorf("after %d grants: %v", n, err)
	}
	bounded := with("")
	if _, err := AddGrant(bounded, iam.Grant{User: "bob", Access: iam.AccessRead}, "root"); err != nil {
		t.Fatal(err)
	}
	bounded.Settings[Setting] = bytes.ReplaceAll(bounded.Settings[Setting], []byte(`"Effect"`),
		[]byte(`"Condition":{"Bool":{"aws:SecureTransport":["true"]}},"Effect"`))
	replaced := func(from, to string) *object.Bucket {
		bk := with("")
		if _, err := AddGrant(bk, iam.Grant{User: "bob", Access: iam.AccessRead}, "root"); err != nil {
			t.Fatal(err)
		}
		bk.Settings[Setting] = bytes.ReplaceAll(bk.Settings[Setting], []byte(from), []byte(to))
		return bk
	}
	negated, served := replaced(`"Action"`, `"NotAction"`),
		replaced(`"Principal":{`, `"Principal":{"Service":"s3.amazonaws.com",`)
	open := with("")
	open.Settings[SettingACL] = []byte(`{"Owner":"alice","Grantees":[{"Permission":"FULL_CONTROL","Access":"alice","Type":"CanonicalUser"},{"Permission":"READ","Access":"carol","Type":"CanonicalUser"}]}`)
	for _, x := range []struct {
		bk   *object.Bucket
		g    iam.Grant
		want string
	}{
		{with(""), iam.Grant{User: "bob", Access: "all"}, `access "all", expected read, write or read-write`},
		{with(""), iam.Grant{User: "bob", Access: iam.AccessRead, Prefix: "a*"}, "read as patterns"},
		{with(""), iam.Grant{User: "bob", Access: iam.AccessRead, Prefix: "${aws:username}/"}, "read as patterns"},
		{with(""), iam.Grant{User: "bob", Access: iam.AccessRead, Prefix: "\xff"}, "no UTF-8"},
		{with(""), iam.Grant{User: "bob", Access: iam.AccessRead, Prefix: strings.Repeat("a", 1025)}, "1025 bytes"},
		{with(policyOf(`{"Effect":"Allow","NotPrincipal":"*","Action":"s3:*","Resource":"arn:aws:s3:::corp/*"}`)),
			iam.Grant{User: "bob", Access: iam.AccessRead}, "NotPrincipal"},
		{negated, iam.Grant{User: "carol", Access: iam.AccessRead},
			"somebody has changed the statement NebulaioGrantReadAll"},
		{served, iam.Grant{User: "carol", Access: iam.AccessRead},
			"somebody has changed the statement NebulaioGrantReadAll"},
		{with("no policy"), iam.Grant{User: "bob", Access: iam.AccessRead}, "JSON"},
		{bounded, iam.Grant{User: "carol", Access: iam.AccessRead},
			"somebody has changed the statement NebulaioGrantReadAll"},
		{open, iam.Grant{User: "bob", Access: iam.AccessRead}, `allows READ something to "carol"`},
	} {
		before := string(x.bk.Settings[Setting])
		changed, err := AddGrant(x.bk, x.g, "root")
		if err == nil || changed || !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%.40q: %v, %v, expected %q", x.g.Prefix, changed, err, x.want)
		}
		if after := string(x.bk.Settings[Setting]); after != before {
			t.Errorf("%q: a refused grant changed the policy", x.want)
		}
	}
}

// TestGrantsThatAClientWroteAnew reads a policy with grants and puts it back as other programs write JSON. The grants
// in it are still grants.
func TestGrantsThatAClientWroteAnew(t *testing.T) {
	for name, anew := range map[string]func(string) string{
		"sorted fields": func(text string) string {
			var doc any
			_ = json.Unmarshal([]byte(text), &doc)
			out, _ := json.MarshalIndent(doc, "", "  ")
			return string(out)
		},
		"escaped text": func(text string) string {
			return strings.NewReplacer("é", `\u00e9`, "&", `\u0026`).Replace(text)
		},
	} {
		bk := &object.Bucket{Name: "corp", Settings: map[string][]byte{}}
		for _, prefix := range []string{"", "é<&>/"} {
			if _, err := AddGrant(bk, iam.Grant{User: "alice", Access: iam.AccessRead, Prefix: prefix}, "root"); err != nil {
				t.Fatal(err)
			}
		}
		bk.Settings[Setting] = []byte(anew(string(bk.Settings[Setting])))
		for _, prefix := range []string{"", "é<&>/"} {
			if changed, err := AddGrant(bk, iam.Grant{User: "bob", Access: iam.AccessRead, Prefix: prefix},
				"root"); err != nil || !changed {
				t.Errorf("%s, prefix %q: changed %v, %v", name, prefix, changed, err)
			}
		}
		for _, user := range []string{"alice", "bob"} {
			if grants, others := Grants(bk, user); len(grants) != 2 || others != 0 {
				t.Errorf("%s: %s has %v and %d others", name, user, grants, others)
			}
		}
	}
}

// TestGrantsDoNotGrowAPolicyByEscapes grants and revokes beside a statement whose text would be much longer in escapes.
func TestGrantsDoNotGrowAPolicyByEscapes(t *testing.T) {
	own := `{"Sid":"Own <&>","Effect":"Allow","Principal":{"AWS":"alice"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::corp/` +
		strings.Repeat("<&>", 5000) + `"}`
	bk := &object.Bucket{Name: "corp", Settings: map[string][]byte{Setting: []byte(policyOf(own))}}
	if _, err := AddGrant(bk, iam.Grant{User: "bob", Access: iam.AccessRead, Prefix: "<a>/"}, "root"); err != nil {
		t.Fatal(err)
	}
	if text := string(bk.Settings[Setting]); !strings.Contains(text, own) {
		t.Errorf("the statement beside a grant was written anew: %.300s", text)
	}
	if changed, err := RemoveGrants(bk, "bob", nil, "root"); err != nil || !changed {
		t.Errorf("revoked: %v, %v", changed, err)
	}
}

// TestAChangedGrantIsNoGrant changes statements of grants by hand: what they say then, no grant says.
func TestAChangedGrantIsNoGrant(t *testing.T) {
	for name, change := range map[string]struct{ from, to string }{
		"a condition": {`"Resource":["arn:aws:s3:::corp/*"]`,
			`"Resource":["arn:aws:s3:::corp/*"],"Condition":{"IpAddress":{"aws:SourceIp":["10.0.0.0/8"]}}`},
		"more on the bucket": {`"s3:GetBucketLocation"`, `"s3:GetBucketLocation","s3:PutBucketPolicy"`},
	} {
		bk := &object.Bucket{Name: "corp", Settings: map[string][]byte{}}
		if _, err := AddGrant(bk, iam.Grant{User: "alice", Access: iam.AccessRead}, "root"); err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(bk.Settings[Setting]), change.from, change.to, 1)
		bk.Settings[Setting] = []byte(text)
		if _, others := Grants(bk, "alice"); others != 1 {
			t.Errorf("%s: %d statements that no grant made, expected 1: %s", name, others, text)
		}
		if grants, others := Grants(bk, "bob"); len(grants) != 0 || others != 0 {
			t.Errorf("%s: bob has %v and %d others", name, grants, others)
		}
	}
}

// TestGrantsBesideNegations grants and revokes in policies with NotPrincipal, NotAction, NotResource and services,
// which stay.
func TestGrantsBesideNegations(t *testing.T) {
	for name, x := range map[string]struct {
		statement string
		others    int // statements beside the grant that apply to bob
	}{
		"NotPrincipal with bob": {
			`{"Effect":"Deny","NotPrincipal":{"AWS":["bob"]},"Action":"s3:*","Resource":"arn:aws:s3:::corp/*"}`, 0},
		"NotPrincipal without bob": {`{"Effect":"Deny","NotPrincipal":{"AWS":["alice"]},"Action":"s3:*",` +
			`"Resource":"arn:aws:s3:::corp/x/*"}`, 1},
		"NotAction": {`{"Sid":"NebulaioGrantOwn","Effect":"Allow","Principal":{"AWS":["bob"]},"NotAction":["s3:Delete*"],` +
			`"Resource":["arn:aws:s3:::corp/*"]}`, 1},
		"NotResource": {`{"Sid":"NebulaioGrantOwn","Effect":"Allow","Principal":{"AWS":["bob"]},"Action":["s3:GetObject"],` +
			`"NotResource":["arn:aws:s3:::corp/x/*"]}`, 1},
		"a service": {`{"Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject",` +
			`"Resource":"arn:aws:s3:::corp/log/*"}`, 0},
		"a service and bob": {
			`{"Sid":"NebulaioGrantOwn","Effect":"Allow","Principal":{"AWS":["bob"],"Service":"s3.amazonaws.com"},` +
				`"Action":["s3:PutObject"],"Resource":["arn:aws:s3:::corp/log/*"]}`, 1},
	} {
		bk := &object.Bucket{Name: "corp", Settings: map[string][]byte{Setting: []byte(policyOf(x.statement))}}
		if changed, err := AddGrant(bk, iam.Grant{User: "bob", Access: iam.AccessRead}, "root"); err != nil || !changed {
			t.Errorf("%s: granted: %v, %v", name, changed, err)
		}
		if grants, others := Grants(bk, "bob"); len(grants) != 1 || others != x.others {
			t.Errorf("%s: %d grants and %d others, expected 1 and %d", name, len(grants), others, x.others)
		}
		if changed, err := RemoveGrants(bk, "bob", nil, "root"); err != nil || !changed {
			t.Errorf("%s: revoked: %v, %v", name, changed, err)
		}
		if text := string(bk.Settings[Setting]); !strings.Contains(text, x.statement) || strings.Contains(text, "ReadAll") {
			t.Errorf("%s: what is left: %s", name, text)
		}
	}
}
