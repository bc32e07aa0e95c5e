// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// EncryptionKind is the way in which an object is encrypted, named as in the header x-amz-server-side-encryption.
type EncryptionKind string

// An encrypted object has one of the kinds EncryptedS3, EncryptedKMS and EncryptedCustomer.
const (
	// EncryptedS3 means that the store chooses the key (SSE-S3).
	EncryptedS3 EncryptionKind = "AES256"
	// EncryptedKMS means that the client names one of the keys of the store (SSE-KMS).
	EncryptedKMS EncryptionKind = "aws:kms"
	// EncryptedCustomer means that the client sends its own key with each request (SSE-C).
	EncryptedCustomer EncryptionKind = "SSE-C"
	// EncryptedNot means that the client asks for no encryption, although the bucket may encrypt by default.
	EncryptedNot EncryptionKind = ""
)

// CustomerKey is the length in bytes of a key that a client sends.
const CustomerKey = 32

// Encryption says how a new object is encrypted.
type Encryption struct {
	Kind EncryptionKind
	// KeyID names the key of EncryptedKMS, as the client wrote it. If KeyID is empty, the store takes its default key.
	KeyID string
	// Context is text that EncryptedKMS binds to the object, as base64 of a JSON object, or empty.
	Context string
	// BucketKey repeats what the client or the bucket said about bucket keys of KMS, without any effect.
	BucketKey bool
	// Customer is the client's key of EncryptedCustomer, CustomerKey bytes. The store never keeps it.
	Customer []byte
}

// The attributes of encrypted content. Only an Encrypter writes them.
const (
	// AttrSealed holds the wrapped key of an encrypted object and how it is encrypted, as JSON. An object without
	// AttrSealed is not encrypted.
	AttrSealed = "sealed"
	// AttrSealedPart holds the size, the checksum and the salt of an encrypted part.
	AttrSealedPart = "sealed-part"
)

// SettingEncryption is the name of the setting with a bucket's default encryption in Bucket.Settings. See
// Bucket.DefaultEncryption.
const SettingEncryption = "encryption"

// Encrypter is a Store that encrypts and decrypts content. The context of a call carries the keys: see WithEncryption
// and WithCustomerKey.
type Encrypter interface {
	// CheckEncryption returns an error if the store cannot encrypt a new object of the bucket as e says. The error has
	// kind Unsupported if the store has no master key, and wraps ErrNoSuchEncryptionKey if the key that e names does not
	// exist.
	CheckEncryption(ctx context.Context, bucket string, e Encryption) error
	// Unlock checks that a client may read an object with the key in ctx. Unlock fails with ErrNeedsKey, ErrWrongKey or
	// ErrUnneededKey.
	Unlock(ctx context.Context, info *Info) error
	// UnlockUpload checks the key in ctx for a part of a multipart upload, as Unlock does. If the upload needs a
	// customer's key and ctx has none, UnlockUpload fails with ErrNeedsKey.
	UnlockUpload(ctx context.Context, u *Upload) error
}

// The errors of encrypted objects.
var (
	ErrNeedsKey error = sentinel{errs.Permission,
		"the object is encrypted with a key that the request does not have"}
	ErrWrongKey            error = sentinel{errs.Permission, "the key is not the one that the object is encrypted with"}
	ErrUnneededKey         error = sentinel{errs.Invalid, "the request has a key for an object without one"}
	ErrNoSuchEncryptionKey error = sentinel{errs.NotFound, "no such encryption key"}
	ErrKeyService          error = sentinel{errs.IO, "the key service does not answer"}
	ErrEncrypted           error = sentinel{errs.Unsupported, "the object is encrypted on the server's disk"}
	ErrNoEncryption        error = sentinel{errs.Unsupported, "the server has no master key"}
)

type (
	encrypting  struct{}
	customerKey struct{}
)

// WithEncryption returns a context for Put, CreateUpload and Copy that says how the new object is encrypted. Without
// it, the bucket's default decides. The context also gives the key of a customer to PutPart, CopyPart and
// CompleteUpload. Stores that do not implement Encrypter ignore the value.
func WithEncryption(ctx context.Context, e Encryption) context.Context {
	return context.WithValue(ctx, encrypting{}, e)
}

// EncryptionIn returns the Encryption that WithEncryption put into the context.
func EncryptionIn(ctx context.Context) (e Encryption, ok bool) {
	e, ok = ctx.Value(encrypting{}).(Encryption)
	return e, ok
}

// WithCustomerKey returns a context for Open and for the source of Copy and CopyPart, with the client's key of an
// object that is encrypted as EncryptedCustomer.
func WithCustomerKey(ctx context.Context, key []byte) context.Context {
	return context.WithValue(ctx, customerKey{}, key)
}

// CustomerKeyIn returns the key that WithCustomerKey put into the context, or nil.
func CustomerKeyIn(ctx context.Context) []byte {
	key, _ := ctx.Value(customerKey{}).([]byte)
	return key
}

// MaybeEncrypted is a Content that tells whether it is encrypted, without a copy of its Info.
type MaybeEncrypted interface {
	// Encrypted reports whether the stored bytes are encrypted.
	Encrypted() bool
}

// Unchecked is a Content whose bytes can be read without a comparison with the store's checksums. Only a caller that
// authenticates the bytes itself uses it.
type Unchecked interface {
	// Unchecked returns a Body for the range r that compares nothing.
	Unchecked(r Range) (Body, error)
}
