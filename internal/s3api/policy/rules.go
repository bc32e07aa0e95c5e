// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Rules holds the access rules of a bucket: its ACL and its policy in the form that versitygw evaluates. Rules are
// valid while their field Of is the bucket's current value in the store, because the store replaces that value when a
// setting changes.
type Rules struct {
	Of *object.Bucket

	// ACL is the ACL that applies to the bucket, and ACLText is the same ACL as JSON. OwnerText is an ACL, as JSON,
	// that grants access only to the owner.
	ACL                auth.ACL
	ACLText, OwnerText []byte
	// ACLFault says why the bucket's ACL cannot be read; nil if the ACL can be read.
	ACLFault error

	// Block is the public access block of the bucket.
	Block Block

	// Policy is the rewritten policy for requests of an account, or nil if the bucket has no policy. The field Public
	// holds the rewritten policy for anonymous requests. The field Owner holds the rewritten policy for requests of
	// the bucket's owner, and is set even if the bucket has no policy.
	Policy, Public, Owner []byte
	// Conditional reports whether the policy has to be resolved for each request, by Resolve. Conditional is true if a
	// statement has a condition, NotPrincipal or NotResource. ObjectConditions reports whether a condition or NotResource
	// depends on the object or the version of a request.
	Conditional, ObjectConditions bool
	// Fault describes the first part of the stored policy that this server does not understand, or is nil. Sealed is
	// true if this server does not understand a part of the policy that may be a restriction. Sealed is also true if the
	// public access block takes the effect from a public policy. If Sealed is true, the policy allows nothing, except to
	// the owner and to admins.
	Fault  error
	Sealed bool

	conditions map[string]*document.Conditions // conditions of the rewritten policy, by their text
	parsed     *bucketPolicy                   // nil if the policy cannot be parsed
	unread     bool                            // the server does not understand a part that may be a restriction
}

// ReadRules reads the access rules of a bucket. The parameter root is the access key of the root account, which owns
// buckets without an owner.
//
// A stored policy can have parts that this server does not understand, because older versions of the server accepted
// and ignored such parts. A policy statement that the server does not understand allows nothing. If the server does
// not understand a restriction, the whole policy allows nothing.
func ReadRules(bk *object.Bucket, root string) *Rules {
	r := &Rules{Of: bk, Block: BlockOf(bk)}
	r.ACL, r.ACLText, r.ACLFault = aclInForce(bk)
	if r.ACL.Owner == "" {
		r.ACL.Owner = root
	}
	if r.ACLFault == nil {
		_, r.OwnerText, r.ACLFault = OwnersACL(r.ACL.Owner)
	}
	if text, ok := bk.Settings[Setting]; ok {
		r.readPolicy(text, root)
	}
	r.Owner = r.Policy
	if text, ok := withOwner(r.Policy, bk); ok {
		r.Owner = text
	}
	return r
}

func (r *Rules) readPolicy(text []byte, root string) {
	doc, fault := parse(text, r.Of.Name)
	if fault == nil {
		r.Conditional = slices.ContainsFunc(doc.statements, func(s statement) bool {
			return s.condition != nil || s.notPrincipal || s.notResource
		})
		r.parsed = doc
		r.Policy, r.unread, r.Fault = doc.rewrite(root)
		r.compileConditions(doc)
		r.Sealed = r.unread || r.Block.RestrictPublicBuckets && doc.isPublic()
		if r.Sealed {
			r.Policy = denials(r.Policy)
		}
	} else {
		r.Policy, r.Sealed, r.unread, r.Fault = []byte(allowNothing), true, true, fault
	}
	r.Public = r.Policy
	if r.Sealed {
		// Without this, a public ACL would still apply to anonymous requests.
		r.Public = denyEveryone(r.Of.Name)
	}
}

// denials returns the statements of a rewritten policy that deny.
func denials(policy []byte) []byte {
	var doc resolvable
	if json.Unmarshal(policy, &doc) != nil {
		return []byte(allowNothing)
	}
	doc.Statement = slices.DeleteFunc(doc.Statement, func(s resolvableStatement) bool { return s.Effect == "Allow" })
	if doc.Statement == nil {
		doc.Statement = []resolvableStatement{}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return []byte(allowNothing)
	}
	return text
}

// WithGrant returns a rewritten policy with one more statement, which allows actions in a bucket to an account.
func WithGrant(policy []byte, bucket, account string, actions []auth.Action) ([]byte, error) {
	var doc struct {
		Version   json.RawMessage `json:",omitempty"`
		Statement []json.RawMessage
	}
	if err := json.Unmarshal(policy, &doc); err != nil {
		return nil, err
	}
	grant, err := json.Marshal(struct {
		Effect    string
		Principal map[string][]string
		Action    []auth.Action
		Resource  []string
	}{"Allow", map[string][]string{"AWS": {account}}, actions,
		[]string{auth.ResourceArnPrefix + bucket, keysARN(bucket, byBytes, "*")}})
	if err != nil {
		return nil, err
	}
	doc.Statement = append(doc.Statement, grant)
	return json.Marshal(doc)
}

// withOwner adds a statement that allows everything to the bucket's owner to a rewritten policy. policy may be nil.
// withOwner returns false if policy is not valid.
func withOwner(policy []byte, bk *object.Bucket) ([]byte, bool) {
	type statement struct {
		Effect    string
		Principal map[string][]string
		Action    string
		Resource  []string
	}
	owners, err := json.Marshal(statement{
		Effect: "Allow", Principal: map[string][]string{"AWS": {bk.Owner}}, Action: "s3:*",
		Resource: []string{auth.ResourceArnPrefix + bk.Name, keysARN(bk.Name, byBytes, "*")},
	})
	if err != nil {
		return nil, false
	}
	var doc struct {
		Version   *string `json:",omitempty"`
		Statement []json.RawMessage
	}
	if policy == nil {
		version := ownVersion
		doc.Version = &version
	} else if json.Unmarshal(policy, &doc) != nil {
		return nil, false
	}
	doc.Statement = append(doc.Statement, owners)
	text, err := json.Marshal(doc)
	return text, err == nil
}

// Uniform reports whether the policy gives the same decision for all keys, client addresses and times. Uniform
// returns true if the bucket has no policy. A policy is uniform if it has no conditions and no NotResource, and its
// resources are only the whole bucket and all keys.
func (r *Rules) Uniform() bool {
	if r.Policy == nil {
		return true
	}
	var doc struct {
		Statement []struct {
			Resource    auth.Resources
			Condition   json.RawMessage
			NotResource []string
		}
	}
	if json.Unmarshal(r.Policy, &doc) != nil {
		return false
	}
	bucket := r.Of.Name
	all := strings.TrimPrefix(keysARN(bucket, byBytes, "*"), auth.ResourceArnPrefix)
	for _, s := range doc.Statement {
		if s.Condition != nil || s.NotResource != nil {
			return false
		}
		for r := range s.Resource {
			if r != bucket && r != all {
				return false
			}
		}
	}
	return true
}

// PublicDeletes reports whether the policy allows anonymous clients to delete at least one object or version.
func (r *Rules) PublicDeletes() bool {
	if r.Public == nil {
		return false
	}
	policy, err := auth.ParsePolicyDocument(r.Public)
	if err != nil {
		return false
	}
	for i := range policy.Statement {
		of := &policy.Statement[i]
		_, everybody := of.Principals["*"]
		deletes := of.Actions.FindMatch(auth.DeleteObjectAction) || of.Actions.FindMatch(auth.DeleteObjectVersionAction)
		if everybody && deletes && of.Effect == auth.BucketPolicyAccessTypeAllow {
			return true
		}
	}
	return false
}
