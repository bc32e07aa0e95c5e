// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// encrypterOf returns the store as an Encrypter, or nil if the store cannot encrypt.
func encrypterOf(store object.Store) object.Encrypter {
	e, _ := store.(object.Encrypter)
	return e
}

// encryptedWrite returns the context for the store's write of a new object, with the encryption that the request asks
// for. If the request asks for none, the bucket's default decides.
func encryptedWrite(ctx context.Context, b *backend, bk *object.Bucket) (context.Context, error) {
	out := patient(ctx)
	if b.encrypter == nil && asksForEncryption(ctx) {
		return nil, notImplemented(headerSSE, "encryption at rest")
	}
	e, asked, err := askedEncryption(ctx)
	if err != nil || !asked {
		return out, err
	}
	if bk.OnUpstream() {
		return nil, notImplemented(headerSSE, "encryption at rest in this bucket")
	}
	if err := b.encrypter.CheckEncryption(out, bk.Name, e); err != nil {
		return nil, b.s3Error("encrypt", object.Ref{Bucket: bk.Name}, err)
	}
	return object.WithEncryption(out, e), nil
}

// encryptedPart returns the context for the store's write of a part, or of the completion of an upload. It fails if the
// request's key is not the key of the upload. If the upload has a customer's key, needed tells whether the request must
// have it too.
func encryptedPart(ctx context.Context, b *backend, up *object.Upload, needed bool) (context.Context, error) {
	out := patient(ctx)
	e, asked, err := askedEncryption(ctx)
	if err != nil {
		return nil, err
	}
	of := object.EncryptionOf(up.Attributes)
	switch {
	case asked && (of == nil || b.encrypter == nil):
		return nil, notApplicable("The multipart upload initiate requested no encryption. Its parts cannot ask for one.")
	case of == nil:
		return out, nil
	case asked && of.Kind != e.Kind:
		return nil, notApplicable("The multipart upload initiate requested another encryption than the request.")
	case !asked && of.Kind == object.EncryptedCustomer && needed:
		return nil, notApplicable("The multipart upload initiate requested encryption. " +
			"Subsequent part requests must include the appropriate encryption parameters.")
	}
	if e.Customer == nil {
		return out, nil
	}
	out = object.WithEncryption(out, e)
	if err := b.encrypter.UnlockUpload(out, up); err != nil {
		return nil, notApplicable("The provided encryption parameters did not match the ones used originally.")
	}
	return out, nil
}

// notApplicable returns the S3 error for encryption headers that do not fit the object or the upload.
func notApplicable(text string) error { return refusal(http.StatusBadRequest, "InvalidRequest", text) }

// encryptedRead returns the context for the store's read of an object, with the customer's key of the request.
func encryptedRead(ctx context.Context, b *backend) (context.Context, error) {
	out := patient(ctx)
	get := headersOf(ctx)
	for _, name := range []string{headerSSE, headerKMSKey} {
		if get(name) != "" {
			return nil, invalid(strings.ToLower(name) + " header is not supported for this operation.")
		}
	}
	return withKey(ctx, out, b, "")
}

// encryptedSource returns the context out with the customer's key of a copy's source.
func encryptedSource(ctx, out context.Context, b *backend) (context.Context, error) {
	return withKey(ctx, out, b, sourcePrefix)
}

func withKey(ctx, out context.Context, b *backend, prefix string) (context.Context, error) {
	key, err := customerKey(ctx, prefix)
	switch {
	case err != nil:
		return nil, err
	case key == nil:
		return out, nil
	case b.encrypter == nil:
		return nil, notImplemented(prefix+headerCustomerAlgorithm, "encryption at rest")
	}
	return object.WithCustomerKey(out, key), nil
}

// unlock returns an error if the key in ctx does not open an object.
func unlock(ctx context.Context, b *backend, op string, ref object.Ref, info *object.Info) error {
	if b.encrypter == nil {
		return nil
	}
	return b.s3Error(op, ref, b.encrypter.Unlock(ctx, info))
}

// tellEncryption adds the headers of an encrypted object or upload to the reply.
func tellEncryption(ctx context.Context, attributes map[string]string) {
	h := object.EncryptionOf(attributes)
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if h == nil || !ok {
		return
	}
	reply := &rctx.Response.Header
	switch h.Kind {
	case object.EncryptedCustomer:
		reply.Set(strings.ToLower(headerCustomerAlgorithm), string(object.EncryptedS3))
		if sum := headersOf(ctx)(headerCustomerMD5); sum != "" {
			reply.Set("x-amz-server-side-encryption-customer-key-MD5", sum)
		}
	case object.EncryptedKMS:
		reply.Set(strings.ToLower(headerKMSKey), h.KeyID)
		if h.BucketKey {
			reply.Set(strings.ToLower(headerBucketKey), "true")
		}
		if h.Context != "" {
			reply.Set(strings.ToLower(headerContext), h.Context)
		}
		fallthrough
	default:
		reply.Set(strings.ToLower(headerSSE), string(h.Kind))
	}
}

// encryptionError returns the S3 error for an error of encrypted objects, or nil if err is none.
func encryptionError(err error, is func(error) bool) error {
	switch {
	case is(object.ErrNeedsKey):
		return notApplicable("The object was stored using a form of Server Side Encryption. " +
			"The correct parameters must be provided to retrieve the object.")
	case is(object.ErrWrongKey):
		return s3err.GetAPIError(s3err.ErrAccessDenied)
	case is(object.ErrUnneededKey):
		return notApplicable("The encryption parameters are not applicable to this object.")
	case is(object.ErrNoSuchEncryptionKey):
		return refusal(http.StatusBadRequest, "KMS.NotFoundException", "The encryption key does not exist.")
	case is(object.ErrKeyService):
		return refusal(http.StatusServiceUnavailable, "ServiceUnavailable",
			"The key service does not answer. Try again later.")
	case is(object.ErrNoEncryption):
		return refusal(http.StatusNotImplemented, "NotImplemented",
			"The server has no master key, so that it cannot encrypt "+"objects. Its operator sets encryption.key_file.")
	}
	return nil
}
