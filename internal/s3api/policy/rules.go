// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Rules are what the settings of a bucket mean for a request. A store replaces settings and never changes them, so the
// rules of a bucket hold for as long as the bucket has the settings that they were read from.
type Rules struct {
	Of *object.Bucket

	// ACL is the ACL in force and ACLText the same as a document. OwnerText is the ACL with the owner's grants alone.
	ACL                auth.ACL
	ACLText, OwnerText []byte
	// ACLFault says why there is no ACL.
	ACLFault error

	// Policy is the policy by which versitygw judges accounts; nil if the bucket has none. Public is the policy for
	// requests without an account. Owner is the policy for the bucket's owner, and exists without a policy, too.
	Policy, Public, Owner []byte
	// Conditional reports that a statement of the policy has a condition.
	Conditional bool
	// Fault is the first part of the stored policy that is not understood. Sealed reports that this part may be a
	// restriction: the policy then allows nothing, except to the owner and to admins.
	Fault  error
	Sealed bool
}

// ReadRules reads the rules of a bucket. root is the access key of the root account, which owns buckets without an
// owner.
//
// Older versions of this server accepted policies with parts that they ignored. A statement that is not understood
// allows nothing. If a restriction is not understood, nothing is allowed at all.
func ReadRules(bk *object.Bucket, root string) *Rules {
	r := &Rules{Of: bk}
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
		r.Conditional = slices.ContainsFunc(doc.statements, func(s statement) bool { return s.condition != nil })
		r.Policy, r.Sealed, r.Fault = doc.rewrite(root)
	} else {
		r.Policy, r.Sealed, r.Fault = []byte(allowNothing), true, fault
	}
	r.Public = r.Policy
	if r.Sealed {
		// Without this, a public ACL would still count for requests without an account.
		r.Public = denyEveryone(r.Of.Name)
	}
}

// withOwner adds a statement to a rewritten policy that allows everything to the bucket's owner. A nil policy stands
// for none. It returns false if the text is not a policy.
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

// Uniform reports whether the policy judges all keys, addresses and times alike. That is so without a policy, and if
// the policy has no conditions and names only the bucket and all its keys.
func (r *Rules) Uniform() bool {
	if r.Policy == nil {
		return true
	}
	var doc struct {
		Statement []struct {
			Resource  auth.Resources
			Condition json.RawMessage
		}
	}
	if json.Unmarshal(r.Policy, &doc) != nil {
		return false
	}
	bucket := r.Of.Name
	all := strings.TrimPrefix(keysARN(bucket, byBytes, "*"), auth.ResourceArnPrefix)
	for _, s := range doc.Statement {
		if s.Condition != nil {
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

// PublicDeletes reports whether the policy lets everybody delete some object or version.
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
