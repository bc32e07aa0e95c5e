// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/xml"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// encryptionDocument is the XML of a bucket's default encryption.
type encryptionDocument struct {
	XMLName xml.Name         `xml:"ServerSideEncryptionConfiguration"`
	Space   string           `xml:"xmlns,attr,omitempty"`
	Rules   []encryptionRule `xml:"Rule"`
}

type encryptionRule struct {
	Default *struct {
		Algorithm string `xml:"SSEAlgorithm"`
		KeyID     string `xml:"KMSMasterKeyID,omitempty"`
	} `xml:"ApplyServerSideEncryptionByDefault"`
	BucketKey *bool `xml:"BucketKeyEnabled"`
	Blocked   *struct {
		Types []string `xml:"EncryptionType"`
	} `xml:"BlockedEncryptionTypes"`
}

// bucketEncryption answers GET, PUT and DELETE ?encryption. versitygw has then checked the signature and the bucket,
// and has answered with status 501; bucketEncryption checks the permission. It returns false if the request is another
// one.
func bucketEncryption(ctx fiber.Ctx, s *Server) (done bool, err error) {
	rctx := ctx.RequestCtx()
	if rctx.Response.StatusCode() != http.StatusNotImplemented || s.backend.encrypter == nil ||
		levelOf(rctx) != onBucket ||
		!rctx.QueryArgs().Has("encryption") {
		return false, nil
	}
	acl, ok := utils.ContextKeyParsedAcl.Get(ctx).(auth.ACL)
	if !ok {
		return false, nil // refused before the bucket was checked
	}
	account, _ := utils.ContextKeyAccount.Get(ctx).(auth.Account)
	root, _ := utils.ContextKeyIsRoot.Get(ctx).(bool)
	bucket, _ := splitPath(rctx)
	opts := auth.AccessOptions{
		Acl: acl, AclPermission: auth.PermissionRead, IsRoot: root, Acc: account, Bucket: bucket,
		Actions: []auth.Action{auth.GetEncryptionConfigurationAction}, Readonly: s.opts.ReadOnly,
		Iam: s.backend.iam, IsPublicRequest: utils.ContextKeyPublicBucket.IsSet(ctx),
	}
	if !rctx.IsGet() {
		opts.AclPermission, opts.Actions = auth.PermissionWrite, []auth.Action{auth.PutEncryptionConfigurationAction}
	}
	var doc []byte
	status := http.StatusOK
	if err = auth.VerifyAccess(ctx, s.authorizer.backend, opts); err == nil {
		switch {
		case rctx.IsGet():
			doc, err = getEncryption(rctx, s.backend, bucket)
		case rctx.IsPut():
			err = putEncryption(rctx, s.backend, bucket, rctx.Request.Body())
		case rctx.IsDelete():
			status, err = http.StatusNoContent, s.backend.put(rctx, bucket, object.SettingEncryption, nil)
		default:
			return false, nil
		}
	}
	if err != nil {
		if known, ok := err.(s3err.S3Error); ok {
			return true, answer(ctx, known)
		}
		return true, err
	}
	rctx.SetUserValue(errorKey, nil)
	rctx.Response.ResetBody()
	if doc == nil {
		rctx.Response.Header.Del(fiber.HeaderContentType)
		rctx.Response.SetStatusCode(status)
		return true, nil
	}
	ctx.Response().Header.SetContentType(fiber.MIMEApplicationXML)
	return true, ctx.Status(status).Send(append([]byte(xml.Header), doc...))
}

// getEncryption returns the XML of a bucket's default encryption.
func getEncryption(ctx context.Context, b *backend, bucket string) ([]byte, error) {
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return nil, err
	}
	d, err := bk.DefaultEncryption()
	switch {
	case err != nil:
		return nil, b.s3Error("GetBucketEncryption", object.Ref{Bucket: bk.Name}, err)
	case d == nil:
		u := unsets["encryption"]
		return nil, refusal(http.StatusNotFound, u.code, u.message)
	}
	doc := encryptionDocument{Space: "http://s3.amazonaws.com/doc/2006-03-01/", Rules: make([]encryptionRule, 1)}
	doc.Rules[0].Default = &struct {
		Algorithm string `xml:"SSEAlgorithm"`
		KeyID     string `xml:"KMSMasterKeyID,omitempty"`
	}{string(d.Kind), d.KeyID}
	doc.Rules[0].BucketKey = d.BucketKey
	return xml.Marshal(doc)
}

// putEncryption sets a bucket's default encryption.
func putEncryption(ctx context.Context, b *backend, bucket string, body []byte) error {
	if err := xmldoc.Check(body, "ServerSideEncryptionConfiguration"); err != nil {
		return malformedXML(err)
	}
	var doc encryptionDocument
	if err := xml.Unmarshal(body, &doc); err != nil {
		return malformedXML(err)
	}
	if len(doc.Rules) != 1 || doc.Rules[0].Default == nil {
		return malformedXML(errorText("expected one Rule with ApplyServerSideEncryptionByDefault"))
	}
	r := &doc.Rules[0]
	if r.Blocked != nil && len(r.Blocked.Types) > 0 && (len(r.Blocked.Types) > 1 || r.Blocked.Types[0] != "NONE") {
		return notImplemented("BlockedEncryptionTypes", "kinds of encryption that a bucket refuses; use a bucket policy")
	}
	d := object.DefaultEncryption{Kind: object.EncryptionKind(r.Default.Algorithm), KeyID: r.Default.KeyID,
		BucketKey: r.BucketKey}
	switch d.Kind {
	case object.EncryptedS3:
		if d.KeyID != "" {
			return invalid("a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms")
		}
	case object.EncryptedKMS:
		if len(d.KeyID) > maxKeyID {
			return invalid("The name of the key is longer than 2048 characters.")
		}
	case "aws:kms:dsse":
		return notImplemented("SSEAlgorithm", "two layers of encryption")
	default:
		return malformedXML(errorText("SSEAlgorithm is " + shortened(r.Default.Algorithm) + ", expected AES256 or aws:kms"))
	}
	bk, err := b.bucketOf(ctx, bucket)
	if err != nil {
		return err
	}
	if bk.OnUpstream() || object.IsDirectory(bk.Name) {
		return notImplemented("encryption", "encryption at rest in this bucket")
	}
	if err := b.encrypter.CheckEncryption(patient(ctx), bk.Name, d.Encryption()); err != nil {
		return b.s3Error("PutBucketEncryption", object.Ref{Bucket: bk.Name}, err)
	}
	text, err := d.Encode()
	if err != nil {
		return err
	}
	return b.put(ctx, bucket, object.SettingEncryption, text)
}

// errorText is an error with a fixed text.
type errorText string

// Error implements error.
func (e errorText) Error() string { return string(e) }
