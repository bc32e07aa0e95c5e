// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"crypto/md5"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/object"
)

// The headers of encryption. The headers for the source of a copy begin with sourcePrefix.
const (
	headerSSE               = "X-Amz-Server-Side-Encryption"
	headerKMSKey            = "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"
	headerContext           = "X-Amz-Server-Side-Encryption-Context"
	headerBucketKey         = "X-Amz-Server-Side-Encryption-Bucket-Key-Enabled"
	headerCustomerAlgorithm = "X-Amz-Server-Side-Encryption-Customer-Algorithm"
	headerCustomerKey       = "X-Amz-Server-Side-Encryption-Customer-Key"
	headerCustomerMD5       = "X-Amz-Server-Side-Encryption-Customer-Key-Md5"
	sourcePrefix            = "X-Amz-Copy-Source-Server-Side-Encryption"
	plainPrefix             = "X-Amz-Server-Side-Encryption"
)

// encryptionKey is the user value of a request with headers of encryption. Most requests have none, and cost no search.
const encryptionKey = "nebulaio-encryption"

// Limits of the values of headers.
const (
	maxKeyID   = 2048 // characters of the name of a key, as in AWS
	maxContext = 8192 // characters of the context
)

// headersOf returns a function that returns the headers of a request, or the fields of a form, with cloned strings.
func headersOf(ctx context.Context) func(name string) string {
	if fields := form(ctx); fields != nil {
		return func(name string) string { return fields[strings.ToLower(name)] }
	}
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok || rctx.UserValue(encryptionKey) == nil {
		return none
	}
	return func(name string) string { return string(rctx.Request.Header.Peek(name)) }
}

// none is the value of every header of a request without headers of encryption.
func none(string) string { return "" }

// asksForEncryption reports whether a request or a form has anything to say about encryption.
func asksForEncryption(ctx context.Context) bool {
	get := headersOf(ctx)
	for _, name := range []string{headerSSE, headerKMSKey, headerCustomerAlgorithm, headerCustomerKey, headerCustomerMD5} {
		if get(name) != "" {
			return true
		}
	}
	return false
}

// askedEncryption returns the encryption that a write asks for, and whether it asks for one.
func askedEncryption(ctx context.Context) (e object.Encryption, asked bool, err error) {
	get := headersOf(ctx)
	kind, keyID, with, bucketKey := get(headerSSE), get(headerKMSKey), get(headerContext), get(headerBucketKey)
	if e.Customer, err = customerKey(ctx, ""); err != nil {
		return e, false, err
	}
	switch {
	case e.Customer != nil && (kind != "" || keyID != ""):
		return e, false,
			invalid("Server Side Encryption with Customer provided key is incompatible with the encryption method " +
				"specified.")
	case e.Customer != nil:
		e.Kind = object.EncryptedCustomer
		return e, true, nil
	case kind == "" && keyID == "" && with == "" && bucketKey == "":
		return e, false, nil
	}
	switch e.Kind = object.EncryptionKind(kind); e.Kind {
	case object.EncryptedS3:
		if keyID != "" || with != "" {
			return e, false, invalid("Server Side Encryption with AWS KMS managed key requires HTTP header " +
				"x-amz-server-side-encryption : aws:kms")
		}
		return e, true, nil
	case object.EncryptedKMS:
	case "aws:kms:dsse":
		return e, false, notImplemented(headerSSE, "two layers of encryption")
	case "":
		if keyID == "" && with == "" {
			return e, false, nil // bucket keys alone ask for nothing
		}
		return e, false, invalid("Server Side Encryption with AWS KMS managed key requires HTTP header " +
			"x-amz-server-side-encryption : aws:kms")
	default:
		return e, false, invalid("The encryption method specified is not supported: " + shortened(kind))
	}
	if e.KeyID = keyID; len(keyID) > maxKeyID {
		return e, false, invalid("The name of the key is longer than 2048 characters.")
	}
	switch strings.ToLower(bucketKey) {
	case "", "false":
	case "true":
		e.BucketKey = true
	default:
		return e, false, invalid("x-amz-server-side-encryption-bucket-key-enabled is " + shortened(bucketKey) +
			", expected true or false.")
	}
	e.Context = with
	return e, true, checkContext(with)
}

// checkContext returns an error if the context of KMS is not base64 of a JSON object with texts.
func checkContext(with string) error {
	if with == "" {
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(with)
	var pairs map[string]string
	if err == nil {
		err = json.Unmarshal(raw, &pairs)
	}
	if err != nil || len(with) > maxContext {
		return invalid("x-amz-server-side-encryption-context has to be base64 of a JSON object with texts, of at most 8192 " +
			"characters.")
	}
	return nil
}

// shortened returns the beginning of a text in quotes, for a message.
func shortened(text string) string {
	if len(text) > 64 {
		text = text[:64] + "…"
	}
	return `"` + strings.ToValidUTF8(text, "?") + `"`
}

// customerKey returns the key that a client sends, or nil. With the prefix sourcePrefix, it is the key of a copy's
// source.
func customerKey(ctx context.Context, prefix string) ([]byte, error) {
	get := headersOf(ctx)
	named := func(name string) string {
		if prefix != "" {
			name = prefix + strings.TrimPrefix(name, plainPrefix)
		}
		return get(name)
	}
	algorithm, text, sum := named(headerCustomerAlgorithm), named(headerCustomerKey), named(headerCustomerMD5)
	const must = "Requests specifying Server Side Encryption with Customer provided keys must provide "
	switch {
	case algorithm == "" && text == "" && sum == "":
		return nil, nil
	case algorithm == "":
		return nil, invalid(must + "a valid encryption algorithm.")
	case algorithm != string(object.EncryptedS3):
		return nil, refusal(400, "InvalidEncryptionAlgorithmError",
			"The encryption request that you specified is not valid. "+"The valid value is AES256.")
	case text == "":
		return nil, invalid(must + "an appropriate secret key.")
	case sum == "":
		return nil, invalid(must + "the client calculated MD5 of the secret key.")
	}
	if err := private(ctx); err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != object.CustomerKey {
		return nil, invalid("The secret key was invalid for the specified algorithm.")
	}
	own := md5.Sum(key)
	given, err := base64.StdEncoding.DecodeString(sum)
	if err != nil || subtle.ConstantTimeCompare(own[:], given) != 1 {
		return nil, invalid("The calculated MD5 hash of the key did not match the hash that was provided.")
	}
	return key, nil
}

// private returns an error if others can read the request on the network: it has neither TLS nor a client on this host.
func private(ctx context.Context) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok || rctx.IsTLS() || rctx.RemoteIP().IsLoopback() {
		return nil
	}
	return notApplicable(
		"Requests specifying Server Side Encryption with Customer provided keys must be made over a secure " + "connection.")
}
