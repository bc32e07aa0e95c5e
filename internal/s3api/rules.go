// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/object"
)

// rules are what a bucket's settings mean for those who ask. Settings are never changed, only replaced, so that
// rules hold for as long as the bucket has the settings that they were made of.
type rules struct {
	of *object.Bucket
	// acl is the ACL in force, aclText the same as a document, and ownerText one with the owner's grants alone.
	// fault says why there is none.
	acl                auth.ACL
	aclText, ownerText []byte
	fault              error
	// policy is what the policy means for accounts, nil where there is none. publicPolicy is the same for who has no
	// account, and ownerPolicy for the owner; that one also exists without a policy.
	policy, publicPolicy, ownerPolicy []byte
	// conditional says that a statement of the policy has a condition.
	conditional bool
}

// rulesOf returns the rules of a bucket, which are made once for its settings.
func (b *backend) rulesOf(bk *object.Bucket) *rules {
	if known, ok := b.rules.Load(bk.Name); ok && known.(*rules).of == bk {
		return known.(*rules)
	}
	r := &rules{of: bk}
	r.acl, r.aclText, r.fault = aclInForce(bk)
	if r.acl.Owner == "" {
		r.acl.Owner = b.accounts.Root().AccessKey
	}
	if r.fault == nil {
		r.ownerText, r.fault = json.Marshal(auth.ACL{Owner: r.acl.Owner, Grantees: ownersGrants(r.acl.Owner)})
	}
	if text, ok := bk.Settings[settingPolicy]; ok {
		b.readPolicy(r, text)
	}
	r.ownerPolicy = r.policy
	if text, ok := withOwner(r.policy, bk); ok {
		r.ownerPolicy = text
	}
	b.rules.Store(bk.Name, r)
	return r
}

// readPolicy fills in what a stored policy means. Older versions of this server accepted policies with parts that
// they passed over. Of those, what is not understood allows nothing, and where a restriction is not understood,
// nothing is allowed.
func (b *backend) readPolicy(r *rules, text []byte) {
	var sealed bool
	doc, fault := parsePolicy(text, r.of.Name)
	if fault == nil {
		r.conditional = slices.ContainsFunc(doc.statements, func(s policyStatement) bool { return s.condition != nil })
		r.policy, sealed, fault = doc.understood(b.accounts.Root().AccessKey)
	} else {
		r.policy, sealed = []byte(noPolicy), true
	}
	r.publicPolicy = r.policy
	if sealed {
		// Without this, a public ACL would still count for those without an account.
		r.publicPolicy = everyoneDenied(r.of.Name)
	}
	switch {
	case sealed:
		b.log.Warn("a bucket's policy is not understood: it allows nothing until it is mended, but to the bucket's owner and to admins",
			"bucket", r.of.Name, "fault", fault, "fix", "put a policy without that part")
	case fault != nil:
		b.log.Warn("a statement of a bucket's policy is not understood: it allows nothing until it is mended",
			"bucket", r.of.Name, "fault", fault, "fix", "put a policy without that part")
	}
}

// tellFaults logs the stored policies that are not understood, so that an operator learns of them before users do.
func (b *backend) tellFaults(ctx context.Context) {
	all, err := b.store.ListBuckets(ctx)
	if err != nil {
		b.log.Error("the buckets' policies could not be read", "error", err)
		return
	}
	for i := range all {
		if _, ok := all[i].Settings[settingPolicy]; !ok {
			continue
		}
		if bk, err := b.store.Bucket(ctx, all[i].Name); err == nil { // it can be deleted meanwhile
			b.rulesOf(bk)
		}
	}
}

// shownPolicy returns a bucket's policy as it was put.
func (b *backend) shownPolicy(ctx context.Context, bucket string) ([]byte, bool) {
	bk, err := b.store.Bucket(patient(ctx), bucket)
	if err != nil {
		return nil, false
	}
	text, ok := bk.Settings[settingPolicy]
	return text, ok && json.Valid(text)
}
