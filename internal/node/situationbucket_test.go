// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/nebulaio/nebulaio/internal/iam"

// Rows about NotPrincipal, NotAction, NotResource and services in policies of buckets. The user of the first row stands
// for another user, who exists when these rows run.
const another = "user-0"

// notTo adds a NotPrincipal to a statement of a bucket's policy.
func notTo(principal, statement string) string {
	return `{"NotPrincipal":{"AWS":["` + principal + `"]},` + statement[1:]
}

// toService adds a service as principal to a statement of a bucket's policy, and notToService as NotPrincipal.
func toService(statement string) string {
	return `{"Principal":{"Service":"logging.s3.amazonaws.com"},` + statement[1:]
}

func notToService(statement string) string {
	return `{"NotPrincipal":{"Service":"logging.s3.amazonaws.com"},` + statement[1:]
}

// notDo and notOn return statements with NotAction and with NotResource.
func notDo(effect, actions, resources string) string {
	return statementOf(effect, "NotAction", actions, "Resource", resources, nil)
}

func notOn(effect, actions, resources string) string {
	return statementOf(effect, "Action", actions, "NotResource", resources, nil)
}

// negationsOfBuckets: a bucket's policy may name what a statement does not cover.
func negationsOfBuckets() []situation {
	open := to("*", al(anything, both))
	return []situation{
		{n: "NotPrincipal spares the user", bucket: open + "," + notTo("U", dn(anything, both)), want: true},
		{n: "NotPrincipal spares the user by ARN",
			bucket: open + "," + notTo("arn:aws:iam::123456789012:user/U", dn(anything, both)), want: true},
		{n: "NotPrincipal spares one of two", bucket: open + "," + notTo(another+`","U`, dn(anything, both)), want: true},
		{n: "NotPrincipal denies another", bucket: open + "," + notTo(another, dn(anything, both))},
		{n: "NotPrincipal denies another a listing", bucket: open + "," + notTo(another, dn(anything, both)),
			do: "s3:ListBucket", on: "B"},
		{n: "NotPrincipal denies what a policy of the user allows", user: al(anything, both),
			bucket: notTo(another, dn("s3:PutObject", "B/*")), do: "s3:PutObject"},
		{n: "NotPrincipal denies its action alone", user: al(anything, both),
			bucket: notTo(another, dn("s3:PutObject", "B/*")), want: true},
		{n: "NotPrincipal denies the owner", owns: true, bucket: notTo(another, dn("s3:GetObject", "B/*"))},
		{n: "NotPrincipal spares the owner", owns: true, bucket: notTo("U", dn("s3:GetObject", "B/*")), want: true},
		{n: "NotPrincipal does not bind an admin", role: iam.RoleAdmin, bucket: notTo(another, dn(anything, both)),
			want: true},
		{n: "NotPrincipal grants nothing", bucket: notTo(another, dn("s3:PutObject", "B/*"))},
		{n: "NotPrincipal grants nothing to its own", bucket: notTo("U", dn("s3:PutObject", "B/*"))},
		{n: "NotPrincipal of everybody", bucket: open + "," + notTo("*", dn(anything, both)), want: true},
		{n: "NotPrincipal of a whole account", bucket: open + "," +
			notTo("arn:aws:iam::123456789012:root", dn(anything, both))},
		{n: "NotPrincipal spares a service account of the user", bucket: open + "," + notTo("U", dn(anything, both)),
			key: free, want: true},
		{n: "NotPrincipal denies a service account of another", bucket: open + "," + notTo(another, dn(anything, both)),
			key: free},
		{n: "NotPrincipal of a service denies the user", bucket: open + "," + notToService(dn("s3:PutObject", "B/*")),
			do: "s3:PutObject"},
		{n: "NotPrincipal under a condition", bucket: open + "," + notTo(another, dn(anything, both,
			`{"IpAddress":{"aws:SourceIp":"127.0.0.0/8"}}`))},
		{n: "NotPrincipal under a condition that does not hold", bucket: open + "," + notTo(another, dn(anything, both,
			`{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`)), want: true},

		{n: "NotAction of the bucket allows the others", bucket: to("U", notDo("Allow", "s3:Put*,s3:Delete*", both)),
			want: true},
		{n: "NotAction of the bucket allows a listing", bucket: to("U", notDo("Allow", "s3:Put*,s3:Delete*", both)),
			do: "s3:ListBucket", on: "B", want: true},
		{n: "NotAction of the bucket does not allow its own", bucket: to("U", notDo("Allow", "s3:Put*,s3:Delete*", both)),
			do: "s3:PutObject"},
		{n: "NotAction of the bucket allows everybody", bucket: to("*", notDo("Allow", "s3:PutObject", both)), want: true},
		{n: "NotAction of the bucket allows another", bucket: to(another, notDo("Allow", "s3:PutObject", both))},
		{n: "NotAction of the bucket is no denial", bucket: to("U", notDo("Allow", "s3:Put*", both)),
			user: al("s3:PutObject", "B/*"), do: "s3:PutObject", want: true},
		{n: "NotAction of the bucket denies the others", user: al(anything, both), do: "s3:PutObject",
			bucket: to("U", notDo("Deny", "s3:Get*,s3:List*", both))},
		{n: "NotAction of the bucket does not deny its own", user: al(anything, both), want: true,
			bucket: to("U", notDo("Deny", "s3:Get*,s3:List*", both))},
		{n: "NotAction of the bucket in another case", user: al(anything, both), want: true,
			bucket: to("U", notDo("Deny", "S3:gETobject", both))},
		{n: "NotAction of one reads no version", user: al(anything, both), do: "s3:GetObjectVersion",
			bucket: to("U", notDo("Deny", "s3:GetObject", both))},
		{n: "NotAction of all actions", bucket: to("U", notDo("Allow", anything, both))},
		{n: "NotAction denies settings", owns: true, bucket: to("U", notDo("Deny", "s3:*Object*", both)),
			do: "s3:PutBucketVersioning", on: "B"},

		{n: "NotResource of the bucket allows the others", bucket: to("U", notOn("Allow", anything, "B/a/*")), want: true},
		{n: "NotResource of the bucket allows to write the others", bucket: to("U", notOn("Allow", anything, "B/a/*")),
			do: "s3:PutObject", want: true},
		{n: "NotResource of the bucket does not allow its own", bucket: to("U", notOn("Allow", anything, "B/a/*")),
			on: "B/a/k"},
		{n: "NotResource of the bucket does not allow to write its own", bucket: to("U", notOn("Allow", anything, "B/a/*")),
			do: "s3:PutObject", on: "B/a/k"},
		{n: "NotResource of the bucket allows a listing", bucket: to("U", notOn("Allow", anything, "B/a/*")),
			do: "s3:ListBucket", on: "B", want: true},
		{n: "NotResource of the bucket itself", bucket: to("U", notOn("Allow", anything, "B")), do: "s3:ListBucket", on: "B"},
		{n: "NotResource of the bucket itself allows its keys", bucket: to("U", notOn("Allow", anything, "B")), want: true},
		{n: "NotResource of the bucket denies the others", user: al(anything, both),
			bucket: to("U", notOn("Deny", "s3:GetObject", "B/a/*"))},
		{n: "NotResource of the bucket does not deny its own", user: al(anything, both), on: "B/a/k", want: true,
			bucket: to("U", notOn("Deny", "s3:GetObject", "B/a/*"))},
		{n: "NotResource of the bucket denies the owner", owns: true, bucket: to("*", notOn("Deny", "s3:PutObject", "B/a/*")),
			do: "s3:PutObject"},
		{n: "NotResource with a ? of UTF-8", bucket: to("U", notOn("Allow", anything, "B/a/?")), on: "B/a/é"},
		{n: "NotResource with two ? of UTF-8", bucket: to("U", notOn("Allow", anything, "B/a/??")), on: "B/a/é", want: true},
		{n: "NotResource of several", bucket: to("U", notOn("Allow", anything, "B/a/*,B/k"))},
		{n: "NotResource of versions", bucket: to("U", notOn("Allow", anything, "B/a/*")), do: "s3:GetObjectVersion",
			on: "B/a/k"},
		{n: "NotResource under a condition on a tag",
			bucket: to("U", statementOf("Allow", "Action", "s3:GetObject", "NotResource",
				"B/k", []string{`{"StringEquals":{"s3:ExistingObjectTag/team":"red"}}`})), on: "B/red", want: true},
		{n: "NotResource and a session policy", bucket: to("U", notOn("Allow", anything, "B/a/*")),
			key: al("s3:PutObject", "B/*")},

		{n: "all three deny", user: al(anything, both), do: "s3:PutObject",
			bucket: notTo(another, statementOf("Deny", "NotAction", "s3:GetObject", "NotResource", "B,B/a/*", nil))},
		{n: "all three spare the key", user: al(anything, both), do: "s3:PutObject", on: "B/a/k", want: true,
			bucket: notTo(another, statementOf("Deny", "NotAction", "s3:GetObject", "NotResource", "B,B/a/*", nil))},
		{n: "all three spare the action", user: al(anything, both), want: true,
			bucket: notTo(another, statementOf("Deny", "NotAction", "s3:GetObject", "NotResource", "B,B/a/*", nil))},
		{n: "all three spare the user", user: al(anything, both), do: "s3:PutObject", want: true,
			bucket: notTo("U", statementOf("Deny", "NotAction", "s3:GetObject", "NotResource", "B,B/a/*", nil))},

		{n: "a service is no user", bucket: toService(al(anything, both))},
		{n: "a service does not write for a user", bucket: toService(al("s3:PutObject", "B/*")), do: "s3:PutObject"},
		{n: "a service beside the user", bucket: `{"Principal":{"AWS":"U","Service":"s3.amazonaws.com"},` +
			al("s3:GetObject", "B/*")[1:], want: true},
		{n: "a denial of a service", bucket: open + "," + toService(dn(anything, both)), want: true},
		{n: "a user has no source", bucket: to("U",
			al("s3:GetObject", "B/*", `{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::*"}}`))},
		{n: "a denial of other sources denies a user", bucket: open + "," + to("*", dn("s3:GetObject", "B/*",
			`{"StringNotEquals":{"aws:SourceAccount":"U"}}`))},
	}
}
