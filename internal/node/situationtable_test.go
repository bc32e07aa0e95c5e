// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"strings"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// situation is one request with everything that decides about it. In statements and resources, B stands for the bucket
// and U for the user of the situation.
type situation struct {
	n      string   // what the situation shows
	role   iam.Role // empty: user
	user   string   // statements of a policy that is attached to the user
	second string   // statements of another policy of the user
	group  string   // statements of a policy that is attached to a group of the user
	built  string   // a built-in policy of the user
	bucket string   // statements of the bucket's policy
	owns   bool     // the user owns the bucket
	acl    string   // canned ACL of the bucket
	key    string   // statements of the policy of a service account that signs the request; free: one without a policy
	do     string   // action; empty: s3:GetObject
	on     string   // resource; empty: B/k
	with   string   // condition keys of the request: KEY=VALUE, separated by spaces
	want   bool
}

// free is a service account without a policy of its own.
const free = "-"

// al and dn return statements that allow and deny actions on resources, with an optional condition.
func al(actions, resources string, condition ...string) string {
	return statementOf("Allow", "Action", actions, "Resource", resources, condition)
}

func dn(actions, resources string, condition ...string) string {
	return statementOf("Deny", "Action", actions, "Resource", resources, condition)
}

func statementOf(effect, action, actions, resource, resources string, condition []string) string {
	arns := strings.Split(strings.ReplaceAll(resources, ", ", "; "), ",") // the default of a variable follows ", "
	for i := range arns {
		arns[i] = strings.ReplaceAll(arns[i], "; ", ", ")
		if arns[i] != "*" {
			arns[i] = "arn:aws:s3:::" + arns[i]
		}
	}
	all := map[string]any{"Effect": effect, action: strings.Split(actions, ","), resource: arns}
	if len(condition) > 0 {
		all["Condition"] = json.RawMessage(condition[0])
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // the condition of a row is no JSON
	}
	return string(text)
}

// to adds a principal to a statement of a bucket's policy.
func to(principal, statement string) string {
	return `{"Principal":{"AWS":"` + principal + `"},` + statement[1:]
}

const (
	anything = `s3:*`
	both     = `B,B/*`
)

// situations are the rules that AWS documents for the evaluation of policies, one row for each.
func situations() []situation {
	var all []situation
	for _, rows := range [][]situation{nothingAllows(), actionsAndResources(), denials(), negations(), variables(),
		conditions(), bucketsToo(), rolesAndOwners(), groupsAndSeveral(), serviceAccounts(), wholeServer(),
		negationsOfBuckets()} {
		all = append(all, rows...)
	}
	return all
}

// nothingAllows: without a statement that allows it, a request is denied.
func nothingAllows() []situation {
	var out []situation
	for _, x := range [][2]string{{"s3:GetObject", "B/k"}, {"s3:PutObject", "B/new"}, {"s3:DeleteObject", "B/none"},
		{"s3:ListBucket", "B"}, {"s3:GetObjectVersion", "B/k"}, {"s3:GetObjectTagging", "B/k"},
		{"s3:PutObjectTagging", "B/k"},
		{"s3:GetBucketPolicy", "B"}, {"s3:GetBucketVersioning", "B"}, {"s3:PutBucketVersioning", "B"},
		{"s3:GetBucketTagging", "B"}, {"s3:ListBucketVersions", "B"}, {"s3:ListBucketMultipartUploads", "B"},
		{"s3:GetBucketAcl", "B"}, {"s3:GetBucketLocation", "B"}, {"s3:CreateBucket", "N"}} {
		out = append(out, situation{n: "nothing allows", do: x[0], on: x[1]},
			situation{n: "a statement on everything allows", user: al("*", "*"), do: x[0], on: x[1], want: true})
	}
	return append(out,
		situation{n: "every user may list its own buckets", do: "s3:ListAllMyBuckets", on: "*", want: true})
}

// actionsAndResources: a statement has effect only for its actions and resources.
func actionsAndResources() []situation {
	return []situation{
		{n: "one action", user: al("s3:GetObject", "B/*"), want: true},
		{n: "another action", user: al("s3:GetObject", "B/*"), do: "s3:PutObject"},
		{n: "a list of actions", user: al("s3:PutObject,s3:GetObject", "B/*"), do: "s3:PutObject", want: true},
		{n: "actions have no case", user: al("S3:getOBJECT", "B/*"), want: true},
		{n: "a * in an action", user: al("s3:Get*", "B/*"), want: true},
		{n: "a * in an action that does not match", user: al("s3:Get*", "B/*"), do: "s3:DeleteObject", on: "B/none"},
		{n: "a ? in an action", user: al("s3:?etObject", "B/*"), want: true},
		{n: "a ? is one character", user: al("s3:GetObject?", "B/*")},
		{n: "* is every action", user: al("*", "B/*"), want: true},
		{n: "reading a version is another action", user: al("s3:GetObject", "B/*"), do: "s3:GetObjectVersion"},
		{n: "the action of a version", user: al("s3:GetObjectVersion", "B/*"), do: "s3:GetObjectVersion", want: true},
		{n: "an action of another service", user: al("sqs:*", "*")},
		{n: "the bucket is not its objects", user: al(anything, "B")},
		{n: "the objects are not their bucket", user: al(anything, "B/*"), do: "s3:ListBucket", on: "B"},
		{n: "listing is of the bucket", user: al("s3:ListBucket", "B"), do: "s3:ListBucket", on: "B", want: true},
		{n: "one key", user: al("s3:GetObject", "B/k"), want: true},
		{n: "another key", user: al("s3:GetObject", "B/k"), on: "B/a/k"},
		{n: "a prefix", user: al("s3:GetObject", "B/a/*"), on: "B/a/k", want: true},
		{n: "outside of a prefix", user: al("s3:GetObject", "B/a/*")},
		{n: "a * goes across slashes", user: al("s3:GetObject", "B/*k"), on: "B/a/k", want: true},
		{n: "a * in the middle", user: al("s3:GetObject", "B/*/k"), on: "B/a/k", want: true},
		{n: "a ? in a key", user: al("s3:GetObject", "B/?"), want: true},
		{n: "a ? matches one character of UTF-8", user: al("s3:GetObject", "B/a/?"), on: "B/a/é", want: true},
		{n: "two ? do not match one character", user: al("s3:GetObject", "B/a/??"), on: "B/a/é"},
		{n: "keys have a case", user: al("s3:GetObject", "B/K")},
		{n: "a * in the bucket", user: al("s3:GetObject", "*/k"), want: true},
		{n: "another bucket", user: al(anything, "other,other/*")},
		{n: "a bucket of which the name only begins so", user: al("s3:GetObject", "B-x/*")},
		{n: "several resources", user: al("s3:GetObject", "other/*,B/k"), want: true},
		{n: "a * in a key is itself", user: al("s3:PutObject", "B/a/*"), do: "s3:PutObject", on: "B/a/*x", want: true},
		{n: "readonly reads", built: "readonly", want: true},
		{n: "readonly lists", built: "readonly", do: "s3:ListBucket", on: "B", want: true},
		{n: "readonly does not write", built: "readonly", do: "s3:PutObject"},
		{n: "writeonly writes", built: "writeonly", do: "s3:PutObject", want: true},
		{n: "writeonly does not read", built: "writeonly"},
		{n: "readwrite does both", built: "readwrite", do: "s3:DeleteObject", on: "B/none", want: true},
	}
}

// denials: a statement that denies wins over every statement that allows.
func denials() []situation {
	return []situation{
		{n: "deny after allow", user: al(anything, both) + "," + dn("s3:GetObject", "B/*")},
		{n: "deny before allow", user: dn("s3:GetObject", "B/*") + "," + al(anything, both)},
		{n: "deny of another action", user: al(anything, both) + "," + dn("s3:PutObject", "B/*"), want: true},
		{n: "deny of another key", user: al(anything, both) + "," + dn(anything, "B/a/*"), want: true},
		{n: "deny of a prefix", user: al(anything, both) + "," + dn(anything, "B/a/*"), on: "B/a/k"},
		{n: "deny in another policy", user: al(anything, both), second: dn("s3:GetObject", "*")},
		{n: "deny in a policy of a group", user: al(anything, both), group: dn("s3:GetObject", "*")},
		{n: "deny of the user, allow of the group", user: dn("s3:GetObject", "*"), group: al(anything, both)},
		{n: "deny in the bucket's policy", user: al(anything, both), bucket: to("U", dn("s3:GetObject", "B/*"))},
		{n: "deny of everybody in the bucket's policy", user: al(anything, both), bucket: to("*", dn("s3:GetObject", "B/*"))},
		{n: "deny of the user, allow of the bucket", user: dn("s3:GetObject", "*"),
			bucket: to("U", al("s3:GetObject", "B/*"))},
		{n: "deny of the group, allow of the bucket", group: dn("s3:GetObject", "*"),
			bucket: to("U", al("s3:GetObject", "B/*"))},
		{n: "deny of the user, allow by the ACL", user: dn("s3:ListBucket", "*"), acl: "public-read",
			do: "s3:ListBucket", on: "B"},
		{n: "deny of the user who owns the bucket", user: dn("s3:GetObject", "*"), owns: true},
		{n: "deny of an admin", role: iam.RoleAdmin, user: dn("s3:GetObject", "*")},
		{n: "deny of an admin by a group", role: iam.RoleAdmin, group: dn("s3:GetObject", "*")},
		{n: "deny of an admin for another action", role: iam.RoleAdmin, user: dn("s3:PutObject", "*"), want: true},
		{n: "deny of everything", built: "readwrite", user: dn("*", "*")},
		{n: "deny of listing leaves reading", built: "readwrite", user: dn("s3:ListBucket", "B"), want: true},
		{n: "deny of listing", built: "readwrite", user: dn("s3:ListBucket", "B"), do: "s3:ListBucket", on: "B"},
		{n: "deny that creates no right", user: dn("s3:PutObject", "*")},
		{n: "deny of writing", built: "readwrite", user: dn("s3:Put*", "B/*"), do: "s3:PutObject"},
		{n: "deny of deleting", built: "readwrite", user: dn("s3:Delete*", "*"), do: "s3:DeleteObject", on: "B/none"},
	}
}

// negations: NotAction and NotResource cover everything that they do not name.
func negations() []situation {
	return []situation{
		{n: "NotAction allows the others", user: notDo("Allow", "s3:Delete*", "*"), want: true},
		{n: "NotAction does not allow its own", user: notDo("Allow", "s3:Delete*", "*"), do: "s3:DeleteObject", on: "B/none"},
		{n: "NotAction is no deny", user: notDo("Allow", "s3:Delete*", "*") + "," + al("s3:DeleteObject", "B/*"),
			do: "s3:DeleteObject", on: "B/none", want: true},
		{n: "NotAction with deny", user: al(anything, both) + "," + notDo("Deny", "s3:Get*,s3:List*", "*"),
			do: "s3:PutObject"},
		{n: "NotAction with deny leaves its own", user: al(anything, both) + "," + notDo("Deny", "s3:Get*,s3:List*", "*"),
			want: true},
		{n: "NotAction on other resources", user: notDo("Allow", "s3:Delete*", "other/*")},
		{n: "NotResource allows the others", user: notOn("Allow", anything, "B/a/*"), want: true},
		{n: "NotResource does not allow its own", user: notOn("Allow", anything, "B/a/*"), on: "B/a/k"},
		{n: "NotResource with deny", user: al(anything, both) + "," + notOn("Deny", "s3:GetObject", "B/a/*")},
		{n: "NotResource with deny leaves its own", user: al(anything, both) + "," + notOn("Deny", "s3:GetObject", "B/a/*"),
			on: "B/a/k", want: true},
		{n: "NotResource of a bucket covers its objects", user: notOn("Allow", anything, "B"), want: true},
		{n: "NotResource of several", user: notOn("Allow", anything, "B,B/*")},
	}
}

// variables stand for values of the request.
func variables() []situation {
	home := al("s3:GetObject,s3:PutObject", "B/home/${aws:username}/*")
	return []situation{
		{n: "the home of the user", user: home, do: "s3:PutObject", on: "B/home/U/k", want: true},
		{n: "the home of another", user: home, do: "s3:PutObject", on: "B/home/other/k"},
		{n: "the home by a group", group: home, do: "s3:PutObject", on: "B/home/U/k", want: true},
		{n: "the home of a service account is that of its user", user: home, key: free, do: "s3:PutObject", on: "B/home/U/k",
			want: true},
		{n: "a variable has no case", user: al("s3:GetObject", "B/home/${AWS:UserName}/*"), on: "B/home/U/k", want: true},
		{n: "a variable in a deny", built: "readwrite", user: dn(anything, "B/home/${aws:username}/*"), on: "B/home/U/k"},
		{n: "a variable without a value", user: al(anything, "B/${s3:VersionId}")},
		{n: "a default", user: al(anything, "B/${s3:VersionId, 'k'}"), want: true},
		{n: "a variable in a condition", user: al("s3:ListBucket", "B",
			`{"StringLike":{"s3:prefix":"home/${aws:username}/*"}}`),
			do: "s3:ListBucket", on: "B", with: "s3:prefix=home/U/x", want: true},
		{n: "a variable in a condition of another", do: "s3:ListBucket", on: "B", with: "s3:prefix=home/other/x",
			user: al("s3:ListBucket", "B", `{"StringLike":{"s3:prefix":"home/${aws:username}/*"}}`)},
		{n: "the character *", user: al("s3:PutObject", "B/a${*}"), do: "s3:PutObject", on: "B/a*", want: true},
		{n: "the character * is no wildcard", user: al("s3:PutObject", "B/a${*}"), do: "s3:PutObject", on: "B/ab"},
	}
}
