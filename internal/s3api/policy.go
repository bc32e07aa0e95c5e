// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	vgwbackend "github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// GetBucketPolicy returns the policy that the S3 library versitygw evaluates for the current request.
//
// In S3, the owner of a bucket may do everything that the policy does not deny. Unlike S3, versitygw refuses the
// requests of a bucket's owner if the policy does not name the owner. For requests of the bucket's owner,
// GetBucketPolicy adds a statement to the policy that allows everything to the owner. Deny statements of the policy
// still apply to the bucket's owner. If the bucket has no policy, the ACL decides, but an ACL cannot grant the
// permission to override retention.
func (b *backend) GetBucketPolicy(ctx context.Context, bucket string) ([]byte, error) {
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return nil, err
	}
	r := b.rulesOf(bk)
	account := accountOf(ctx, "account").Access
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	owner := ok && account != "" && account == bk.Owner
	text := r.Policy
	switch {
	case r.Policy == nil && owner && bypasses(rctx):
		return r.Owner, nil
	case r.Policy == nil:
		return nil, s3err.GetBucketErr(s3err.ErrNoSuchBucketPolicy, strings.Clone(bucket))
	case owner:
		text = r.Owner
	case account == "":
		text = r.Public
	}
	if ok && judgedForm(rctx) {
		return fmt.Appendf(nil, formPolicyText, bk.Name), nil
	}
	if !r.Conditional || !ok {
		return text, nil
	}
	if text, err = compareStars(rctx, text); err != nil {
		return nil, err
	}
	if deletesMany(rctx) {
		return b.deletionPolicy(rctx, r, text)
	}
	return text, nil
}

// mostStars is the largest number of characters * in a row that the policy of a bucket is compared with.
const mostStars = 64

// compareStars prepares the conditions of a policy for the values of a request that contain the character *. See
// policy.CompareStars.
func compareStars(rctx *fasthttp.RequestCtx, text []byte) ([]byte, error) {
	run := 0
	count := func(value []byte) {
		now := 0
		for _, c := range value {
			if now++; c != '*' {
				now = 0
			}
			run = max(run, now)
		}
	}
	for _, value := range rctx.QueryArgs().All() {
		count(value)
	}
	for _, value := range rctx.Request.Header.All() {
		count(value)
	}
	if run > mostStars {
		return nil, refusal(http.StatusBadRequest, "InvalidArgument", fmt.Sprintf(
			"The request has %d characters * in a row; this bucket's policy can be compared with %d", run, mostStars))
	}
	if run == 0 {
		return text, nil
	}
	return policy.CompareStars(text, run)
}

// PutBucketPolicy stores the policy of a bucket. PutBucketPolicy fails if this server does not understand all parts
// of the policy.
func (b *backend) PutBucketPolicy(ctx context.Context, bucket string, text []byte) error {
	if written, ok := ctx.Value(writtenPolicyKey).([]byte); ok {
		text = written // versitygw has checked the same policy in its own spelling
	}
	if fault := policy.Check(text, bucket); fault != nil {
		return malformed(fault)
	}
	return b.put(ctx, bucket, policy.Setting, text)
}

// DeleteBucketPolicy removes the policy of a bucket, even if this server does not understand the policy.
func (b *backend) DeleteBucketPolicy(ctx context.Context, bucket string) error {
	return b.put(ctx, bucket, policy.Setting, nil)
}

// bypasses reports whether a request is a change that asks to override retention in the mode GOVERNANCE.
func bypasses(rctx *fasthttp.RequestCtx) bool {
	return !rctx.IsGet() && !rctx.IsHead() && strings.EqualFold(string(rctx.Request.Header.Peek("X-Amz-Bypass-Governance-Retention")), "true")
}

// writtenPolicyKey is the user value that holds the policy as the client sent it, for PutBucketPolicy.
const writtenPolicyKey = "nebulaio-written-policy"

// spellPolicy replaces the policy in the body of a PUT by the same policy in versitygw's spelling, because
// versitygw refuses other spellings. The caller calls spellPolicy after the signature was checked, because the
// signature covers the original body.
func spellPolicy(rctx *fasthttp.RequestCtx) {
	if !rctx.IsPut() || !rctx.QueryArgs().Has("policy") || rctx.UserValue(writtenPolicyKey) != nil {
		return
	}
	written := slices.Clone(rctx.Request.Body())
	if spelled := policy.SpellActions(written); spelled != nil {
		rctx.SetUserValue(writtenPolicyKey, written)
		rctx.Request.SetBody(spelled)
	}
}

// malformed returns the S3 error MalformedPolicy for a fault.
func malformed(fault error) s3err.S3Error {
	what := fault.Error()
	return refusal(http.StatusBadRequest, "MalformedPolicy", strings.ToUpper(what[:1])+what[1:])
}

// NormalizeObjectKey returns a key in the form in which the S3 library versitygw compares keys with the policy that
// GetBucketPolicy returns.
func (b *backend) NormalizeObjectKey(bucket, key string) string {
	return policy.Comparable(bucket, reveal(key))
}

// mendDenied restores the client's keys in the messages of a reply that may name a denied resource.
func mendDenied(rctx *fasthttp.RequestCtx) {
	if rctx.Response.StatusCode() != fasthttp.StatusForbidden && !deletesMany(rctx) || rctx.Response.IsBodyStream() {
		return
	}
	if body := rctx.Response.Body(); bytes.Contains(body, []byte(`\xff`)) { // the escape of policy's key separator
		rctx.Response.SetBody(policy.RestoreMessages(body))
	}
}

// deletesMany reports whether a request deletes a list of objects.
func deletesMany(rctx *fasthttp.RequestCtx) bool {
	return rctx.IsPost() && rctx.QueryArgs().Has("delete")
}

// Names of user values of a request that deletes many objects.
const (
	exactlyKey  = "nebulaio-exactly"  // true while the backend asks about one object
	deletionKey = "nebulaio-deletion" // the preparedPolicy of the request
)

// exactly makes GetBucketPolicy return the policy for a single object, until restore is called. The query arguments
// name the object's version.
func exactly(rctx *fasthttp.RequestCtx) (restore func()) {
	rctx.SetUserValue(exactlyKey, true)
	return func() { rctx.SetUserValue(exactlyKey, false) }
}

// preparedPolicy is a policy with conditions that have been evaluated for a request.
type preparedPolicy struct {
	of *policy.Rules
	*policy.Deletions
}

// deletionPolicy returns the policy that applies to a request that deletes many objects.
func (b *backend) deletionPolicy(rctx *fasthttp.RequestCtx, r *policy.Rules, text []byte) ([]byte, error) {
	p, ok := rctx.UserValue(deletionKey).(*preparedPolicy)
	if !ok || p.of != r {
		request, ok := rctx.UserValue(requestKey).(fiber.Ctx)
		if !ok {
			return nil, s3err.GetAPIError(s3err.ErrAccessDenied) // the request did not come through the guard
		}
		var err error
		if p, err = b.prepare(request, r, text); err != nil {
			return nil, err
		}
		rctx.SetUserValue(deletionKey, p)
	}
	if exact, _ := rctx.UserValue(exactlyKey).(bool); exact {
		return p.Object, nil
	}
	return p.List, nil
}

// prepare evaluates the conditions of a policy for a request.
func (b *backend) prepare(request fiber.Ctx, r *policy.Rules, text []byte) (*preparedPolicy, error) {
	defer named(request.RequestCtx(), "")()
	d, err := policy.PrepareDeletions(text, r.Of.Name, func(effect string, c policy.Condition) bool {
		return b.holds(request, r.Of.Name, effect, c)
	})
	return &preparedPolicy{of: r, Deletions: d}, err
}

// holds reports whether a condition is true for a request. It lets versitygw evaluate a policy with only that
// condition. A condition that cannot be evaluated makes a Deny apply and an Allow not apply.
func (b *backend) holds(request fiber.Ctx, bucket, effect string, c policy.Condition) bool {
	text, ok := policy.Alone(bucket, effect, c)
	if !ok {
		return effect == "Deny"
	}
	alone := onePolicy{Backend: b, policy: text}
	allowed := auth.VerifyPublicAccess(request, alone, auth.GetBucketTaggingAction, auth.PermissionRead, bucket, "") == nil
	return allowed == (effect == "Allow")
}

// onePolicy is a backend that returns the same policy for all buckets.
type onePolicy struct {
	vgwbackend.Backend
	policy []byte
}

// GetBucketPolicy returns the same policy for every bucket: the policy that the onePolicy holds.
func (p onePolicy) GetBucketPolicy(context.Context, string) ([]byte, error) { return p.policy, nil }
