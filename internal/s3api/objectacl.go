// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// existing tells package acl which accounts exist.
type existing struct{ svc *iam.Service }

func (e existing) Exists(access string) bool {
	_, err := e.svc.Get(access)
	return err == nil
}

// addACL adds the owner and the ACL of a new object to its attributes. If the bucket's owner owns all objects, or if
// another S3 server keeps the objects, ACLs that grant something to others are refused.
func addACL(ctx context.Context, b *backend, bk *object.Bucket, attrs map[string]string) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return nil
	}
	var asked acl.Asked
	if fields := form(ctx); fields != nil {
		asked = acl.AskedBy(func(header string) string { return formGrant(fields, header) })
	} else if asksForACL(rctx) {
		asked = acl.AskedBy(func(header string) string { return argument(rctx, header) })
	}
	if policy.OwnerEnforced(bk) || bk.OnUpstream() {
		return refusedACL(bk, asked.Canned, asked.Grants != nil)
	}
	owner := senderOf(ctx).Access
	full := asked.Canned == string(types.ObjectCannedACLBucketOwnerFullControl)
	if owner == "" || full && types.ObjectOwnership(bk.Settings[policy.SettingOwnership]) ==
		types.ObjectOwnershipBucketOwnerPreferred {
		owner = bk.Owner
	}
	if owner != bk.Owner {
		attrs[attrOwner] = owner
	}
	if asked.Empty() {
		return nil
	}
	return setACL(b, bk, attrs, asked)
}

// setACL sets the ACL in the attributes of an object.
func setACL(b *backend, bk *object.Bucket, attrs map[string]string, asked acl.Asked) error {
	to := acl.Target{Owner: ownerIn(bk, attrs), BucketOwner: bk.Owner, Accounts: existing{b.accounts}}
	made, err := to.Make(asked)
	if err == nil {
		err = blockedACL(bk, acl.IsPublic(made))
	}
	if err != nil {
		return err
	}
	text, err := acl.Text(made)
	if err != nil {
		return err
	}
	delete(attrs, attrACL)
	if text != "" {
		attrs[attrACL] = text
	}
	return nil
}

// PutObjectAcl sets the ACL of an object. versitygw has checked the permission, and passes on only the headers.
func (b *backend) PutObjectAcl(ctx context.Context, in *s3.PutObjectAclInput) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return s3err.GetAPIError(s3err.ErrNotImplemented)
	}
	ref := refOf(in.Bucket, in.Key, nil)
	ref.Version = string(rctx.QueryArgs().Peek("versionId"))
	bk, err := b.bucketOf(ctx, ref.Bucket)
	switch {
	case err != nil:
		return err
	case bk.OnUpstream():
		return refusedACL(bk, "", true)
	}
	asked := acl.AskedBy(func(header string) string { return argument(rctx, header) })
	asked.Body = rctx.Request.Body()
	if policy.OwnerEnforced(bk) {
		return ownersOnly(b, bk, asked)
	}
	if asked.Empty() && len(asked.Body) == 0 {
		return s3err.GetAPIError(s3err.ErrMissingSecurityHeader)
	}
	if err := checkDocument(ctx, "AccessControlPolicy"); err != nil {
		return err
	}
	return b.setAttributes(ctx, "PutObjectAcl", ref, func(attrs map[string]string) error {
		return setACL(b, bk, attrs, asked)
	})
}

// ownersOnly refuses an ACL of an object in a bucket whose owner owns all objects, unless the ACL grants nothing to
// others. s3cmd writes the ACL of a copied object back, as it has read it.
func ownersOnly(b *backend, bk *object.Bucket, asked acl.Asked) error {
	to := acl.Target{Owner: bk.Owner, BucketOwner: bk.Owner, Accounts: existing{b.accounts}}
	made, err := to.Make(asked)
	if err == nil {
		if text, e := acl.Text(made); e == nil && text == "" && (!asked.Empty() || len(asked.Body) > 0) {
			return nil
		}
	}
	return s3err.GetAPIError(s3err.ErrAclNotSupported)
}

// GetObjectAcl reads the ACL of an object. showACL writes the reply, because versitygw cannot write groups.
func (b *backend) GetObjectAcl(ctx context.Context, in *s3.GetObjectAclInput) (*s3.GetObjectAclOutput, error) {
	ref := refOf(in.Bucket, in.Key, nil)
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if ok {
		ref.Version = string(rctx.QueryArgs().Peek("versionId"))
	}
	bk, err := b.bucketOf(ctx, ref.Bucket)
	if err != nil {
		return nil, err
	}
	if bk.OnUpstream() {
		return nil, refusedACL(bk, "", true)
	}
	of, err := objectACLOf(ctx, b, bk, ref)
	if err != nil {
		return nil, b.s3Error("GetObjectAcl", ref, err)
	}
	if ok {
		rctx.SetUserValue(shownACLKey, of)
	}
	return &s3.GetObjectAclOutput{}, nil
}

// shownACLKey is the user value that holds the auth.ACL for the reply of a request.
const shownACLKey = "nebulaio-shown-acl"

// showACL writes the reply to a request that reads the ACL of a bucket or an object.
func showACL(s *Server, ctx fiber.Ctx, at level) error {
	rctx := ctx.RequestCtx()
	if !rctx.IsGet() || rctx.Response.StatusCode() != fasthttp.StatusOK || !rctx.QueryArgs().Has("acl") {
		return nil
	}
	of, ok := rctx.UserValue(shownACLKey).(auth.ACL)
	if !ok && at == onBucket {
		name, _ := splitPath(rctx)
		bk, err := s.backend.store.Bucket(patient(rctx), name)
		if err != nil {
			return nil // the bucket was deleted meanwhile; the reply of versitygw is right
		}
		of, ok = s.backend.rulesOf(bk).ACL, true
	}
	if !ok {
		return nil
	}
	text, err := acl.XML(of)
	if err != nil {
		return err
	}
	return done(ctx, fasthttp.StatusOK, text)
}
