// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
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
	if ok && judgedForm(rctx) {
		return fmt.Appendf(nil, formPolicyText, bk.Name), nil
	}
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
	acls := account != "" && !r.Sealed && !policy.OwnerEnforced(bk)
	if !ok || !r.Conditional && !acls {
		return text, nil
	}
	t := targetOf(rctx, bk.Name)
	if acls {
		if text, err = withACL(ctx, b, r, t, account, text); err != nil {
			return nil, err
		}
	}
	if !r.Conditional {
		return text, nil
	}
	exact, _ := rctx.UserValue(exactlyKey).(bool)
	return r.Resolve(text, policy.Asked{Account: account, Key: t.Key, Request: conditionRequest(b, rctx, t.Ref),
		Many: deletesMany(rctx) && !exact})
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
	text = slices.Clone(text)
	return b.change(ctx, bucket, func(bk *object.Bucket) error {
		if policy.BlockOf(bk).BlockPublicPolicy && policy.IsPublic(text, bk.Name) {
			return refusal(http.StatusForbidden, "AccessDenied",
				"Access Denied: the bucket's public access block refuses public policies (BlockPublicPolicy).")
		}
		bk.Settings[policy.Setting] = text
		return nil
	})
}

// DeleteBucketPolicy removes the policy of a bucket, even if this server does not understand the policy.
func (b *backend) DeleteBucketPolicy(ctx context.Context, bucket string) error {
	return b.put(ctx, bucket, policy.Setting, nil)
}

// bypasses reports whether a request is a change that asks to override retention in the mode GOVERNANCE.
func bypasses(rctx *fasthttp.RequestCtx) bool {
	return !rctx.IsGet() && !rctx.IsHead() && strings.EqualFold(
		string(rctx.Request.Header.Peek("X-Amz-Bypass-Governance-Retention")), "true")
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
	bucket, _ := splitPath(rctx)
	if spelled := policy.Spell(written, bucket); spelled != nil {
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
func mendDenied(s *Server, rctx *fasthttp.RequestCtx) {
	if rctx.Response.StatusCode() != fasthttp.StatusForbidden && !deletesMany(rctx) || rctx.Response.IsBodyStream() {
		return
	}
	body := rctx.Response.Body()
	if bytes.Contains(body, []byte("no identity-based policy allows")) && hasNoPolicy(s, rctx) {
		body = implicitDenials.ReplaceAll(body, []byte("<Message>Access Denied.</Message>"))
		rctx.Response.SetBody(body)
	}
	if bytes.Contains(body, []byte(`\xff`)) { // the escape of policy's key separator
		rctx.Response.SetBody(policy.RestoreMessages(body))
	}
}

// hasNoPolicy reports whether the sender of a request has a role alone, so that no policy of a user is to blame.
func hasNoPolicy(s *Server, rctx *fasthttp.RequestCtx) bool {
	account, err := s.opts.Accounts.Get(senderOf(rctx).Access)
	return err != nil || unrestricted(account)
}

// implicitDenials finds versitygw's messages for requests that nothing allows. They blame the policies of users.
var implicitDenials = regexp.MustCompile(`<Message>User: [^<]* because no identity-based policy allows [^<]*</Message>`)

// deletesMany reports whether a request deletes a list of objects.
func deletesMany(rctx *fasthttp.RequestCtx) bool {
	return rctx.IsPost() && rctx.QueryArgs().Has("delete")
}

// Names of user values of a request.
const (
	exactlyKey = "nebulaio-exactly" // true while the backend asks about one object
	targetKey  = "nebulaio-target"  // the target about which the backend asks
)

// exactly makes GetBucketPolicy return the policy for a single object, until restore is called.
func exactly(rctx *fasthttp.RequestCtx, ref object.Ref, use aclUse) (restore func()) {
	was := rctx.UserValue(targetKey)
	rctx.SetUserValue(exactlyKey, true)
	rctx.SetUserValue(targetKey, target{ref, use})
	return func() {
		rctx.SetUserValue(exactlyKey, false)
		rctx.SetUserValue(targetKey, was)
	}
}

// target is what a decision is about: an object, and the ACL that decides.
type target struct {
	object.Ref
	use aclUse
}

// targetOf returns what versitygw decides about when it asks for the policy of a bucket. versitygw asks once about the
// source of a copy. If the source is in the bucket of the copy, later questions are about the copy again.
func targetOf(rctx *fasthttp.RequestCtx, bucket string) target {
	if t, ok := rctx.UserValue(targetKey).(target); ok {
		return t
	}
	of, key := splitPath(rctx)
	if source, ok := rctx.UserValue(sourceKey).(object.Ref); ok && source.Bucket == bucket {
		if of == bucket {
			rctx.SetUserValue(sourceKey, nil)
		}
		return target{source, readUse}
	}
	return target{object.Ref{Bucket: bucket, Key: reveal(key), Version: string(rctx.QueryArgs().Peek("versionId"))},
		useOf(rctx, levelOf(rctx))}
}

// withACL adds to a policy what the ACL that decides on a request allows to the account, because policies and ACLs both
// allow in S3. The owner of a bucket does not own the objects of others, so the policy of the owner may not apply.
func withACL(ctx context.Context, b *backend, r *policy.Rules, t target, account string, text []byte) ([]byte, error) {
	list, err := b.effectiveACL(ctx, r.Of, t.Ref, acl.Requester{Access: account}, t.use)
	if err != nil {
		return nil, err
	}
	if t.use != bucketUse && account == r.Of.Owner && len(list.Grantees) == 0 {
		text = r.Policy // the object belongs to somebody else
	}
	actions := aclGrants(list, t.use)
	if len(actions) == 0 {
		return text, nil
	}
	return policy.WithGrant(text, r.Of.Name, account, actions)
}

// aclGrants returns the actions that the ACL of effectiveACL grants.
func aclGrants(list auth.ACL, use aclUse) []auth.Action {
	var out []auth.Action
	for _, g := range list.Grantees {
		switch {
		case use == grantUse:
			out = append(out, auth.PutObjectAclAction)
		case use == readUse && g.Permission == auth.PermissionRead:
			out = append(out, auth.GetObjectAction, auth.GetObjectVersionAction, auth.GetObjectAttributesAction,
				auth.GetObjectVersionAttributesAction)
		case use == readUse && g.Permission == auth.PermissionReadAcp:
			out = append(out, auth.GetObjectAclAction)
		case use != bucketUse:
		case g.Permission == auth.PermissionRead:
			out = append(out, auth.ListBucketAction, auth.ListBucketVersionsAction, auth.ListBucketMultipartUploadsAction)
		case g.Permission == auth.PermissionWrite:
			out = append(out, auth.PutObjectAction, auth.DeleteObjectAction, auth.AbortMultipartUploadAction)
		case g.Permission == auth.PermissionReadAcp:
			out = append(out, auth.GetBucketAclAction)
		case g.Permission == auth.PermissionWriteAcp:
			out = append(out, auth.PutBucketAclAction)
		}
	}
	return out
}
