// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"testing"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// grant changes a bucket of the store that a server runs on.
func (w *world) grant(g iam.Grant) bool {
	w.t.Helper()
	var changed bool
	err := w.store.UpdateBucket(w.t.Context(), g.Bucket, func(bk *object.Bucket) (err error) {
		changed, err = policy.AddGrant(bk, g, "root")
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return changed
}

func (w *world) revoke(bucket, user string, prefix *string) bool {
	w.t.Helper()
	var changed bool
	err := w.store.UpdateBucket(w.t.Context(), bucket, func(bk *object.Bucket) (err error) {
		changed, err = policy.RemoveGrants(bk, user, prefix, "root")
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return changed
}

// TestGrantsAllowWhatTheySay asks a server as the account that was granted something, and as others.
func TestGrantsAllowWhatTheySay(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob", "carol")
	w.as("alice", 200, "PUT", "/corp", "")
	w.as("alice", 200, "PUT", "/corp/a/1", "one")
	w.as("alice", 200, "PUT", "/corp/b/1", "two")
	try := func(who string, list, listA, getA, getB, putA, putB, del, policy int) {
		t.Helper()
		w.as(who, list, "GET", "/corp?list-type=2", "")
		w.as(who, listA, "GET", "/corp?list-type=2&prefix=a/", "")
		w.as(who, getA, "GET", "/corp/a/1", "")
		w.as(who, getB, "GET", "/corp/b/1", "")
		w.as(who, putA, "PUT", "/corp/a/"+who, "x")
		w.as(who, putB, "PUT", "/corp/b/"+who, "x")
		w.as(who, del, "DELETE", "/corp/a/"+who, "")
		w.as(who, policy, "PUT", "/corp?policy", policyOf(
			`{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::corp/*"}`))
	}
	try("bob", 403, 403, 403, 403, 403, 403, 403, 403)
	for _, x := range []struct {
		g                                        iam.Grant
		list, listA, getA, getB, putA, putB, del int
	}{
		{g: iam.Grant{User: "bob", Access: iam.AccessRead}, list: 200, listA: 200, getA: 200, getB: 200, putA: 403, putB: 403,
			del: 403},
		{g: iam.Grant{User: "bob", Access: iam.AccessWrite}, list: 403, listA: 403, getA: 403, getB: 403, putA: 200,
			putB: 200, del: 204},
		{g: iam.Grant{User: "bob", Access: iam.AccessReadWrite}, list: 200, listA: 200, getA: 200, getB: 200, putA: 200,
			putB: 200, del: 204},
		{g: iam.Grant{User: "bob", Access: iam.AccessRead, Prefix: "a/"}, list: 403, listA: 200, getA: 200, getB: 403,
			putA: 403, putB: 403, del: 403},
		{g: iam.Grant{User: "bob", Access: iam.AccessReadWrite, Prefix: "a/"}, list: 403, listA: 200, getA: 200, getB: 403,
			putA: 200, putB: 403, del: 204},
		{g: iam.Grant{User: "bob", Access: iam.AccessWrite, Prefix: "a/"}, list: 403, listA: 403, getA: 403, getB: 403,
			putA: 200, putB: 403, del: 204},
	} {
		x.g.Bucket = "corp"
		t.Run(fmt.Sprint(x.g.Access, x.g.Prefix), func(t *testing.T) {
			if !w.grant(x.g) || w.grant(x.g) {
				t.Error("the first grant changes something, the second nothing; this was otherwise")
			}
			try("bob", x.list, x.listA, x.getA, x.getB, x.putA, x.putB, x.del, 403)
			try("carol", 403, 403, 403, 403, 403, 403, 403, 403)
			// What was made is a policy that clients can read and put again.
			made := w.as("alice", 200, "GET", "/corp?policy", "")
			w.as("alice", 204, "PUT", "/corp?policy", string(made.body))
			bk, err := w.store.Bucket(t.Context(), "corp")
			if err != nil {
				t.Fatal(err)
			}
			if got, others := policy.Grants(bk, "bob"); len(got) != 1 || got[0] != x.g || others != 0 {
				t.Errorf("%+v, %d others, expected %+v", got, others, x.g)
			}
			if !w.revoke("corp", "bob", &x.g.Prefix) || w.revoke("corp", "bob", nil) {
				t.Error("the first revocation changes something, the second nothing; this was otherwise")
			}
			try("bob", 403, 403, 403, 403, 403, 403, 403, 403)
			w.as("alice", 404, "GET", "/corp?policy", "")
		})
	}
}
