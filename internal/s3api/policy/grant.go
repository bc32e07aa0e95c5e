// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// grant is an iam.Grant that is stored as statements of a bucket's policy. The Sid of each statement begins with
// grantSid.
type grant iam.Grant

// grantSid is the beginning of the Sid of every statement of a grant.
const grantSid = "NebulaioGrant"

// maxGrantPrefix is the largest length of a grant's prefix in bytes, which is that of a key.
const maxGrantPrefix = object.MaxKey

// sid returns the Sid of one statement of a grant, in letters and digits as IAM requires. Each access and prefix
// has its own Sid. All users with the same grant share its statements, so that a policy has room for many users.
func (g grant) sid(part string) string {
	kind := map[iam.Access]string{iam.AccessRead: "Read", iam.AccessWrite: "Write",
		iam.AccessReadWrite: "ReadWrite"}[g.Access]
	if g.Prefix == "" {
		return grantSid + kind + "All" + part
	}
	sum := sha256.Sum256([]byte(g.Prefix))
	return fmt.Sprintf("%s%sPrefix%x%s", grantSid, kind, sum[:8], part)
}

// sids returns the Sids of all statements that a grant for a prefix can have, with any access.
func sids(prefix string) []string {
	var all []string
	for _, access := range []iam.Access{iam.AccessRead, iam.AccessWrite, iam.AccessReadWrite} {
		g := grant{Access: access, Prefix: prefix}
		all = append(all, g.sid("Bucket"), g.sid("Objects"), g.sid("List"))
	}
	return all
}

// check returns an error if a grant cannot be written as statements.
func (g grant) check() error {
	const op = "grant access to"
	switch {
	case g.Access != iam.AccessRead && g.Access != iam.AccessWrite && g.Access != iam.AccessReadWrite:
		return errs.New(errs.Invalid, op, g.Bucket, fmt.Sprintf("access %q, expected read, write or read-write", g.Access))
	case len(g.Prefix) > maxGrantPrefix:
		return errs.New(errs.Invalid, op, g.Bucket, fmt.Sprintf("the prefix has %d bytes, expected at most %d", len(g.Prefix),
			maxGrantPrefix))
	case strings.ContainsAny(g.Prefix, "*?") || strings.Contains(g.Prefix, "${"):
		return errs.New(errs.Invalid, op, g.Bucket, fmt.Sprintf("the prefix %q has a *, a ? or a ${, which policies read "+
			"as patterns", g.Prefix)).
			WithFix("give the beginning of the keys alone, such as logs/")
	}
	if err := readableText(g.Prefix); err != nil {
		return errs.New(errs.Invalid, op, g.Bucket, "the prefix is no UTF-8: "+err.Error())
	}
	return nil
}

// grantStatement is a policy statement of a grant.
type grantStatement struct {
	Sid       string
	Effect    string
	Principal struct{ AWS []string }
	Action    []string
	Resource  []string
	Condition map[string]map[string][]string `json:",omitempty"`
}

// is reports whether a JSON text is this statement. The order of fields and the escapes do not matter, because a
// client that reads a policy and puts it back may change both.
func (s grantStatement) is(raw json.RawMessage) bool {
	got, ok := readGrant(raw)
	return ok && reflect.DeepEqual(got, s)
}

// readGrant reads a statement that has only the fields of grants. The second result is false if the statement has
// another field, such as NotAction or a service as principal. Writing such a statement anew would lose the other field.
func readGrant(raw json.RawMessage) (grantStatement, bool) {
	var s grantStatement
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return s, d.Decode(&s) == nil
}

// statements returns the statements of a grant. Actions on the bucket, actions on objects and actions that depend
// on a prefix need one statement each.
func (g grant) statements() []grantStatement {
	arn := auth.ResourceArnPrefix + g.Bucket
	statement := func(part string, actions []string, resources ...string) grantStatement {
		s := grantStatement{Sid: g.sid(part), Effect: "Allow", Action: actions, Resource: resources}
		s.Principal.AWS = []string{g.User}
		return s
	}
	bucket := []string{"s3:GetBucketLocation", "s3:GetBucketVersioning"}
	var list, objects []string
	objectsOf := []string{arn + "/" + g.Prefix + "*"}
	if g.Access != iam.AccessWrite {
		list = []string{"s3:ListBucket", "s3:ListBucketVersions"}
		objects = append(objects, "s3:GetObject", "s3:GetObjectVersion", "s3:GetObjectAttributes",
			"s3:GetObjectVersionAttributes",
			"s3:GetObjectTagging", "s3:GetObjectVersionTagging")
	}
	if g.Access != iam.AccessRead {
		objects = append(objects, "s3:PutObject", "s3:DeleteObject", "s3:PutObjectTagging", "s3:DeleteObjectTagging",
			"s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
		if g.Prefix == "" {
			// a condition on the prefix cannot restrict this action
			bucket = append(bucket, "s3:ListBucketMultipartUploads")
			objectsOf = append(objectsOf, arn) // for forms, versitygw also checks the bucket
		}
	}
	if g.Prefix == "" {
		return []grantStatement{statement("Bucket", append(bucket, list...), arn),
			statement("Objects", objects, objectsOf...)}
	}
	all := []grantStatement{statement("Bucket", bucket, arn), statement("Objects", objects, objectsOf...)}
	if list != nil {
		s := statement("List", list, arn)
		s.Condition = map[string]map[string][]string{"StringLike": {"s3:prefix": {g.Prefix + "*"}}}
		all = append(all, s)
	}
	return all
}

// AddGrant adds a grant to the policy of a bucket, and reports whether the policy changed. The new grant replaces
// another grant of the same user for the same prefix. AddGrant keeps the text of all other statements of the policy.
// The parameter root is the access key of the root account.
//
// AddGrant fails if this server does not understand the bucket's policy, or if the new policy would exceed MaxSize.
// AddGrant also fails if the bucket has no policy but has an ACL that grants access to other accounts, because a
// policy would disable the ACL.
func AddGrant(bk *object.Bucket, wish iam.Grant, root string) (changed bool, err error) {
	g := grant(wish)
	g.Bucket = bk.Name
	if err := g.check(); err != nil {
		return false, err
	}
	if err := aclStays(bk); err != nil {
		return false, err
	}
	return editPolicy(bk, root, func(all []json.RawMessage) ([]json.RawMessage, error) {
		wanted := g.statements()
		all, err := without(all, g.User, func(sid string) bool {
			return slices.Contains(sids(g.Prefix), sid) && !slices.ContainsFunc(wanted,
				func(w grantStatement) bool { return w.Sid == sid })
		})
		if err != nil {
			return nil, err
		}
		for _, w := range wanted {
			at := slices.IndexFunc(all, func(raw json.RawMessage) bool { return sidOf(raw) == w.Sid })
			if at >= 0 {
				users := usersOf(all[at])
				w.Principal.AWS = users
				if !w.is(all[at]) {
					return nil, errs.New(errs.Invalid, "", "", fmt.Sprintf("somebody has changed the statement %s", w.Sid)).
						WithFix("give that statement another Sid")
				}
				if slices.Contains(users, g.User) {
					continue
				}
				w.Principal.AWS = append(slices.Clone(users), g.User)
				slices.Sort(w.Principal.AWS)
			}
			text, err := plainJSON(w)
			if err != nil {
				return nil, err
			}
			if at >= 0 {
				all[at] = text
			} else {
				all = append(all, text)
			}
		}
		return all, nil
	})
}

// without removes a user from the grant statements with a wanted Sid. A statement without users is removed.
func without(all []json.RawMessage, user string, wanted func(sid string) bool) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for _, raw := range all {
		users := usersOf(raw)
		if !slices.Contains(users, user) || !wanted(sidOf(raw)) {
			out = append(out, raw)
			continue
		}
		if users = slices.DeleteFunc(users, func(u string) bool { return u == user }); len(users) == 0 {
			continue
		}
		s, _ := readGrant(raw) // usersOf has read the statement
		s.Principal.AWS = users
		text, err := plainJSON(s)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// RemoveGrants removes the grants of a user from the policy of a bucket, and reports whether the policy changed. If
// prefix is not nil, RemoveGrants removes only the grant for that prefix. Policy statements that are not part of a
// grant stay unchanged.
func RemoveGrants(bk *object.Bucket, user string, prefix *string, root string) (changed bool, err error) {
	if bk.Settings[Setting] == nil {
		return false, nil
	}
	return editPolicy(bk, root, func(all []json.RawMessage) ([]json.RawMessage, error) {
		return without(all, user, func(sid string) bool { return prefix == nil || slices.Contains(sids(*prefix), sid) })
	})
}

// Grants lists the grants of a user in a bucket. The second result is the number of other policy statements that apply
// to the user. A statement applies if its Principal names the user or everybody, or if its NotPrincipal does not.
func Grants(bk *object.Bucket, user string) (grants []iam.Grant, others int) {
	text := bk.Settings[Setting]
	if text == nil {
		return nil, 0
	}
	doc, err := split(text)
	if err != nil {
		return nil, 0
	}
	for _, raw := range doc.statements {
		if g, part := grantIn(raw, bk.Name); part != "" {
			if part == "Objects" && slices.Contains(usersOf(raw), user) {
				g.User = user
				grants = append(grants, iam.Grant(g))
			}
			continue
		}
		s, err := parseStatement(raw, bk.Name, false)
		named := slices.ContainsFunc(s.accounts(""), func(a string) bool { return a == user || a == "*" })
		if err == nil && named != s.notPrincipal {
			others++
		}
	}
	return grants, others
}

// usersOf returns the users that a grant statement names, or nil if the statement is not part of a grant.
func usersOf(raw json.RawMessage) []string {
	s, ok := readGrant(raw)
	if !strings.HasPrefix(sidOf(raw), grantSid) || !ok || s.Effect != "Allow" {
		return nil
	}
	return s.Principal.AWS
}

// grantIn returns the grant of a statement, and the part of the grant that the statement is. part is empty if the
// statement is not part of a grant, or if somebody has changed it.
func grantIn(raw json.RawMessage, bucket string) (g grant, part string) {
	s, ok := readGrant(raw)
	if !ok || len(s.Resource) == 0 {
		return grant{}, ""
	}
	g = grant{Bucket: bucket}
	if keys, ok := strings.CutPrefix(s.Resource[0], auth.ResourceArnPrefix+bucket+"/"); ok {
		g.Prefix = strings.TrimSuffix(keys, "*")
	}
	if of := s.Condition["StringLike"]["s3:prefix"]; len(of) == 1 {
		g.Prefix = strings.TrimSuffix(of[0], "*")
	}
	for _, g.Access = range []iam.Access{iam.AccessRead, iam.AccessWrite, iam.AccessReadWrite} {
		for _, w := range g.statements() {
			w.Principal.AWS = s.Principal.AWS
			if reflect.DeepEqual(w, s) {
				return g, strings.TrimPrefix(s.Sid, g.sid(""))
			}
		}
		// The statement for the bucket is the same for every prefix. Only its Sid contains the prefix, as a
		// checksum.
		w := grant{Bucket: bucket, Access: g.Access, Prefix: "/"}.statements()[0]
		w.Principal.AWS, w.Sid = s.Principal.AWS, s.Sid
		if strings.HasPrefix(s.Sid, grantSid) && strings.HasSuffix(s.Sid, "Bucket") && reflect.DeepEqual(w, s) {
			return g, "Bucket"
		}
	}
	return grant{}, ""
}
