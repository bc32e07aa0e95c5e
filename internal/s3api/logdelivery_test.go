// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/accesslog"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// TestTargetsOfAccessLogs turns the access log of alice's bucket pictures on, with targets of alice and of bob.
func TestTargetsOfAccessLogs(t *testing.T) {
	w := start(t, nil, nil)
	w.people("alice", "bob")
	w.as("alice", 200, "PUT", "/pictures", "")
	const keys = `"Action":"s3:PutObject","Resource":"arn:aws:s3:::LOGS/log/*"`
	of := func(effect, rest string) string {
		return `{"Effect":"` + effect + `","Principal":{"Service":"logging.s3.amazonaws.com"},` + rest + `}`
	}
	when := func(condition string) string { return of("Allow", keys+`,"Condition":{`+condition+`}`) }
	granted := []string{"x-amz-object-ownership", "ObjectWriter", "x-amz-acl", "log-delivery-write"}
	const needs, denies = "must allow s3:PutObject to logging.s3.amazonaws.com",
		"denies s3:PutObject to logging.s3.amazonaws.com"
	for i, x := range []struct {
		n      string
		owner  string
		header []string
		policy string // statements; LOGS is the target
		want   string // part of the refusal; empty: accepted
	}{
		{"the same owner", "alice", nil, "", ""},
		{"the same owner, a policy for others", "alice", nil, statement("Allow", "bob", "s3:GetObject", "LOGS/*"), ""},
		{"the same owner, a policy that allows", "alice", nil, of("Allow", keys), ""},
		{"the same owner, a denial", "alice", nil, of("Deny", keys), denies},
		{"the same owner, a denial of everybody", "alice", nil, statement("Deny", "*", "s3:Put*", "LOGS/*"), denies},
		{"the same owner, a denial of users", "alice", nil, statement("Deny", "alice", "s3:Put*", "LOGS/*"), ""},
		{"the same owner, a denial elsewhere", "alice", nil, of("Deny", strings.Replace(keys, "log/", "x/", 1)), ""},
		{"the same owner, all services but one denied", "alice", nil,
			`{"Effect":"Deny","NotPrincipal":{"Service":"logging.s3.amazonaws.com"},` + keys + `}`, ""},
		{"the same owner, only TLS", "alice", nil, `{"Effect":"Deny","Principal":"*",` + keys +
			`,"Condition":{"Bool":{"aws:SecureTransport":"false"}}}`, ""},
		{"another owner", "bob", nil, "", needs},
		{"another owner allows", "bob", nil, of("Allow", keys), ""},
		{"another owner allows alice", "bob", nil, statement("Allow", "alice", "s3:*", "LOGS/*"), needs},
		{"another owner allows another prefix", "bob", nil, of("Allow", strings.Replace(keys, "log/", "x/", 1)), needs},
		{"another owner allows the prefix without its keys", "bob", nil,
			of("Allow", strings.Replace(keys, "log/*", "log/", 1)), needs},
		{"another owner allows another service", "bob", nil, strings.Replace(of("Allow", keys), "logging.", "", 1), needs},
		{"another owner allows the source", "bob", nil, when(`"ArnLike":{"aws:SourceArn":"arn:aws:s3:::pictures"}`), ""},
		{"another owner allows another source", "bob", nil, when(`"ArnLike":{"aws:SourceArn":"arn:aws:s3:::music"}`), needs},
		{"another owner allows the account", "bob", nil, when(`"StringEquals":{"aws:SourceAccount":"alice"}`), ""},
		{"another owner allows another account", "bob", nil, when(`"StringEquals":{"aws:SourceAccount":"bob"}`), needs},
		{"another owner allows and denies", "bob", nil, of("Allow", keys) + "," + of("Deny", keys), needs},
		{"another owner grants by the ACL", "bob", granted, "", ""},
		{"another owner grants by the ACL, and denies", "bob", granted, of("Deny", keys), needs},
		{"another owner grants writing alone", "bob", []string{"x-amz-object-ownership", "ObjectWriter", "x-amz-grant-write",
			`uri="http://acs.amazonaws.com/groups/s3/LogDelivery"`}, "", needs},
		{"another owner grants writing to everybody", "bob", []string{"x-amz-object-ownership", "ObjectWriter", "x-amz-acl",
			"public-read-write"}, "", needs},
	} {
		logs := fmt.Sprintf("logs-%d", i)
		w.as(x.owner, 200, "PUT", "/"+logs, "", x.header...)
		if x.policy != "" {
			w.as(x.owner, 204, "PUT", "/"+logs+"?policy", policyOf(strings.ReplaceAll(x.policy, "LOGS", logs)))
		}
		status := map[bool]int{true: 200, false: 400}[x.want == ""]
		r := w.as("alice", status, "PUT", "/pictures?logging", "<BucketLoggingStatus><LoggingEnabled><TargetBucket>"+logs+
			"</TargetBucket><TargetPrefix>log/</TargetPrefix></LoggingEnabled></BucketLoggingStatus>")
		if x.want != "" && (r.code() != "InvalidTargetBucketForLogging" || !strings.Contains(string(r.body), x.want)) {
			t.Errorf("%s: %s", x.n, r.body)
		}
		// A delivery is decided as the configuration was.
		err := MayDeliver(t.Context(), w.server, accesslog.Target{Source: "pictures", Owner: "alice", Bucket: logs}, "log/x")
		if (err == nil) != (x.want == "") {
			t.Errorf("%s: the delivery: %v", x.n, err)
		}
		if err != nil && (!errors.Is(err, accesslog.ErrDenied) || !errs.Is(err, errs.Permission) ||
			!strings.Contains(err.Error(), logs) || !strings.Contains(err.Error(), "fix: ")) {
			t.Errorf("%s: %v", x.n, err)
		}
	}
	// With the ownership BucketOwnerEnforced, ACLs have no effect.
	w.as("bob", 200, "PUT", "/enforced", "", granted...)
	w.as("bob", 200, "PUT", "/enforced?acl", "", "x-amz-acl", "private")
	w.as("bob", 200, "PUT", "/enforced?ownershipControls",
		"<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>")
	to := accesslog.Target{Source: "pictures", Owner: "alice", Bucket: "enforced"}
	if err := MayDeliver(t.Context(), w.server, to, "k"); !errors.Is(err, accesslog.ErrDenied) {
		t.Errorf("an ACL without effect: %v", err)
	}
	to.Bucket = "missing"
	if err := MayDeliver(t.Context(), w.server, to, "k"); !errors.Is(err, object.ErrNoSuchBucket) {
		t.Errorf("a missing bucket: %v", err)
	}
}
