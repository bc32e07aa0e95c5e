// SPDX-License-Identifier: Apache-2.0

package s3api

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

// grant is an iam.Grant as statements of a bucket's policy, whose Sid begins with grantSid.
type grant iam.Grant

// grantSid is what the Sid of every statement of a grant begins with.
const grantSid = "NebulaioGrant"

// maxGrantPrefix bounds a grant's prefix, as keys are bounded.
const maxGrantPrefix = object.MaxKey

// sid is the Sid of one of a grant's statements: one for each access and prefix, of letters and digits, as IAM wants it.
// All users with the same grant share its statements, so that a policy has room for many.
func (g grant) sid(part string) string {
	kind := map[iam.Access]string{iam.AccessRead: "Read", iam.AccessWrite: "Write", iam.AccessReadWrite: "ReadWrite"}[g.Access]
	if g.Prefix == "" {
		return grantSid + kind + "All" + part
	}
	sum := sha256.Sum256([]byte(g.Prefix))
	return fmt.Sprintf("%s%sPrefix%x%s", grantSid, kind, sum[:8], part)
}

// sids are the Sids of all statements that a grant for a prefix can have, whatever it allows.
func sids(prefix string) []string {
	var all []string
	for _, access := range []iam.Access{iam.AccessRead, iam.AccessWrite, iam.AccessReadWrite} {
		g := grant{Access: access, Prefix: prefix}
		all = append(all, g.sid("Bucket"), g.sid("Objects"), g.sid("List"))
	}
	return all
}

// check refuses a grant that no statement can say.
func (g grant) check() error {
	const op = "grant access to"
	switch {
	case g.Access != iam.AccessRead && g.Access != iam.AccessWrite && g.Access != iam.AccessReadWrite:
		return errs.New(errs.Invalid, op, g.Bucket, fmt.Sprintf("access %q, expected read, write or read-write", g.Access))
	case len(g.Prefix) > maxGrantPrefix:
		return errs.New(errs.Invalid, op, g.Bucket, fmt.Sprintf("the prefix has %d bytes, expected at most %d", len(g.Prefix), maxGrantPrefix))
	case strings.ContainsAny(g.Prefix, "*?") || strings.Contains(g.Prefix, "${"):
		return errs.New(errs.Invalid, op, g.Bucket, fmt.Sprintf("the prefix %q has a *, a ? or a ${, which policies read as patterns", g.Prefix)).
			WithFix("give the beginning of the keys alone, such as logs/")
	}
	if err := readableText(g.Prefix); err != nil {
		return errs.New(errs.Invalid, op, g.Bucket, "the prefix is no UTF-8: "+err.Error())
	}
	return nil
}

// grantStatement is a statement as a grant writes it.
type grantStatement struct {
	Sid       string
	Effect    string
	Principal struct{ AWS []string }
	Action    []string
	Resource  []string
	Condition map[string]map[string][]string `json:",omitempty"`
}

// is reports whether a text is this statement, however it is written: clients that read a policy and put it back order
// its fields and escape its characters in their own ways.
func (s grantStatement) is(raw json.RawMessage) bool {
	var got grantStatement
	return json.Unmarshal(raw, &got) == nil && reflect.DeepEqual(got, s)
}

// statements are what a grant is in a policy. Actions on buckets and on objects need statements of their own, and so
// do those that a prefix bounds.
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
		objects = append(objects, "s3:GetObject", "s3:GetObjectVersion", "s3:GetObjectAttributes", "s3:GetObjectVersionAttributes",
			"s3:GetObjectTagging", "s3:GetObjectVersionTagging")
	}
	if g.Access != iam.AccessRead {
		objects = append(objects, "s3:PutObject", "s3:DeleteObject", "s3:PutObjectTagging", "s3:DeleteObjectTagging",
			"s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
		if g.Prefix == "" {
			bucket = append(bucket, "s3:ListBucketMultipartUploads") // which no condition on a prefix can bound
			objectsOf = append(objectsOf, arn)                       // forms are judged by the bucket, too
		}
	}
	if g.Prefix == "" {
		return []grantStatement{statement("Bucket", append(bucket, list...), arn), statement("Objects", objects, objectsOf...)}
	}
	all := []grantStatement{statement("Bucket", bucket, arn), statement("Objects", objects, objectsOf...)}
	if list != nil {
		s := statement("List", list, arn)
		s.Condition = map[string]map[string][]string{"StringLike": {"s3:prefix": {g.Prefix + "*"}}}
		all = append(all, s)
	}
	return all
}

// AddGrant changes the settings of a bucket so that they hold a grant, in place of another access for the same user and prefix. All
// other statements stay as they were written. It reports whether anything changed. A policy that this server does not
// understand, a document of more than 20 KiB and an ACL that a policy would put out of force are errors.
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
			return slices.Contains(sids(g.Prefix), sid) && !slices.ContainsFunc(wanted, func(w grantStatement) bool { return w.Sid == sid })
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

// without takes a user out of the statements whose Sid is wanted. A statement that speaks of nobody any more goes.
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
		var s grantStatement
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		s.Principal.AWS = users
		text, err := plainJSON(s)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// RemoveGrants changes the settings of a bucket so that they hold no grant of a user any more: of that prefix alone where
// one is given. Statements that no grant made stay. It reports whether anything changed.
func RemoveGrants(bk *object.Bucket, user string, prefix *string, root string) (changed bool, err error) {
	if bk.Settings[settingPolicy] == nil {
		return false, nil
	}
	return editPolicy(bk, root, func(all []json.RawMessage) ([]json.RawMessage, error) {
		return without(all, user, func(sid string) bool { return prefix == nil || slices.Contains(sids(*prefix), sid) })
	})
}

// Grants lists what grants allow in a bucket. others counts the statements of its policy that no grant made and that
// speak of the user, or of everybody.
func Grants(bk *object.Bucket, user string) (grants []iam.Grant, others int) {
	text := bk.Settings[settingPolicy]
	if text == nil {
		return nil, 0
	}
	doc, err := policyFields(text)
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
		s, err := parseStatement(raw, bk.Name)
		if err == nil && slices.ContainsFunc(s.accounts(""), func(a string) bool { return a == user || a == "*" }) {
			others++
		}
	}
	return grants, others
}

// usersOf returns the users that a grant's statement speaks of; nil where no grant made the statement.
func usersOf(raw json.RawMessage) []string {
	var s grantStatement
	if !strings.HasPrefix(sidOf(raw), grantSid) || json.Unmarshal(raw, &s) != nil || s.Effect != "Allow" {
		return nil
	}
	return s.Principal.AWS
}

// grantIn returns the grant that a statement is a part of, and which part. part is empty where no grant made the
// statement, or somebody has changed it since.
func grantIn(raw json.RawMessage, bucket string) (g grant, part string) {
	var s grantStatement
	if json.Unmarshal(raw, &s) != nil || len(s.Resource) == 0 {
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
		// The part on the bucket is the same for every prefix, and has the prefix in its Sid alone, as a sum.
		w := grant{Bucket: bucket, Access: g.Access, Prefix: "/"}.statements()[0]
		w.Principal.AWS, w.Sid = s.Principal.AWS, s.Sid
		if strings.HasPrefix(s.Sid, grantSid) && strings.HasSuffix(s.Sid, "Bucket") && reflect.DeepEqual(w, s) {
			return g, "Bucket"
		}
	}
	return grant{}, ""
}

// plainJSON returns v as JSON in which <, > and & stay what they are. Escaped, a policy within the bound could exceed it
// by a change that takes something away.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func sidOf(raw json.RawMessage) string {
	var s struct{ Sid string }
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s.Sid
}

// policyText is a policy whose parts are kept as they were written.
type policyText struct {
	version, id json.RawMessage
	statements  []json.RawMessage
}

func policyFields(text []byte) (*policyText, error) {
	fields, err := fieldsOf(text)
	if err != nil {
		return nil, err
	}
	doc := &policyText{}
	for _, f := range fields {
		switch f.name {
		case "Version":
			doc.version = f.value
		case "Id":
			doc.id = f.value
		case "Statement":
			if err := json.Unmarshal(f.value, &doc.statements); err != nil {
				return nil, err
			}
		}
	}
	return doc, nil
}

// editPolicy replaces the statements of a bucket's policy, which is removed where none is left. The new policy is judged
// as one that a client puts.
func editPolicy(bk *object.Bucket, root string, edit func([]json.RawMessage) ([]json.RawMessage, error)) (changed bool, err error) {
	const op, fix = "change the policy of", "read it with aws s3api get-bucket-policy, and put one without that part"
	old := bk.Settings[settingPolicy]
	doc := &policyText{version: json.RawMessage(`"` + ownPolicyVersion + `"`)}
	if old != nil {
		if fault := policyFault(old, bk.Name); fault != nil {
			return false, errs.New(errs.Invalid, op, bk.Name, "the policy that it has is not understood: "+fault.Error()).WithFix(fix)
		}
		if doc, err = policyFields(old); err != nil {
			return false, errs.New(errs.Invalid, op, bk.Name, err.Error()).WithFix(fix)
		}
	}
	before := slices.Clone(doc.statements)
	if doc.statements, err = edit(doc.statements); err != nil {
		return false, errs.Wrap(op, bk.Name, err)
	}
	if slices.EqualFunc(before, doc.statements, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		return false, nil
	}
	if len(doc.statements) == 0 {
		delete(bk.Settings, settingPolicy)
		return true, nil
	}
	text, err := plainJSON(struct {
		Version   json.RawMessage `json:",omitempty"`
		ID        json.RawMessage `json:"Id,omitempty"`
		Statement []json.RawMessage
	}{doc.version, doc.id, doc.statements})
	if err != nil {
		return false, errs.Wrap(op, bk.Name, err)
	}
	if len(text) > maxPolicy {
		return false, errs.New(errs.Invalid, op, bk.Name, fmt.Sprintf("the policy would have %d bytes, expected at most %d", len(text), maxPolicy)).
			WithFix("revoke grants that nobody needs, or grant several users by one statement of your own")
	}
	if fault := policyFault(text, bk.Name); fault != nil {
		return false, errs.New(errs.Invalid, op, bk.Name, fault.Error()).WithFix(fix)
	}
	parsed, err := parsePolicy(text, bk.Name)
	if err == nil {
		_, _, err = parsed.understood(root)
	}
	if err != nil {
		return false, errs.New(errs.Invalid, op, bk.Name, err.Error()).WithFix(fix)
	}
	if bk.Settings == nil {
		bk.Settings = map[string][]byte{}
	}
	bk.Settings[settingPolicy] = text
	return true, nil
}

// aclStays refuses a first policy for a bucket whose ACL allows others something: the policy alone decides from then on.
func aclStays(bk *object.Bucket) error {
	if bk.Settings[settingPolicy] != nil || bk.Settings[settingACL] == nil {
		return nil
	}
	acl, _, err := aclInForce(bk)
	if err != nil {
		return errs.Wrap("read the ACL of", bk.Name, err)
	}
	for _, grantee := range acl.Grantees {
		if grantee.Access != acl.Owner {
			return errs.New(errs.Invalid, "grant access to", bk.Name,
				fmt.Sprintf("its ACL allows %s something to %q, and has no effect beside a policy", grantee.Permission, grantee.Access)).
				WithFix("set the ACL private (aws s3api put-bucket-acl --acl private), and grant those users access, too")
		}
	}
	return nil
}
