// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
)

// admitPublicDeletion lets an unsigned list of deletions pass versitygw, which refuses all such lists. The backend
// then checks each key, and the reply names the denied keys. If the bucket lets the public delete nothing,
// versitygw replies with 403 without reading the list.
func (s *Server) admitPublicDeletion(ctx fiber.Ctx, at level) s3err.S3Error {
	rctx := ctx.RequestCtx()
	if at != onBucket || !deletesMany(rctx) || len(rctx.Request.Header.Peek("Authorization")) > 0 ||
		utils.IsPresignedURLAuth(ctx) {
		return nil
	}
	bucket, _ := splitPath(rctx)
	if !s.publicDeletes(ctx, bucket) {
		return nil
	}
	hash := string(rctx.Request.Header.Peek("X-Amz-Content-Sha256"))
	if err := utils.IsAnonymousPayloadHashSupported(hash); err != nil {
		return asS3Error(err)
	}
	if hash != "" && !utils.IsUnsignedPaylod(hash) {
		sum := sha256.Sum256(rctx.Request.Body())
		if got := hex.EncodeToString(sum[:]); got != hash {
			return s3err.GetContentSHA256MismatchErr(hash, got)
		}
	}
	utils.ContextKeyAuthenticated.Set(ctx, true)
	utils.ContextKeyPublicBucket.Set(ctx, true)
	return nil
}

// publicDeletes reports whether the policy or the ACL of a bucket lets everybody delete at least some object or
// version.
func (s *Server) publicDeletes(ctx fiber.Ctx, bucket string) bool {
	bk, err := s.backend.store.Bucket(patient(ctx.RequestCtx()), bucket)
	if err != nil {
		return false // versitygw reports the error
	}
	if s.backend.rulesOf(bk).PublicDeletes() {
		return true
	}
	return auth.VerifyPublicAccess(ctx, s.backend, auth.DeleteObjectAction, auth.PermissionWrite, bucket, "") == nil
}

// asS3Error converts an error of versitygw to an S3 error.
func asS3Error(err error) s3err.S3Error {
	if known, ok := err.(s3err.S3Error); ok {
		return known
	}
	return s3err.GetAPIError(s3err.ErrInternalError)
}
