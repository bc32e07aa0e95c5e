// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"
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
	"encryption": {get: auth.GetEncryptionConfigurationAction, put: auth.PutEncryptionConfigurationAction, deleted: true,
		code:    "ServerSideEncryptionConfigurationNotFoundError",
		message: "The server side encryption configuration was not found."},
	"accelerate": {get: auth.GetAccelerateConfigurationAction, put: auth.PutAccelerateConfigurationAction,
		document: `<AccelerateConfiguration` + s3Namespace + `></AccelerateConfiguration>`},
	"requestPayment": {get: auth.GetBucketRequestPaymentAction, put: auth.PutBucketRequestPaymentAction,
		document: `<RequestPaymentConfiguration` + s3Namespace + `><Payer>BucketOwner</Payer></RequestPaymentConfiguration>`},
	"analytics": {get: auth.GetAnalyticsConfigurationAction, put: auth.PutAnalyticsConfigurationAction, deleted: true,
		code: noConfiguration, list: "ListBucketAnalyticsConfigurationResult"},
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
	if rctx.Response.StatusCode() != http.StatusNotImplemented || levelOf(rctx) != onBucket {
		return nil
	}
	if done, err := answerConfiguration(ctx, s); done || !rctx.IsGet() && !rctx.IsDelete() {
		return err
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
	action, permission := u.get, auth.PermissionRead
	if rctx.IsDelete() {
		action, permission = u.put, auth.PermissionWrite
	}
	if known, err := permits(ctx, s, action, permission); !known {
		return nil // refused before the bucket was checked
	} else if err != nil {
		return s.fail(ctx, err)
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
