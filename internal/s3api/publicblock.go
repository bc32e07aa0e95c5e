// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// blockDocument is the XML of a public access block.
type blockDocument struct {
	XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ PublicAccessBlockConfiguration"`
	policy.Block
}

// answerBlock serves the requests that read, set or delete the public access block of a bucket. versitygw has checked
// the signature and the bucket, and has replied that it does not implement the request.
func answerBlock(s *Server, ctx fiber.Ctx) (done bool, err error) {
	const name = "publicAccessBlock"
	rctx := ctx.RequestCtx()
	if rctx.Response.StatusCode() != http.StatusNotImplemented || !rctx.QueryArgs().Has(name) ||
		levelOf(rctx) != onBucket ||
		!rctx.IsGet() && !rctx.IsPut() && !rctx.IsDelete() {
		return false, nil
	}
	acl, ok := utils.ContextKeyParsedAcl.Get(ctx).(auth.ACL)
	if !ok {
		return false, nil // refused before the bucket was checked
	}
	action, permission := auth.PutBucketPublicAccessBlockAction, auth.PermissionWrite
	if rctx.IsGet() {
		action, permission = auth.GetBucketPublicAccessBlockAction, auth.PermissionRead
	}
	account, _ := utils.ContextKeyAccount.Get(ctx).(auth.Account)
	root, _ := utils.ContextKeyIsRoot.Get(ctx).(bool)
	bucket, _ := splitPath(rctx)
	err = auth.VerifyAccess(ctx, s.backend, auth.AccessOptions{
		Acl: acl, AclPermission: permission, IsRoot: root, Acc: account, Bucket: bucket, Actions: []auth.Action{action},
		Readonly: s.opts.ReadOnly, Iam: s.backend.iam, IsPublicRequest: utils.ContextKeyPublicBucket.IsSet(ctx),
		DisableACL: true,
	})
	if err == nil {
		err = serveBlock(s, ctx, bucket)
	}
	if known, ok := err.(s3err.S3Error); ok {
		return true, answer(ctx, known)
	}
	return true, err
}

func serveBlock(s *Server, ctx fiber.Ctx, bucket string) error {
	rctx := ctx.RequestCtx()
	b := s.backend
	switch {
	case rctx.IsDelete():
		if err := b.put(rctx, bucket, policy.SettingBlock, nil); err != nil {
			return err
		}
		return done(ctx, http.StatusNoContent, nil)
	case rctx.IsPut():
		block, err := readBlock(rctx.Request.Body())
		if err != nil {
			return err
		}
		text, err := json.Marshal(block)
		if err == nil {
			err = b.put(rctx, bucket, policy.SettingBlock, text)
		}
		if err != nil {
			return err
		}
		return done(ctx, http.StatusOK, nil)
	}
	bk, err := b.bucketOf(rctx, bucket)
	if err != nil {
		return err
	}
	if _, ok := bk.Settings[policy.SettingBlock]; !ok {
		return refusal(http.StatusNotFound, "NoSuchPublicAccessBlockConfiguration",
			"The public access block configuration was not found.")
	}
	text, err := xml.Marshal(blockDocument{Block: policy.BlockOf(bk)})
	if err != nil {
		return err
	}
	return done(ctx, http.StatusOK, append([]byte(xml.Header), text...))
}

// done replaces a reply by a success with an XML document, or without a body.
func done(ctx fiber.Ctx, status int, document []byte) error {
	rctx := ctx.RequestCtx()
	rctx.SetUserValue(errorKey, nil)
	rctx.Response.ResetBody()
	rctx.Response.SetStatusCode(status)
	if document == nil {
		rctx.Response.Header.Del(fiber.HeaderContentType)
		return nil
	}
	rctx.Response.Header.SetContentType(fiber.MIMEApplicationXML)
	rctx.Response.SetBody(document)
	return nil
}

// readBlock reads the XML of a public access block. Each of its elements is true or false.
func readBlock(body []byte) (policy.Block, error) {
	const name = "PublicAccessBlockConfiguration"
	var block policy.Block
	if err := xmldoc.Check(body, name); err != nil {
		return block, malformedXML(err)
	}
	var doc struct{ BlockPublicAcls, IgnorePublicAcls, BlockPublicPolicy, RestrictPublicBuckets string }
	if err := xml.Unmarshal(body, &doc); err != nil {
		return block, s3err.GetAPIError(s3err.ErrMalformedXML)
	}
	for _, f := range []struct {
		to   *bool
		text string
	}{
		{&block.BlockPublicAcls, doc.BlockPublicAcls}, {&block.IgnorePublicAcls, doc.IgnorePublicAcls},
		{&block.BlockPublicPolicy, doc.BlockPublicPolicy}, {&block.RestrictPublicBuckets, doc.RestrictPublicBuckets},
	} {
		switch strings.ToLower(strings.TrimSpace(f.text)) {
		case "true":
			*f.to = true
		case "false", "":
		default:
			return block, s3err.GetAPIError(s3err.ErrMalformedXML)
		}
	}
	return block, nil
}

// blockedACL returns AccessDenied if a bucket's public access block refuses an ACL that is public.
func blockedACL(bk *object.Bucket, public bool) error {
	if public && policy.BlockOf(bk).BlockPublicAcls {
		return refusal(http.StatusForbidden, "AccessDenied",
			"Access Denied: the bucket's public access block refuses public ACLs (BlockPublicAcls).")
	}
	return nil
}
