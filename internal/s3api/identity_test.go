// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// allows makes a policy of a user, which replaces the user's policy of before. A statement is Allow ACTION RESOURCE or
// Deny ACTION RESOURCE.
func (w *world) allows(user string, statements ...string) {
	w.t.Helper()
	var list []string
	for _, s := range statements {
		f := strings.SplitN(s, " ", 4)
		text := `{"Effect":"` + f[0] + `","Action":"` + f[1] + `","Resource":"arn:aws:s3:::` + f[2] + `"`
		if len(f) == 4 {
			text += `,"Condition":` + f[3]
		}
		list = append(list, text+"}")
	}
	if err := w.iam.PutPolicy(w.t.Context(), "of-"+user,
		[]byte(`{"Version":"2012-10-17","Statement":[`+strings.Join(list, ",")+`]}`)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.iam.Attach(w.t.Context(), iam.Holder{User: user}, "of-"+user); err != nil {
		w.t.Fatal(err)
	}
}

// key makes a service account. Its secret is that of world.as.
func (w *world) key(name, parent string, expires time.Time, policy string) {
	w.t.Helper()
	if err := w.iam.AddKey(w.t.Context(), iam.Account{AccessKey: name, Secret: name + "-secret", Parent: parent,
		Expires: expires, SessionPolicy: policy}); err != nil {
		w.t.Fatal(err)
	}
}

// user makes accounts with the role user, who may do nothing.
func (w *world) user(names ...string) {
	w.t.Helper()
	w.people(names...)
	role := iam.RoleUser
	for _, name := range names {
		if err := w.iam.Update(w.t.Context(), name, iam.Change{Role: &role}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestPoliciesOfUsersHoldOnEveryPath: small and large writes, copies, presigned URLs and signatures of version 2.
func TestPoliciesOfUsersHoldOnEveryPath(t *testing.T) {
	w := start(t, nil, nil)
	w.user("alice")
	w.must(200, "PUT", "/corp", nil)
	w.must(200, "PUT", "/corp/secret/1", []byte("x"))
	w.allows("alice", "Allow s3:* corp/mine/*", "Allow s3:GetObject corp/secret/read")
	w.as("alice", 200, "PUT", "/corp/mine/1", "small")
	w.as("alice", 403, "PUT", "/corp/other/1", "small") // not by the decision about mine/1
	w.as("alice", 200, "PUT", "/corp/mine/2", strings.Repeat("x", 2<<20))
	w.as("alice", 403, "PUT", "/corp/other/2", strings.Repeat("x", 2<<20))
	w.as("alice", 200, "PUT", "/corp/mine/3", "", "X-Amz-Copy-Source", "/corp/mine/1")
	w.as("alice", 403, "PUT", "/corp/mine/4", "", "X-Amz-Copy-Source", "/corp/secret/1")
	w.as("alice", 403, "PUT", "/corp/other/3", "", "X-Amz-Copy-Source", "/corp/mine/1")
	if r := w.presigned("alice", "alice-secret", "GET", "/corp/mine/1", time.Now(), "60"); r.StatusCode != 200 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := w.presigned("alice", "alice-secret", "GET", "/corp/secret/1", time.Now(), "60"); r.StatusCode != 403 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	r := w.as("alice", 403, "GET", "/corp/secret/1", "")
	if text := string(r.body); r.code() != "AccessDenied" || strings.Contains(text, `\xff`) {
		t.Errorf("the message has the form of a key that only policies compare: %s", text)
	}
	// A form of a browser is decided by its key.
	if r := w.fileForm("alice", "corp", "mine/form", "", `{"key":"mine/form"}`); r.StatusCode != 204 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := w.fileForm("alice", "corp", "other/form", "", `{"key":"other/form"}`); r.StatusCode != 403 ||
		strings.Contains(string(r.body), `\xff`) {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	// A list of deletions is decided object by object.
	w.must(200, "PUT", "/corp/other/9", []byte("x"))
	r = w.as("alice", 200, "POST", "/corp?delete", `<Delete><Object><Key>mine/1</Key></Object><Object><Key>other/9</Key>`+
		`</Object></Delete>`)
	if text := string(r.body); !strings.Contains(text, "<Deleted><Key>mine/1") || !strings.Contains(text, "AccessDenied") {
		t.Errorf("%s", text)
	}
	w.must(200, "HEAD", "/corp/other/9", nil)
	w.must(404, "HEAD", "/corp/mine/1", nil)
}

// TestConditionsSeeTheRequest compares headers, forms and tags of the request and of the object.
func TestConditionsSeeTheRequest(t *testing.T) {
	w := start(t, nil, nil)
	w.user("alice")
	w.must(200, "PUT", "/corp", nil)
	w.must(200, "PUT", "/corp/red", []byte("x"), "X-Amz-Tagging", "Team=red")
	w.must(200, "PUT", "/corp/blue", []byte("x"), "X-Amz-Tagging", "Team=blue")
	w.allows("alice", `Allow s3:* corp/*`,
		`Deny s3:* corp/* {"StringEquals":{"s3:ExistingObjectTag/Team":"red"}}`,
		`Deny s3:PutObject corp/* {"StringLike":{"s3:x-amz-copy-source":"*red*"}}`,
		`Deny s3:PutObjectTagging corp/* {"ForAnyValue:StringEquals":{"s3:RequestObjectTagKeys":"Secret"}}`)
	w.as("alice", 200, "GET", "/corp/blue", "")
	w.as("alice", 403, "GET", "/corp/red", "")
	w.as("alice", 403, "DELETE", "/corp/red", "")
	w.as("alice", 403, "PUT", "/corp/new", "", "X-Amz-Copy-Source", "/corp/red")
	w.as("alice", 200, "PUT", "/corp/new", "", "X-Amz-Copy-Source", "/corp/blue")
	tagging := func(name string) string {
		return `<Tagging><TagSet><Tag><Key>` + name + `</Key><Value>x</Value></Tag></TagSet></Tagging>`
	}
	w.as("alice", 200, "PUT", "/corp/new?tagging", tagging("Open"))
	w.as("alice", 403, "PUT", "/corp/new?tagging", tagging("Secret"))
	r := w.as("alice", 200, "POST", "/corp?delete", `<Delete><Object><Key>red</Key></Object><Object><Key>blue</Key>`+
		`</Object></Delete>`)
	if text := string(r.body); !strings.Contains(text, "<Deleted><Key>blue") || !strings.Contains(text, "AccessDenied") {
		t.Errorf("%s", text)
	}
	w.must(200, "HEAD", "/corp/red", nil)
}

// TestServiceAccountsOverS3: they act for their user, and end.
func TestServiceAccountsOverS3(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.key("robot", "alice", time.Time{}, "")
	w.as("robot", 200, "PUT", "/corp", "")
	if bk, err := w.store.Bucket(t.Context(), "corp"); err != nil || bk.Owner != "alice" {
		t.Fatalf("%+v %v", bk, err)
	}
	w.as("robot", 200, "PUT", "/corp/1", "one")
	w.as("alice", 200, "GET", "/corp/1", "")
	if r := w.as("robot", 200, "GET", "/", ""); !strings.Contains(string(r.body), "<Name>corp</Name>") {
		t.Errorf("its user's buckets: %s", r.body)
	}
	w.as("bob", 403, "GET", "/corp/1", "")
	w.key("reader", "alice", time.Time{}, `{"Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}}`)
	w.as("reader", 200, "GET", "/corp/1", "")
	w.as("reader", 403, "PUT", "/corp/2", "two")
	w.as("reader", 403, "PUT", "/second", "")
	w.as("reader", 403, "GET", "/", "")
	w.key("ofroot", rootKey, time.Time{}, `{"Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}}`)
	w.as("ofroot", 200, "GET", "/corp/1", "")
	w.as("ofroot", 403, "PUT", "/corp/2", "two")
	w.as("ofroot", 403, "DELETE", "/corp/1", "")
	w.key("brief", "alice", time.Now().Add(time.Hour), "")
	w.as("brief", 200, "GET", "/corp/1", "")
	past := time.Now().Add(-time.Second)
	if err := w.iam.UpdateKey(t.Context(), "brief", iam.KeyChange{Expires: &past}); err != nil {
		t.Fatal(err)
	}
	if r := w.as("brief", 403, "GET", "/corp/1", ""); r.code() != "InvalidAccessKeyId" {
		t.Errorf("after its end: %s", r.body)
	}
	if err := w.iam.Remove(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	if r := w.as("robot", 403, "GET", "/corp/1", ""); r.code() != "InvalidAccessKeyId" {
		t.Errorf("its user is removed: %s", r.body)
	}
}

// TestTheDoorFollowsPolicies changes policies between two questions of the door. No cached decision survives.
func TestTheDoorFollowsPolicies(t *testing.T) {
	w := start(t, nil, nil)
	w.user("alice")
	w.must(200, "PUT", "/corp", nil)
	ask := func(who string, action object.Action) error {
		return w.server.Authorizer().Authorize(t.Context(), object.Access{Account: who, Action: action, Bucket: "corp",
			Key: "a/1"})
	}
	want := func(allowed bool, who string, action object.Action) {
		t.Helper()
		if err := ask(who, action); (err == nil) != allowed || err != nil && !errs.Is(err, errs.Permission) {
			t.Errorf("%s %s: %v, expected %v", who, action, err, allowed)
		}
	}
	for range 3 {
		w.allows("alice", "Allow s3:* *")
		want(true, "alice", object.ActionGet)
		want(true, "alice", object.ActionGet) // from the cache
		want(true, "alice", object.ActionPut)
		w.allows("alice", "Allow s3:Get* *")
		want(true, "alice", object.ActionGet)
		want(false, "alice", object.ActionPut)
		w.allows("alice", "Allow s3:* *", "Deny s3:GetObject corp/a/*")
		want(false, "alice", object.ActionGet)
		want(true, "alice", object.ActionPut)
	}
	w.allows("alice", "Allow s3:* *")
	w.key("robot", "alice", time.Time{}, "")
	want(true, "robot", object.ActionPut)
	text := `{"Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}}`
	if err := w.iam.UpdateKey(t.Context(), "robot", iam.KeyChange{SessionPolicy: &text}); err != nil {
		t.Fatal(err)
	}
	want(false, "robot", object.ActionPut)
	past := time.Now().Add(-time.Second)
	if err := w.iam.UpdateKey(t.Context(), "robot", iam.KeyChange{Expires: &past}); err != nil {
		t.Fatal(err)
	}
	want(false, "robot", object.ActionGet)
	if err := ask("robot", object.ActionGet); !errors.Is(err, iam.ErrExpired) {
		t.Errorf("the door does not say that the keys have expired: %v", err)
	}
}

// TestListOfBuckets: a policy can show all buckets to a user.
func TestListOfBuckets(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("bob", 200, "PUT", "/bobs", "")
	w.as("alice", 200, "PUT", "/alices", "")
	if text := string(w.as("alice", 200, "GET", "/", "").body); strings.Contains(text, "bobs") ||
		!strings.Contains(text, "alices") {
		t.Errorf("%s", text)
	}
	w.allows("alice", "Allow s3:ListAllMyBuckets *")
	if text := string(w.as("alice", 200, "GET", "/", "").body); !strings.Contains(text, "bobs") {
		t.Errorf("%s", text)
	}
	w.as("alice", 403, "GET", "/bobs", "")
	w.allows("alice", "Deny s3:ListAllMyBuckets *")
	w.as("alice", 403, "GET", "/", "")
}

// TestDirectoryBucketsFollowPolicies: a session would treat all keys alike, so a policy that does not gets none.
func TestDirectoryBucketsFollowPolicies(t *testing.T) {
	w := startExpress(t)
	alice := w.someone("alice", iam.RoleUser)
	w.express(alice, "PUT", testDirectory, nil).expect(t, http.StatusForbidden, "AccessDenied")
	w.allows("alice", "Allow s3:CreateBucket dir*")
	w.express(alice, "PUT", testDirectory, nil).expect(t, http.StatusOK, "")
	bob := w.someone("bob", iam.RoleUser)
	w.express(bob, "GET", testDirectory+"?session=", nil).expect(t, http.StatusForbidden, "AccessDenied")
	w.allows("bob", "Allow s3:* *")
	s := w.session(bob, testDirectory)
	w.express(s, "PUT", testDirectory+"/a", []byte("x")).expect(t, http.StatusOK, "")
	w.allows("bob", "Allow s3:* dir*/mine/*", "Allow s3:ListBucket dir*")
	w.express(bob, "GET", testDirectory+"?session=", nil).expect(t, http.StatusForbidden, "AccessDenied")
	w.express(bob, "PUT", testDirectory+"/mine/a", []byte("x")).expect(t, http.StatusOK, "")
	w.express(bob, "PUT", testDirectory+"/other/a", []byte("x")).expect(t, http.StatusForbidden, "AccessDenied")
}
