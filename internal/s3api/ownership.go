// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// ownershipHeader is the header by which a client chooses who owns the objects of a new bucket.
const ownershipHeader = "X-Amz-Object-Ownership"

// admitCreation prepares a signed request that creates a bucket for versitygw. It checks the signature, and then sets
// the server's default ownership and hides the ACL, because versitygw knows only some of the ACLs of S3.
func admitCreation(s *Server, ctx fiber.Ctx, at level, plain bool) s3err.S3Error {
	rctx := ctx.RequestCtx()
	if at != onBucket || !plain || !rctx.IsPut() || len(rctx.Request.Header.Peek("Authorization")) == 0 {
		return nil
	}
	h := &rctx.Request.Header
	asked := acl.AskedBy(func(name string) string { return string(h.Peek(name)) })
	given := types.ObjectOwnership(h.Peek(ownershipHeader))
	standard := types.ObjectOwnership(s.opts.Ownership)
	if asked.Empty() && (given != "" || standard == types.ObjectOwnershipBucketOwnerEnforced) {
		return nil // versitygw does the right thing
	}
	if err := s.creation(ctx); err != nil {
		return asS3Error(err)
	}
	if given == "" && standard != types.ObjectOwnershipBucketOwnerEnforced {
		given = standard
		h.Set(ownershipHeader, s.opts.Ownership)
	}
	if given == types.ObjectOwnershipObjectWriter || given == types.ObjectOwnershipBucketOwnerPreferred {
		hideACL(s.backend, rctx, nil)
	}
	// versitygw checks the signature again, and refuses headers that the signature does not cover.
	signer, err := utils.ParseAuthorization(string(h.Peek("Authorization")))
	if err != nil {
		return asS3Error(err)
	}
	account, err := s.opts.Accounts.Get(signer.Access)
	if err != nil {
		return s3err.GetInvalidAccessKeyIdErr(signer.Access)
	}
	return s.signAgain(rctx, account.AccessKey, account.Secret)
}

// PutBucketOwnershipControls sets who owns the objects of a bucket. ACLs that grant something to others must be removed
// before ACLs lose their effect.
func (b *backend) PutBucketOwnershipControls(ctx context.Context, bucket string,
	ownership types.ObjectOwnership) error {
	if err := checkDocument(ctx, "OwnershipControls"); err != nil {
		return err
	}
	text := []byte(string(ownership))
	return b.change(ctx, bucket, func(bk *object.Bucket) error {
		if r := policy.ReadRules(bk, b.accounts.Root().AccessKey); ownership == types.ObjectOwnershipBucketOwnerEnforced &&
			r.ACLFault == nil &&
			!acl.IsPrivate(r.ACL) {
			return s3err.GetAPIError(s3err.ErrInvalidBucketAclWithObjectOwnership)
		}
		bk.Settings[policy.SettingOwnership] = text
		return nil
	})
}

// GetBucketOwnershipControls returns who owns the objects of a bucket.
func (b *backend) GetBucketOwnershipControls(ctx context.Context, bucket string) (types.ObjectOwnership, error) {
	doc, err := b.get(ctx, bucket, policy.SettingOwnership, s3err.ErrOwnershipControlsNotFound)
	return types.ObjectOwnership(doc), err
}

// DeleteBucketOwnershipControls removes the ownership setting of a bucket. As in S3, each object then belongs to its
// writer.
func (b *backend) DeleteBucketOwnershipControls(ctx context.Context, bucket string) error {
	return b.put(ctx, bucket, policy.SettingOwnership, nil)
}
