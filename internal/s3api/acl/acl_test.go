// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"
)

// people are the accounts of the tests.
type people map[string]bool

func (p people) Exists(access string) bool { return p[access] }

func targetOf(owner string) Target {
	return Target{Owner: owner, BucketOwner: "alice", Accounts: people{"alice": true, "bob": true}}
}

// TestCannedACLs expects the grants that S3 documents for each canned ACL.
func TestCannedACLs(t *testing.T) {
	for _, x := range []struct {
		name                                    string
		ofBucket, ok                            bool
		anyRead, anyWrite, userRead, bucketRead bool
	}{
		{"private", false, true, false, false, false, false},
		{"public-read", false, true, true, false, true, true},
		{"public-read-write", true, true, true, true, true, true},
		{"authenticated-read", false, true, false, false, true, true},
		{"bucket-owner-read", false, true, false, false, false, true},
		{"bucket-owner-full-control", false, true, false, false, false, true},
		{"bucket-owner-read", true, false, false, false, false, false},
		{"log-delivery-write", false, false, false, false, false, false},
		{"log-delivery-write", true, true, false, false, false, false},
		{"nonsense", false, false, false, false, false, false},
	} {
		acl, ok := Canned(x.name, x.ofBucket, "bob", "alice")
		if ok != x.ok {
			t.Errorf("%s: %v, expected %v", x.name, ok, x.ok)
		}
		if !ok {
			continue
		}
		for what, y := range map[string]struct{ got, want bool }{
			"everybody reads":   {Allows(acl, Requester{}, auth.PermissionRead, false), x.anyRead},
			"everybody writes":  {Allows(acl, Requester{}, auth.PermissionWrite, false), x.anyWrite},
			"an account reads":  {Allows(acl, Requester{"carol"}, auth.PermissionRead, false), x.userRead},
			"the bucket reads":  {Allows(acl, Requester{"alice"}, auth.PermissionRead, false), x.bucketRead},
			"the owner grants":  {Allows(acl, Requester{"bob"}, auth.PermissionWriteAcp, false), true},
			"ignored, it reads": {Allows(acl, Requester{"carol"}, auth.PermissionRead, true), false},
			"is public":         {IsPublic(acl), x.userRead},
		} {
			if y.got != y.want {
				t.Errorf("%s: %s is %v, expected %v", x.name, what, y.got, y.want)
			}
		}
	}
}

func xmlACL(owner string, grants ...string) string {
	return `<AccessControlPolicy><Owner><ID>` + owner + `</ID></Owner><AccessControlList>` + strings.Join(grants, "") +
		`</AccessControlList></AccessControlPolicy>`
}

func xmlGrant(kind, inside, permission string) string {
	return fmt.Sprintf(`<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type=%q>%s</Grantee>`+
		`<Permission>%s</Permission></Grant>`, kind, inside, permission)
}

// TestWhatRequestsAskFor reads ACLs in all forms of S3, and those that S3 refuses.
func TestWhatRequestsAskFor(t *testing.T) {
	bob := xmlGrant("CanonicalUser", "<ID>bob</ID>", "READ")
	for name, x := range map[string]struct {
		asked Asked
		code  string
		n     int
	}{
		"nothing":      {Asked{}, "", 1},
		"canned":       {Asked{Canned: "public-read"}, "", 2},
		"no canned":    {Asked{Canned: "nonsense"}, "InvalidArgument", 0},
		"of AWS alone": {Asked{Canned: "aws-exec-read"}, "NotImplemented", 0},
		"two ways": {Asked{Canned: "private", Grants: map[string]string{"X-Amz-Grant-Read": "bob"}}, "InvalidRequest",
			0},
		"header and XML":  {Asked{Canned: "private", Body: []byte(xmlACL("bob"))}, "UnexpectedContent", 0},
		"headers":         {Asked{Grants: map[string]string{"X-Amz-Grant-Read": `id="bob", uri="` + AllUsers + `"`}}, "", 2},
		"nobody's header": {Asked{Grants: map[string]string{"X-Amz-Grant-Read": "id=mallory"}}, "InvalidArgument", 0},
		"too many": {Asked{Grants: map[string]string{"X-Amz-Grant-Read": strings.Repeat("bob,", 101) + "bob"}},
			"InvalidRequest", 0},
		"XML": {Asked{Body: []byte(xmlACL("bob", bob,
			xmlGrant("Group", "<URI>"+AuthenticatedUsers+"</URI>", "WRITE")))}, "", 2},
		"no grants":     {Asked{Body: []byte(xmlACL("bob"))}, "", 0},
		"another owner": {Asked{Body: []byte(xmlACL("alice", bob))}, "InvalidArgument", 0},
		"no owner":      {Asked{Body: []byte(xmlACL("", bob))}, "MalformedACLError", 0},
		"no permission": {Asked{Body: []byte(xmlACL("bob", xmlGrant("CanonicalUser", "<ID>bob</ID>", "DANCE")))},
			"MalformedACLError", 0},
		"no kind": {Asked{Body: []byte(xmlACL("bob", xmlGrant("Robot", "<ID>bob</ID>", "READ")))}, "MalformedACLError",
			0},
		"e-mail": {Asked{Body: []byte(xmlACL("bob", xmlGrant("AmazonCustomerByEmail",
			"<EmailAddress>b@example.com</EmailAddress>", "READ")))}, "UnresolvableGrantByEmailAddress", 0},
		"no XML": {Asked{Body: []byte("<a")}, "MalformedXML", 0},
	} {
		acl, err := targetOf("bob").Make(x.asked)
		code := ""
		if known, ok := err.(s3err.S3Error); ok {
			code = known.BaseError().Code
		}
		if code != x.code || err == nil && len(acl.Grantees) != x.n {
			t.Errorf("%s: %v %d grants, expected %q %d: %v", name, code, len(acl.Grantees), x.code, x.n, err)
		}
	}
}

// FuzzACL reads any XML as an ACL. An ACL that was read is shown as XML that is read as the same ACL.
func FuzzACL(f *testing.F) {
	f.Add(xmlACL("bob", xmlGrant("CanonicalUser", "<ID>bob</ID>", "READ"),
		xmlGrant("Group", "<URI>"+AllUsers+"</URI>", "READ")))
	f.Add("<AccessControlPolicy/>")
	f.Fuzz(func(t *testing.T, body string) {
		acl, err := targetOf("bob").Make(Asked{Body: []byte(body)})
		if err != nil || body == "" {
			return
		}
		shown, err := XML(acl)
		if err != nil {
			t.Fatal(err)
		}
		again, err := targetOf("bob").Make(Asked{Body: shown})
		if err != nil || len(again.Grantees) != len(acl.Grantees) {
			t.Fatalf("%s was shown as %s: %v", body, shown, err)
		}
		text, err := Text(acl)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := OfObject(text, "bob")
		if err != nil || len(stored.Grantees) != len(acl.Grantees) {
			t.Fatalf("%s was stored as %s: %v", body, text, err)
		}
		for _, g := range stored.Grantees {
			if g.Type != types.TypeGroup && g.Type != types.TypeCanonicalUser {
				t.Fatalf("a grantee of the type %q", g.Type)
			}
		}
	})
}
