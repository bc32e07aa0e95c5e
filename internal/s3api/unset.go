// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
)

// unset describes the reply of S3 for a configuration that a bucket does not have.
type unset struct {
	get, put auth.Action // permissions to read and to change the configuration
	code     string      // error code of a read; if empty, the reply is document
	message  string
	document string
	list     string // name of the document that lists all configurations, for a read without id
	deleted  bool   // whether S3 can delete the configuration
}

const s3Namespace = ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/"`

// noConfiguration is the error of the configurations that have identifiers.
const noConfiguration = "NoSuchConfiguration"

// unsets are the bucket configurations that this server does not support. Tools such as mc read them, and get the
// reply that nothing is set. Setting such a configuration is refused with status 501.
var unsets = map[string]unset{
	"lifecycle": {get: auth.GetLifecycleConfigurationAction, put: auth.PutLifecycleConfigurationAction, deleted: true,
		code: "NoSuchLifecycleConfiguration", message: "The lifecycle configuration does not exist."},
	"encryption": {get: auth.GetEncryptionConfigurationAction, put: auth.PutEncryptionConfigurationAction, deleted: true,
		code:    "ServerSideEncryptionConfigurationNotFoundError",
		message: "The server side encryption configuration was not found."},
	"replication": {get: auth.GetReplicationConfigurationAction, put: auth.PutReplicationConfigurationAction,
		deleted: true,
		code:    "ReplicationConfigurationNotFoundError", message: "The replication configuration was not found."},
	"publicAccessBlock": {get: auth.GetBucketPublicAccessBlockAction, put: auth.PutBucketPublicAccessBlockAction,
		deleted: true,
		code:    "NoSuchPublicAccessBlockConfiguration", message: "The public access block configuration was not found."},
	"notification": {get: auth.GetBucketNotificationAction, put: auth.PutBucketNotificationAction,
		document: `<NotificationConfiguration` + s3Namespace + `></NotificationConfiguration>`},
	"logging": {get: auth.GetBucketLoggingAction, put: auth.PutBucketLoggingAction,
		document: `<BucketLoggingStatus` + s3Namespace + `></BucketLoggingStatus>`},
	"accelerate": {get: auth.GetAccelerateConfigurationAction, put: auth.PutAccelerateConfigurationAction,
		document: `<AccelerateConfiguration` + s3Namespace + `></AccelerateConfiguration>`},
	"requestPayment": {get: auth.GetBucketRequestPaymentAction, put: auth.PutBucketRequestPaymentAction,
		document: `<RequestPaymentConfiguration` + s3Namespace + `><Payer>BucketOwner</Payer></RequestPaymentConfiguration>`},
	"analytics": {get: auth.GetAnalyticsConfigurationAction, put: auth.PutAnalyticsConfigurationAction, deleted: true,
		code: noConfiguration, list: "ListBucketAnalyticsConfigurationResult"},
	"inventory": {get: auth.GetInventoryConfigurationAction, put: auth.PutInventoryConfigurationAction, deleted: true,
		code: noConfiguration, list: "ListInventoryConfigurationsResult"},
	"metrics": {get: auth.GetMetricsConfigurationAction, put: auth.PutMetricsConfigurationAction, deleted: true,
		code: noConfiguration, list: "ListMetricsConfigurationsResult"},
	"intelligent-tiering": {get: auth.GetIntelligentTieringConfigurationAction,
		put: auth.PutIntelligentTieringConfigurationAction, deleted: true,
		code: noConfiguration, list: "ListBucketIntelligentTieringConfigurationsOutput"},
}

// answerUnset replaces the status 501 for a read or a deletion of an unsupported configuration by the reply of S3
// for "not set".
//
// versitygw has then checked the signature and the bucket, but not the permission, which answerUnset checks.
func (s *Server) answerUnset(ctx fiber.Ctx) error {
	rctx := ctx.RequestCtx()
	if rctx.Response.StatusCode() != http.StatusNotImplemented || levelOf(rctx) != onBucket || !rctx.IsGet() &&
		!rctx.IsDelete() {
		return nil
	}
	for k := range rctx.QueryArgs().All() {
		u, ok := unsets[string(k)]
		if !ok || rctx.IsDelete() && !u.deleted {
			continue
		}
		return s.answerNone(ctx, u)
	}
	return nil
}

func (s *Server) answerNone(ctx fiber.Ctx, u unset) error {
	rctx := ctx.RequestCtx()
	acl, ok := utils.ContextKeyParsedAcl.Get(ctx).(auth.ACL)
	if !ok {
		return nil // refused before the bucket was checked
	}
	account, _ := utils.ContextKeyAccount.Get(ctx).(auth.Account)
	root, _ := utils.ContextKeyIsRoot.Get(ctx).(bool)
	bucket, _ := splitPath(rctx)
	opts := auth.AccessOptions{
		Acl: acl, AclPermission: auth.PermissionRead, IsRoot: root, Acc: account, Bucket: bucket,
		Actions:  []auth.Action{u.get},
		Readonly: s.opts.ReadOnly, Iam: accounts{s.opts.Accounts}, IsPublicRequest: utils.ContextKeyPublicBucket.IsSet(ctx),
	}
	if rctx.IsDelete() {
		opts.AclPermission, opts.Actions = auth.PermissionWrite, []auth.Action{u.put}
	}
	if err := auth.VerifyAccess(ctx, s.authorizer.backend, opts); err != nil {
		if known, ok := err.(s3err.S3Error); ok {
			return answer(ctx, known)
		}
		return err
	}
	rctx.SetUserValue(errorKey, nil)
	rctx.Response.ResetBody()
	if rctx.IsDelete() {
		rctx.Response.Header.Del(fiber.HeaderContentType)
		return ctx.SendStatus(http.StatusNoContent)
	}
	document := u.document
	switch {
	case u.list != "" && !rctx.QueryArgs().Has("id"):
		document = "<" + u.list + s3Namespace + "><IsTruncated>false</IsTruncated></" + u.list + ">"
	case u.code == noConfiguration:
		u.message = "The specified configuration does not exist."
		fallthrough
	case u.code != "":
		return answer(ctx, s3err.APIError{Code: u.code, Description: u.message, HTTPStatusCode: http.StatusNotFound})
	}
	ctx.Response().Header.SetContentType(fiber.MIMEApplicationXML)
	return ctx.Status(http.StatusOK).Send([]byte(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + document))
}
