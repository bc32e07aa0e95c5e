// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// situations are buckets of alice's, by how others may use them. %s is the bucket's name.
var situations = map[string]struct {
	headers []string // of the bucket's making
	policy  string
}{
	"nothing said": {},
	"lock":         {headers: []string{"x-amz-bucket-object-lock-enabled", "true"}},
	"acl read":     {headers: []string{"x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-grant-read", "bob"}},
	"acl write":    {headers: []string{"x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-grant-write", "bob"}},
	"acl full": {headers: []string{"x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-grant-full-control",
		"bob"}},
	"acl public": {headers: []string{"x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-acl", "public-read"}},
	"acl public all": {headers: []string{"x-amz-object-ownership", "BucketOwnerPreferred", "x-amz-acl",
		"public-read-write"}},
	"bob reads":    {policy: policyOf(statement("Allow", "bob", "s3:GetObject", "%s/*"))},
	"bob versions": {policy: policyOf(statement("Allow", "bob", "s3:GetObjectVersion", "%s/*"))},
	"bob writes":   {policy: policyOf(statement("Allow", "bob", "s3:PutObject", "%s/*"))},
	"bob below": {policy: policyOf(statement("Allow", "bob", "s3:*", "%s/dir/*"),
		statement("Allow", "bob", "s3:ListBucket", "%s"))},
	"bob but one": {policy: policyOf(statement("Allow", "bob", "s3:*", "%s/*"),
		statement("Deny", "bob", "s3:GetObject", "%s/dir/key"))},
	"all": {policy: policyOf(statement("Allow", "*", "s3:*", "%s/*"),
		statement("Allow", "*", "s3:ListBucket", "%s"))},
	"not alice":    {policy: policyOf(statement("Deny", "alice", "s3:*", "%s/*"))},
	"nobody lists": {policy: policyOf(statement("Deny", "*", "s3:ListBucket", "%s"))},
	"dots":         {policy: policyOf(statement("Allow", "bob", "s3:GetObject", "%s/a/../b"))},
	"prefix": {policy: `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::%s",` +
		`"Condition":{"StringEquals":{"s3:prefix":"dir/"}}}]}`},
	"folders only": {policy: `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::%s",` +
		`"Condition":{"StringEquals":{"s3:delimiter":"/"}}}]}`},
	"no folders": {policy: `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::%s"},` +
		`{"Effect":"Deny","Principal":{"AWS":["bob"]},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::%s","Condition":{"StringEquals":{"s3:delimiter":"/"}}}]}`},
	"short lists": {policy: `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::%s",` +
		`"Condition":{"NumericLessThanEquals":{"s3:max-keys":"10"}}}]}`},
	"from here": {policy: `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:GetObject","Resource":"arn:aws:s3:::%s/*",` +
		`"Condition":{"IpAddress":{"aws:SourceIp":"127.0.0.0/8"}}}]}`},
	"from elsewhere": {policy: `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:GetObject","Resource":"arn:aws:s3:::%s/*",` +
		`"Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}}]}`},
	"with TLS": {policy: `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::%s/*",` +
		`"Condition":{"Bool":{"aws:SecureTransport":"false"}}}]}`},
}

// TestKeysThatAreNoUTF8 are made through no door: none of HTTP could read them.
func TestKeysThatAreNoUTF8(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice")
	w.as("alice", 200, "PUT", "/photos", "")
	judge := w.server.Authorizer()
	for _, key := range []string{"\xff\xfe", "a\xc0\x80", "dir/\xed\xa0\x80"} {
		if err := judge.Authorize(t.Context(), object.Access{Account: "alice", Action: object.ActionPut, Bucket: "photos",
			Key: key}); !errors.Is(err, object.ErrInvalidName) {
			t.Errorf("%q: %v", key, err)
		}
		if err := judge.Authorize(t.Context(), object.Access{Account: "alice", Action: object.ActionGet, Bucket: "photos",
			Key: key}); err != nil {
			t.Errorf("what an older version made, %q, cannot be read: %v", key, err)
		}
	}
	if err := judge.Authorize(t.Context(), object.Access{Account: "alice", Action: object.ActionPut, Bucket: "photos",
		Key: "\u00e4\x00\uffff"}); err != nil {
		t.Errorf("a key that is UTF-8: %v", err)
	}
}

// TestOtherDoorsJudgeAsThisOne asks every account for every action in every situation twice: as a request, and through
// the Authorizer.
func TestOtherDoorsJudgeAsThisOne(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "carol", Secret: "carol-secret",
		Role: iam.RoleUser}); err != nil {
		t.Fatal(err)
	}
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "boss", Secret: "boss-secret",
		Role: iam.RoleAdmin}); err != nil {
		t.Fatal(err)
	}
	a := w.server.Authorizer()
	secrets := map[string]string{rootKey: rootSecret, "alice": "alice-secret", "bob": "bob-secret",
		"carol": "carol-secret", "boss": "boss-secret"}
	verdicts := map[bool]int{}
	for i, name := range slices.Sorted(maps.Keys(situations)) {
		s := situations[name]
		bucket := fmt.Sprintf("bucket-%d", i)
		w.as("alice", 200, "PUT", "/"+bucket, "", s.headers...)
		if !slices.Contains(s.headers, "x-amz-bucket-object-lock-enabled") {
			w.as("alice", 200, "PUT", "/"+bucket+"?versioning",
				`<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`)
		}
		versions := map[string]string{}
		for _, key := range []string{"key", "dir/key", "a/../b"} {
			r := w.as("alice", 200, "PUT", "/"+bucket+"/"+key, "content")
			versions[key] = r.Header.Get("x-amz-version-id")
		}
		if s.policy != "" {
			w.as("alice", 204, "PUT", "/"+bucket+"?policy", strings.ReplaceAll(s.policy, "%s", bucket))
		}
		for _, account := range slices.Sorted(maps.Keys(secrets)) {
			for key, version := range versions {
				path := "/" + bucket + "/" + key
				for _, q := range []struct {
					access       object.Access
					method, path string
				}{
					{object.Access{Action: object.ActionGet, Key: key}, "GET", path},
					{object.Access{Action: object.ActionGetVersion, Key: key, Version: version}, "GET", path + "?versionId=" +
						version},
					{object.Access{Action: object.ActionPut, Key: key}, "PUT", path},
					{object.Access{Action: object.ActionList}, "GET", "/" + bucket + "?list-type=2"},
					{object.Access{Action: object.ActionList, Key: "dir/"}, "GET", "/" + bucket + "?list-type=2&prefix=" +
						url.QueryEscape("dir/")},
					{object.Access{Action: object.ActionList, Delimiter: "/"}, "GET", "/" + bucket + "?list-type=2&delimiter=%2F"},
					{object.Access{Action: object.ActionList, Limit: 10}, "GET", "/" + bucket + "?list-type=2&max-keys=10"},
					{object.Access{Action: object.ActionList, Limit: 11}, "GET", "/" + bucket + "?list-type=2&max-keys=11"},
				} {
					r, err := w.try(account, secrets[account], q.method, q.path, nil)
					if err != nil {
						t.Fatal(err)
					}
					if r.StatusCode != 200 && r.StatusCode != 403 {
						t.Fatalf("%s: %s: %s %s: status %d: %s", name, account, q.method, q.path, r.StatusCode, r.body)
					}
					q.access.Account, q.access.Bucket = account, bucket
					err = a.Authorize(t.Context(), q.access)
					if err != nil && !errs.Is(err, errs.Permission) {
						t.Fatalf("%s: %+v: %v", name, q.access, err)
					}
					if err != nil && strings.ContainsAny(err.Error(), "<\n") {
						t.Fatalf("%s: a refusal that nobody can read: %v", name, err)
					}
					verdicts[err == nil]++
					if (err == nil) != (r.StatusCode == 200) {
						t.Errorf("%s: %+v: the other door says %v, S3 says %d", name, q.access, err, r.StatusCode)
					}
				}
			}
		}
	}
	if verdicts[true] < 100 || verdicts[false] < 100 {
		t.Errorf("the situations prove little: %v", verdicts)
	}
}

func TestOtherDoorsFollowEveryChange(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	a := w.server.Authorizer()
	x := object.Access{Account: "bob", Action: object.ActionGet, Bucket: "alices", Key: "key"}
	if err := a.Authorize(t.Context(), x); !errors.Is(err, object.ErrNoSuchBucket) {
		t.Errorf("no bucket: %v", err)
	}
	w.as("alice", 200, "PUT", "/alices", "")
	want := func(allowed bool, when string) {
		t.Helper()
		if err := a.Authorize(t.Context(), x); (err == nil) != allowed || err != nil && !errs.Is(err, errs.Permission) {
			t.Errorf("%s: %v", when, err)
		}
	}
	want(false, "a bucket of another one")
	for range 3 {
		w.as("alice", 204, "PUT", "/alices?policy", policyOf(statement("Allow", "bob", "s3:GetObject", "alices/*")))
		want(true, "a policy that allows it")
		w.as("alice", 204, "DELETE", "/alices?policy", "")
		want(false, "a policy that was taken back")
	}
	w.as("alice", 204, "DELETE", "/alices", "")
	w.as("bob", 200, "PUT", "/alices", "")
	want(true, "a bucket that was made again, by its new owner")
	if err := w.iam.Remove(t.Context(), "bob"); err != nil {
		t.Fatal(err)
	}
	want(false, "an account that is gone")
	x.Account, x.Action = rootKey, "s3:PutBucketPolicy"
	if err := a.Authorize(t.Context(), x); !errs.Is(err, errs.Invalid) {
		t.Errorf("an action that no door asks for: %v", err)
	}
	x.Action, x.Key = object.ActionGet, ""
	if err := a.Authorize(t.Context(), x); !errors.Is(err, object.ErrInvalidName) {
		t.Errorf("no key: %v", err)
	}
}

func TestAReadOnlyServerIsSoAtEveryDoor(t *testing.T) {
	w := start(t, nil, func(o *Options) { o.ReadOnly = true })
	if err := w.store.CreateBucket(t.Context(), object.Bucket{Name: "bucket", Owner: rootKey}); err != nil {
		t.Fatal(err)
	}
	x := object.Access{Account: rootKey, Bucket: "bucket", Key: "key"}
	for action, allowed := range map[object.Action]bool{object.ActionGet: true, object.ActionList: true,
		object.ActionPut: false} {
		x.Action = action
		if err := w.server.Authorizer().Authorize(t.Context(), x); (err == nil) != allowed || err != nil &&
			!errs.Is(err, errs.Permission) {
			t.Errorf("%s: %v", action, err)
		}
	}
}

func TestManyDoorsAtOnce(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/alices", "")
	w.as("alice", 204, "PUT", "/alices?policy", policyOf(statement("Allow", "bob", "s3:GetObject", "alices/bobs-*")))
	a := w.server.Authorizer()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 50 {
				x := object.Access{Account: "bob", Action: object.ActionGet, Bucket: "alices", Key: fmt.Sprintf("bobs-%d-%d", i, k)}
				if (i+k)%2 == 0 {
					x.Key = "not-" + x.Key
				}
				if err := a.Authorize(t.Context(), x); (err == nil) != ((i+k)%2 == 1) {
					t.Errorf("%+v: %v", x, err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkAuthorize(b *testing.B) {
	for _, c := range []struct{ name, account, policy string }{
		{"root", rootKey, ""}, {"owner", "alice", ""}, {"owner under a policy", "alice", "yes"},
		{"other under a policy", "bob", "yes"},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := start(b, nil, nil)
			w.people("alice", "bob")
			w.as("alice", 200, "PUT", "/alices", "")
			if c.policy != "" {
				w.as("alice", 204, "PUT", "/alices?policy", policyOf(statement("Allow", "bob", "s3:GetObject", "alices/*")))
			}
			a := w.server.Authorizer()
			x := object.Access{Account: c.account, Action: object.ActionGet, Bucket: "alices", Key: "some/key"}
			b.ReportAllocs()
			for b.Loop() {
				if err := a.Authorize(b.Context(), x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
