// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
)

// configuration serves one configuration of buckets for which versitygw has a route, but no implementation. Each
// function gets the name of the bucket, which exists, after the signature and the permission were checked.
type configuration struct {
	get, put auth.Action // permissions to read, and to change or delete
	// write stores the document of a PUT.
	write func(b *backend, ctx fiber.Ctx, bucket string, body []byte) error
	// read returns the document of a GET without the XML header.
	read func(b *backend, ctx fiber.Ctx, bucket string) ([]byte, error)
	// remove deletes the configuration, and succeeds if there is none.
	remove func(b *backend, ctx fiber.Ctx, bucket string) error
}

// configurations returns the configuration that the argument of a request names.
func configurations(name string) (c configuration, ok bool) {
	switch name {
	case "lifecycle":
		return lifecycleConfiguration(), true
	case "inventory":
		return inventoryConfiguration(), true
	case "replication":
		return replicationConfiguration(), true
	case "notification":
		return notificationConfiguration(), true
	case "logging":
		return loggingConfiguration(), true
	}
	return configuration{}, false
}

// answerConfiguration replaces the status 501 of versitygw by the reply of a configuration. It returns false if the
// request is for none of them, or if versitygw has refused the request.
//
// versitygw has then checked the signature and the bucket, but neither the permission nor the checksum of the document.
func answerConfiguration(ctx fiber.Ctx, s *Server) (done bool, err error) {
	rctx := ctx.RequestCtx()
	var c configuration
	found := false
	for k := range rctx.QueryArgs().All() {
		if c, found = configurations(string(k)); found {
			break
		}
	}
	if !found {
		return false, nil
	}
	action, permission := c.put, auth.PermissionWrite
	if rctx.IsGet() {
		action, permission = c.get, auth.PermissionRead
	}
	if known, err := permits(ctx, s, action, permission); !known {
		return false, nil
	} else if err != nil {
		return true, s.fail(ctx, err)
	}
	reply, err := configure(ctx, s, c)
	if err != nil {
		return true, s.fail(ctx, err)
	}
	rctx.SetUserValue(errorKey, nil)
	rctx.Response.ResetBody()
	switch {
	case rctx.IsDelete():
		rctx.Response.Header.Del(fiber.HeaderContentType)
		return true, ctx.SendStatus(http.StatusNoContent)
	case reply == nil:
		rctx.Response.Header.Del(fiber.HeaderContentType)
		ctx.Status(http.StatusOK)
		return true, nil
	}
	ctx.Response().Header.SetContentType(fiber.MIMEApplicationXML)
	return true, ctx.Status(http.StatusOK).Send(append([]byte(xml.Header), reply...))
}

// configure reads, writes or deletes a configuration, and returns the document of the reply.
func configure(ctx fiber.Ctx, s *Server, c configuration) ([]byte, error) {
	rctx := ctx.RequestCtx()
	bucket, _ := splitPath(rctx)
	bucket = strings.Clone(bucket)
	switch {
	case rctx.IsGet():
		return c.read(s.backend, ctx, bucket)
	case rctx.IsDelete():
		return nil, c.remove(s.backend, ctx, bucket)
	}
	if err := middlewares.VerifyChecksums(false, true, false)(ctx); err != nil {
		return nil, err
	}
	return nil, c.write(s.backend, ctx, bucket, bytes.Clone(rctx.Request.Body()))
}

// permits checks that the account of a request has a permission in the bucket. It returns false if versitygw refused
// the request before it knew the bucket.
func permits(ctx fiber.Ctx, s *Server, action auth.Action, permission auth.Permission) (known bool, err error) {
	acl, ok := utils.ContextKeyParsedAcl.Get(ctx).(auth.ACL)
	if !ok {
		return false, nil
	}
	account, _ := utils.ContextKeyAccount.Get(ctx).(auth.Account)
	root, _ := utils.ContextKeyIsRoot.Get(ctx).(bool)
	bucket, _ := splitPath(ctx.RequestCtx())
	return true, auth.VerifyAccess(ctx, s.authorizer.backend, auth.AccessOptions{
		Acl: acl, AclPermission: permission, IsRoot: root, Acc: account, Bucket: bucket, Actions: []auth.Action{action},
		Readonly: s.opts.ReadOnly, Iam: s.backend.iam, IsPublicRequest: utils.ContextKeyPublicBucket.IsSet(ctx),
	})
}
