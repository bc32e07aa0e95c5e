// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// ownPolicyVersion is the version of policies that have no other.
const ownPolicyVersion = "2012-10-17"

// GetBucketPolicy returns a bucket's policy as the front end judges the request by it.
//
// versitygw takes a policy for the whole truth: an owner whom it does not name is
// locked out of the bucket, and may override no retention. In S3 the owner may
// do everything that the policy does not deny. So the owner's own requests are
// judged by the policy and one more statement, that allows it; what is denied
// stays denied. Without a policy there is the ACL, which is silent on retention alone.
func (b *backend) GetBucketPolicy(ctx context.Context, bucket string) ([]byte, error) {
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return nil, err
	}
	r := b.rulesOf(bk)
	account := accountOf(ctx, "account").Access
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	owner := ok && account != "" && account == bk.Owner
	text := r.policy
	switch {
	case r.policy == nil && owner && bypasses(rctx):
		return r.ownerPolicy, nil
	case r.policy == nil:
		return nil, s3err.GetBucketErr(s3err.ErrNoSuchBucketPolicy, strings.Clone(bucket))
	case owner:
		text = r.ownerPolicy
	case account == "":
		text = r.publicPolicy
	}
	if ok && judgedForm(rctx) {
		return fmt.Appendf(nil, formPolicyText, bk.Name), nil
	}
	if r.conditional && ok && deletesMany(rctx) {
		return b.deletionPolicy(rctx, r, text)
	}
	return text, nil
}

// PutBucketPolicy keeps a policy that is understood in all its parts.
func (b *backend) PutBucketPolicy(ctx context.Context, bucket string, policy []byte) error {
	if written, ok := ctx.Value(writtenPolicyKey).([]byte); ok {
		policy = written // versitygw has checked it in its own spelling
	}
	if fault := policyFault(policy, bucket); fault != nil {
		return malformed(fault)
	}
	return b.put(ctx, bucket, settingPolicy, policy)
}

// DeleteBucketPolicy removes a policy, whatever it says.
func (b *backend) DeleteBucketPolicy(ctx context.Context, bucket string) error {
	return b.put(ctx, bucket, settingPolicy, nil)
}

// bypasses says whether a request changes something and asks to override retention in the mode GOVERNANCE.
func bypasses(rctx *fasthttp.RequestCtx) bool {
	return !rctx.IsGet() && !rctx.IsHead() && strings.EqualFold(string(rctx.Request.Header.Peek("X-Amz-Bypass-Governance-Retention")), "true")
}

// withOwner returns a policy, none where it is nil, with a statement that allows
// everything to the bucket's owner; false where it is no policy.
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
		version := ownPolicyVersion
		doc.Version = &version
	} else if json.Unmarshal(policy, &doc) != nil {
		return nil, false
	}
	doc.Statement = append(doc.Statement, owners)
	text, err := json.Marshal(doc)
	return text, err == nil
}
