// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

const enforcedControls = `<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>`

// TestEnforcedOwnershipEndsACLs gives a bucket ACLs, and then to its owner alone.
func TestEnforcedOwnershipEndsACLs(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob", "carol")
	w.as("alice", 200, "PUT", "/public", "", "x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-acl",
		"public-read-write")
	w.as("alice", 200, "PUT", "/granted", "", "x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-grant-full-control",
		"bob")
	for _, bucket := range []string{"public", "granted"} {
		w.as("alice", 200, "PUT", "/"+bucket+"/key", "x", "x-amz-grant-read", "id=bob")
		w.as("bob", 200, "GET", "/"+bucket+"/key", "")
		if r := w.as("alice", 400, "PUT", "/"+bucket+"?ownershipControls",
			enforcedControls); r.code() != "InvalidBucketAclWithObjectOwnership" {
			t.Errorf("%s", r.body)
		}
		w.as("alice", 200, "PUT", "/"+bucket+"?acl", "", "x-amz-acl", "private")
		w.as("alice", 200, "PUT", "/"+bucket+"?ownershipControls", enforcedControls)
		w.as("bob", 403, "GET", "/"+bucket+"/key", "")
		w.as("bob", 403, "PUT", "/"+bucket+"/key", "y")
		w.as("bob", 403, "GET", "/"+bucket, "")
		w.as("bob", 403, "GET", "/"+bucket+"?acl", "")
		w.as("alice", 200, "GET", "/"+bucket+"/key", "")
		w.as("bob", 200, "PUT", "/bobs-"+bucket, "")
		w.as("bob", 403, "PUT", "/bobs-"+bucket+"/copy", "", "x-amz-copy-source", bucket+"/key")
		for _, path := range []string{"/" + bucket + "/key", "/" + bucket} {
			if r, err := w.try("", "", "GET", path, nil); err != nil || r.StatusCode != 403 {
				t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
			}
		}
		if err := w.server.Authorizer().Authorize(t.Context(),
			object.Access{Account: "bob", Action: object.ActionGet, Bucket: bucket, Key: "key"}); err == nil {
			t.Errorf("%s: another door lets bob in", bucket)
		}
		if r := w.as("alice", 200, "GET", "/"+bucket+"?acl", ""); strings.Contains(string(r.body), "bob") ||
			strings.Contains(string(r.body), "AllUsers") {
			t.Errorf("%s", r.body)
		}
		for _, path := range []string{"/" + bucket + "?acl", "/" + bucket + "/key?acl"} {
			if r := w.as("alice", 400, "PUT", path, "", "x-amz-acl",
				"public-read"); r.code() != "AccessControlListNotSupported" {
				t.Errorf("%s: %s", path, r.body)
			}
		}
		// With another ownership, the ACLs of objects are in force again.
		w.as("alice", 200, "PUT", "/"+bucket+"?ownershipControls",
			strings.Replace(enforcedControls, "BucketOwnerEnforced", "BucketOwnerPreferred", 1))
		w.as("bob", 200, "GET", "/"+bucket+"/key", "")
	}
}

// TestGrantsAsS3WritesThem grants by headers, for an object and for its bucket.
func TestGrantsAsS3WritesThem(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob", "carol")
	w.as("alice", 200, "PUT", "/corp", "", "x-amz-object-ownership", "BucketOwnerPreferred")
	w.as("alice", 200, "PUT", "/corp/key", "x")
	for _, x := range []struct {
		grant              string
		status             int
		code               string
		bob, carol, nobody int
	}{
		{"bob", 200, "", 200, 403, 403},
		{`id="bob"`, 200, "", 200, 403, 403},
		{"id=bob, id=carol", 200, "", 200, 200, 403},
		{`uri="http://acs.amazonaws.com/groups/global/AllUsers"`, 200, "", 200, 200, 200},
		{"id=mallory", 400, "InvalidArgument", 200, 200, 200},
		{"mallory", 400, "InvalidArgument", 200, 200, 200},
		{`uri="http://acs.amazonaws.com/groups/global/Nobody"`, 400, "InvalidArgument", 200, 200, 200},
		{"emailAddress=bob@example.com", 400, "UnresolvableGrantByEmailAddress", 200, 200, 200},
		{"id=", 400, "InvalidArgument", 200, 200, 200},
		{`uri="http://acs.amazonaws.com/groups/global/AuthenticatedUsers"`, 200, "", 200, 200, 403},
	} {
		for _, path := range []string{"/corp", "/corp/key"} {
			if r := w.as("alice", x.status, "PUT", path+"?acl", "", "x-amz-grant-read", x.grant); r.code() != x.code {
				t.Errorf("%s: %s", x.grant, r.body)
			}
			w.as("bob", x.bob, "GET", path, "")
			w.as("carol", x.carol, "GET", path, "")
			w.as("alice", 200, "GET", path, "") // the owner needs no grant
			if r, err := w.try("", "", "GET", path, nil); err != nil || r.StatusCode != x.nobody {
				t.Errorf("%s of %s: nobody gets %d", x.grant, path, r.StatusCode)
			}
			err := w.server.Authorizer().Authorize(t.Context(), object.Access{Account: "carol", Action: object.ActionGet,
				Bucket: "corp", Key: "key"})
			if path == "/corp/key" && (err == nil) != (x.carol == 200) {
				t.Errorf("%s: the door says %v", x.grant, err)
			}
		}
	}
	w.as("alice", 200, "PUT", "/other", "", "x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-grant-read", "id=bob")
	w.as("bob", 200, "GET", "/other", "")
	if r := w.as("alice", 400, "PUT", "/third", "", "x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-grant-read",
		"id=mallory"); r.code() != "InvalidArgument" {
		t.Errorf("%s", r.body)
	}
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("%s", w.log.String())
	}
}

// TestEnforcedOwnershipRefusesACLs asks for an ACL wherever an object is made, and expects the same answers as S3's.
func TestEnforcedOwnershipRefusesACLs(t *testing.T) {
	w := start(t, nil, nil)
	w.people("bob")
	w.must(200, "PUT", "/enforced", nil)
	w.must(200, "PUT", "/preferred", nil, "x-amz-object-ownership", "BucketOwnerPreferred")
	for bucket, refused := range map[string]int{"enforced": 400, "preferred": 200} {
		w.must(200, "PUT", "/"+bucket+"/source", []byte("x"))
		for _, x := range []struct {
			name, value string
			status      int
		}{
			{"x-amz-acl", "bucket-owner-full-control", 200}, {"x-amz-acl", "private", 200},
			{"x-amz-acl", "public-read", refused}, {"x-amz-acl", "authenticated-read", refused},
			{"x-amz-acl", "nonsense", 400}, {"x-amz-grant-read", "id=bob", refused},
			{"x-amz-grant-full-control", "bob", refused},
		} {
			w.must(x.status, "PUT", "/"+bucket+"/key", []byte("x"), x.name, x.value)
			w.must(x.status, "PUT", "/"+bucket+"/copy", nil, "x-amz-copy-source", bucket+"/source", x.name, x.value)
			w.must(x.status, "POST", "/"+bucket+"/upload?uploads", nil, x.name, x.value)
			w.must(x.status, "PUT", "/"+bucket+"/key?"+x.name+"="+x.value, []byte("x"))
		}
		w.must(refused, "PUT", "/"+bucket+"/key?acl", nil, "x-amz-acl", "public-read")
		w.must(200, "PUT", "/"+bucket+"/key?acl", nil, "x-amz-acl", "private")
		// s3cmd writes the ACL of a copied object as it has read it.
		w.must(200, "PUT", "/"+bucket+"/key?acl", w.must(200, "GET", "/"+bucket+"/source?acl", nil).body)
	}
}
