// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/nebulaio/nebulaio/internal/iam"

// conditions: a statement has effect only if all its conditions hold.
func conditions() []situation {
	var out []situation
	// each adds two rows: a statement that allows under a condition, and one that denies under it.
	each := func(n, condition, with string, holds bool) {
		out = append(out, situation{n: n, user: al("s3:ListBucket", "B", condition), do: "s3:ListBucket", on: "B", with: with,
			want: holds}, situation{n: n + ", deny", user: al(anything, both) + "," + dn("s3:ListBucket", "B", condition),
			do: "s3:ListBucket", on: "B", with: with, want: !holds})
	}
	const prefix = "s3:prefix=logs/2030/"
	each("StringEquals", `{"StringEquals":{"s3:prefix":"logs/2030/"}}`, prefix, true)
	each("StringEquals with other values", `{"StringEquals":{"s3:prefix":["a","b"]}}`, prefix, false)
	each("StringEquals without a value", `{"StringEquals":{"s3:prefix":"logs/2030/"}}`, "", false)
	each("StringEqualsIfExists without a value", `{"StringEqualsIfExists":{"s3:prefix":"logs/2030/"}}`, "", true)
	each("StringNotEquals", `{"StringNotEquals":{"s3:prefix":["a","b"]}}`, prefix, true)
	each("StringNotEquals without a value", `{"StringNotEquals":{"s3:prefix":"a"}}`, "", true)
	each("StringEqualsIgnoreCase", `{"StringEqualsIgnoreCase":{"s3:prefix":"LOGS/2030/"}}`, prefix, true)
	each("StringLike", `{"StringLike":{"s3:prefix":["x","logs/*"]}}`, prefix, true)
	each("StringNotLike", `{"StringNotLike":{"s3:prefix":"logs/*"}}`, prefix, false)
	each("Null of a key with a value", `{"Null":{"s3:prefix":"true"}}`, prefix, false)
	each("Null of a key without a value", `{"Null":{"s3:prefix":"true"}}`, "", true)
	each("a delimiter", `{"StringEquals":{"s3:delimiter":"/"}}`, "s3:delimiter=/", true)
	each("NumericLessThanEquals", `{"NumericLessThanEquals":{"s3:max-keys":"10"}}`, "s3:max-keys=10", true)
	each("NumericLessThan", `{"NumericLessThan":{"s3:max-keys":"10"}}`, "s3:max-keys=10", false)
	each("IpAddress", `{"IpAddress":{"aws:SourceIp":"127.0.0.0/8"}}`, "", true)
	each("IpAddress of another network", `{"IpAddress":{"aws:SourceIp":["10.0.0.0/8","::1"]}}`, "", false)
	each("NotIpAddress", `{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`, "", true)
	each("DateGreaterThan", `{"DateGreaterThan":{"aws:CurrentTime":"2020-01-01T00:00:00Z"}}`, "", true)
	each("DateLessThan", `{"DateLessThan":{"aws:EpochTime":"1577836800"}}`, "", false)
	each("Bool", `{"Bool":{"aws:SecureTransport":"false"}}`, "", true)
	each("two conditions", `{"StringLike":{"s3:prefix":"logs/*"},"IpAddress":{"aws:SourceIp":"127.0.0.1"}}`, prefix, true)
	each("two conditions, one false", `{"StringLike":{"s3:prefix":"logs/*"},"IpAddress":{"aws:SourceIp":"127.0.0.2"}}`,
		prefix, false)
	each("a group of the user", `{"ForAnyValue:StringEquals":{"aws:groups":"none"}}`, "", false)
	each("the name of the user", `{"StringEquals":{"aws:username":"U"}}`, "", true)
	return append(out,
		situation{n: "a header", user: al("s3:PutObject", "B/*", `{"StringEquals":{"s3:x-amz-storage-class":"STANDARD"}}`),
			do: "s3:PutObject", on: "B/new", with: "s3:x-amz-storage-class=STANDARD", want: true},
		situation{n: "a header that is missing", do: "s3:PutObject", on: "B/new",
			user: al("s3:PutObject", "B/*", `{"StringEquals":{"s3:x-amz-storage-class":"STANDARD"}}`)},
		situation{n: "a tag of the request", do: "s3:PutObject", on: "B/new", with: "s3:RequestObjectTag/team=red",
			user: al("s3:PutObject*", "B/*", `{"StringEquals":{"s3:RequestObjectTag/team":"red"}}`), want: true},
		situation{n: "another tag of the request", do: "s3:PutObject", on: "B/new", with: "s3:RequestObjectTag/team=blue",
			user: al("s3:PutObject*", "B/*", `{"StringEquals":{"s3:RequestObjectTag/team":"red"}}`)},
		situation{n: "the tag of an object", on: "B/red",
			user: al("s3:GetObject", "B/*", `{"StringEquals":{"s3:ExistingObjectTag/team":"red"}}`), want: true},
		situation{n: "the tag of another object",
			user: al("s3:GetObject", "B/*", `{"StringEquals":{"s3:ExistingObjectTag/team":"red"}}`)},
		situation{n: "deny by the tag of an object", on: "B/red", built: "readwrite",
			user: dn("s3:GetObject", "B/*", `{"StringEquals":{"s3:ExistingObjectTag/team":"red"}}`)},
		situation{n: "the program of the client", with: "aws:UserAgent=curl",
			user: al("s3:GetObject", "B/*", `{"StringEquals":{"aws:UserAgent":"curl"}}`), want: true},
		situation{n: "another program of the client", with: "aws:UserAgent=wget",
			user: al("s3:GetObject", "B/*", `{"StringEquals":{"aws:UserAgent":"curl"}}`)},
	)
}

// bucketsToo: the policy of the bucket and the policies of the user add up.
func bucketsToo() []situation {
	return []situation{
		{n: "the bucket allows the user", bucket: to("U", al("s3:GetObject", "B/*")), want: true},
		{n: "the bucket allows everybody", bucket: to("*", al("s3:GetObject", "B/*")), want: true},
		{n: "the bucket allows another action", bucket: to("U", al("s3:PutObject", "B/*"))},
		{n: "the bucket allows one action, the user another", user: al("s3:GetObject", "B/*"),
			bucket: to("U", al("s3:PutObject", "B/*")), want: true},
		{n: "the other of the two", user: al("s3:GetObject", "B/*"), bucket: to("U", al("s3:PutObject", "B/*")),
			do: "s3:PutObject", want: true},
		{n: "the bucket allows a key, the user another", user: al("s3:GetObject", "B/a/*"),
			bucket: to("U", al("s3:GetObject", "B/k")), on: "B/a/k", want: true},
		{n: "the bucket allows a key", user: al("s3:GetObject", "B/a/*"), bucket: to("U", al("s3:GetObject", "B/k")),
			want: true},
		{n: "neither of the two", user: al("s3:GetObject", "B/a/*"), bucket: to("U", al("s3:GetObject", "B/k")), on: "B/red"},
		{n: "the bucket allows by the ARN of the user", bucket: to("arn:aws:iam::123456789012:user/U",
			al("s3:GetObject", "B/*")), want: true},
		{n: "the ACL allows everybody to list", acl: "public-read", do: "s3:ListBucket", on: "B", want: true},
		{n: "the ACL does not allow to write", acl: "public-read", do: "s3:PutObject"},
		{n: "the ACL and the user add up", acl: "public-read", user: al("s3:PutObject", "B/*"), do: "s3:PutObject",
			want: true},
		{n: "the ACL is private", acl: "private", do: "s3:ListBucket", on: "B"},
		{n: "the user may, whatever the ACL says", acl: "private", user: al("s3:GetObject", "B/*"), want: true},
	}
}

// rolesAndOwners: the roles keep their meaning beside policies.
func rolesAndOwners() []situation {
	return []situation{
		{n: "the role admin", role: iam.RoleAdmin, want: true},
		{n: "the role admin in another's bucket", role: iam.RoleAdmin, do: "s3:PutBucketVersioning", on: "B", want: true},
		{n: "the role admin beside a policy that allows little", role: iam.RoleAdmin, user: al("s3:GetObject", "other/*"),
			do: "s3:PutObject", want: true},
		{n: "the role userplus has no access to another's bucket", role: iam.RoleUserPlus},
		{n: "the owner reads", owns: true, want: true},
		{n: "the owner writes", owns: true, do: "s3:PutObject", want: true},
		{n: "the owner changes settings", owns: true, do: "s3:PutBucketVersioning", on: "B", want: true},
		{n: "the owner beside a policy that allows little", owns: true, user: al("s3:GetObject", "other/*"),
			do: "s3:PutObject", want: true},
		{n: "the owner beside a policy of the bucket for others", owns: true, bucket: to("*", al("s3:GetObject", "B/*")),
			do: "s3:PutObject", want: true},
		{n: "the owner is denied by the bucket", owns: true, bucket: to("U", dn("s3:GetObject", "B/*"))},
	}
}

// groupsAndSeveral: policies of groups count as those of the user.
func groupsAndSeveral() []situation {
	return []situation{
		{n: "a group allows", group: al("s3:GetObject", "B/*"), want: true},
		{n: "a group allows another action", group: al("s3:PutObject", "B/*")},
		{n: "user and group add up", user: al("s3:PutObject", "B/*"), group: al("s3:GetObject", "B/*"), want: true},
		{n: "two policies add up", user: al("s3:PutObject", "B/*"), second: al("s3:GetObject", "B/*"), want: true},
		{n: "two policies, none allows", user: al("s3:PutObject", "B/*"), second: al("s3:GetObject", "B/a/*")},
		{n: "a group and the bucket add up", group: al("s3:PutObject", "B/*"), bucket: to("U", al("s3:GetObject", "B/*")),
			want: true},
		{n: "the name of the group as a condition", group: al("s3:GetObject", "B/*",
			`{"ForAnyValue:StringEquals":{"aws:groups":"group-of-U"}}`), want: true},
		{n: "a group lists", group: al("s3:ListBucket", "B"), do: "s3:ListBucket", on: "B", want: true},
	}
}

// serviceAccounts: the keys of a service account can do what the user can, within their own policy.
func serviceAccounts() []situation {
	return []situation{
		{n: "all rights of the user", user: al("s3:GetObject", "B/*"), key: free, want: true},
		{n: "no more than the user", user: al("s3:GetObject", "B/*"), key: free, do: "s3:PutObject"},
		{n: "the rights of the user's group", group: al("s3:GetObject", "B/*"), key: free, want: true},
		{n: "the user's deny", user: al(anything, both) + "," + dn("s3:GetObject", "*"), key: free},
		{n: "the group's deny", user: al(anything, both), group: dn("s3:GetObject", "*"), key: free},
		{n: "the bucket of the user", owns: true, key: free, do: "s3:PutObject", want: true},
		{n: "the bucket's policy for the user", bucket: to("U", al("s3:GetObject", "B/*")), key: free, want: true},
		{n: "the bucket's deny of the user", user: al(anything, both), bucket: to("U", dn("s3:GetObject", "B/*")), key: free},
		{n: "the role of the user", role: iam.RoleAdmin, key: free, want: true},
		{n: "both allow", user: al(anything, both), key: al("s3:GetObject", "B/*"), want: true},
		{n: "its own policy does not allow", user: al(anything, both), key: al("s3:GetObject", "B/*"), do: "s3:PutObject"},
		{n: "its own policy alone allows nothing", key: al(anything, both)},
		{n: "the user may not", user: al("s3:PutObject", "B/*"), key: al(anything, both)},
		{n: "its own deny", user: al(anything, both), key: al(anything, both) + "," + dn("s3:GetObject", "*")},
		{n: "its own policy limits the owner", owns: true, key: al("s3:GetObject", "B/*"), do: "s3:PutObject"},
		{n: "within its own policy, the owner", owns: true, key: al("s3:GetObject", "B/*"), want: true},
		{n: "its own policy limits the bucket's policy", bucket: to("U", al("s3:PutObject", "B/*")),
			key: al("s3:GetObject", "B/*"), do: "s3:PutObject"},
		{n: "its own policy limits what everybody may", bucket: to("*", al("s3:GetObject", "B/*")),
			key: al("s3:PutObject", "*")},
		{n: "its own policy limits an admin", role: iam.RoleAdmin, key: al("s3:GetObject", "B/*"), do: "s3:PutObject"},
		{n: "within its own policy, an admin", role: iam.RoleAdmin, key: al("s3:GetObject", "B/*"), want: true},
		{n: "its own policy limits an admin to a key", role: iam.RoleAdmin, key: al("s3:GetObject", "B/a/*")},
		{n: "its own policy limits settings", role: iam.RoleAdmin, key: al("s3:GetObject", "B/*"),
			do: "s3:PutBucketVersioning", on: "B"},
		{n: "its own condition", user: al(anything, both), do: "s3:ListBucket", on: "B", with: "s3:prefix=a/",
			key: al("s3:ListBucket", "B", `{"StringEquals":{"s3:prefix":"a/"}}`), want: true},
		{n: "its own condition does not hold", user: al(anything, both), do: "s3:ListBucket", on: "B", with: "s3:prefix=b/",
			key: al("s3:ListBucket", "B", `{"StringEquals":{"s3:prefix":"a/"}}`)},
		{n: "a variable in its own policy", user: al(anything, both), key: al(anything, "B/home/${aws:username}/*"),
			do: "s3:PutObject", on: "B/home/U/k", want: true},
		{n: "its own policy limits the ACL", acl: "public-read", key: al("s3:PutObject", "*"),
			do: "s3:ListBucket", on: "B"},
	}
}

// wholeServer: actions that are not about an existing bucket.
func wholeServer() []situation {
	return []situation{
		{n: "userplus makes buckets", role: iam.RoleUserPlus, do: "s3:CreateBucket", on: "N", want: true},
		{n: "admin makes buckets", role: iam.RoleAdmin, do: "s3:CreateBucket", on: "N", want: true},
		{n: "a policy lets make buckets of a name", user: al("s3:CreateBucket", "N"), do: "s3:CreateBucket", on: "N",
			want: true},
		{n: "a policy lets make other buckets", user: al("s3:CreateBucket", "other-*"), do: "s3:CreateBucket", on: "N"},
		{n: "userplus is denied", role: iam.RoleUserPlus, user: dn("s3:CreateBucket", "*"), do: "s3:CreateBucket", on: "N"},
		{n: "a service account of userplus", role: iam.RoleUserPlus, key: free, do: "s3:CreateBucket", on: "N", want: true},
		{n: "its own policy limits userplus", role: iam.RoleUserPlus, key: al("s3:GetObject", "*"), do: "s3:CreateBucket",
			on: "N"},
		{n: "a policy lets list all buckets", user: al("s3:ListAllMyBuckets", "*"), do: "s3:ListAllMyBuckets", on: "*",
			want: true},
		{n: "listing buckets is denied", user: dn("s3:ListAllMyBuckets", "*"), do: "s3:ListAllMyBuckets", on: "*"},
		{n: "its own policy limits the list of buckets", key: al("s3:GetObject", "*"), do: "s3:ListAllMyBuckets", on: "*"},
	}
}
