// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/keyring"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/seal"
)

// envelope is the attribute of an encrypted object: its wrapped data key, and what unwraps it.
type envelope struct {
	object.EncryptionHeader
	Key        string `json:"key,omitempty"`        // name of the key of the ring; empty for EncryptedCustomer
	Generation int    `json:"generation,omitempty"` // generation of the key of the ring
	Salt       []byte `json:"salt,omitempty"`       // salt of EncryptedCustomer
	Wrapped    []byte `json:"wrapped"`              // the data key
	// Open means that the data key was wrapped before the size of the content was known, so that the wrapped key does not
	// prove the size. Open is true for multipart uploads, and for objects that were completed without the customer's key.
	Open bool `json:"open,omitempty"`

	bucket, object string
	key            []byte // the data key
	wrapper        *seal.Wrapper
}

// maxEnvelope is the largest length of the attribute in bytes.
const maxEnvelope = 16 << 10

// parse reads the attribute of an encrypted object.
func parse(text string) (*envelope, error) {
	bad := func(why string) (*envelope, error) {
		return nil, errs.New(errs.Corrupt, "read encryption", "", why).WithFix("stop the server and run nebulaio store check")
	}
	if len(text) > maxEnvelope {
		return bad(fmt.Sprintf("the attribute has %d bytes, expected at most %d", len(text), maxEnvelope))
	}
	v := &envelope{}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return bad(err.Error())
	}
	switch v.Kind {
	case object.EncryptedS3, object.EncryptedKMS:
		if v.Key == "" || v.Generation < 1 {
			return bad("the attribute names no key")
		}
	case object.EncryptedCustomer:
	default:
		return bad(fmt.Sprintf("the object is encrypted as %.40q, which this version does not know", v.Kind))
	}
	return v, nil
}

// keyName returns the name of a key of the ring. Clients may write an ARN or an alias of KMS.
func keyName(id string) string {
	if id == "" {
		return keyring.Default
	}
	if strings.HasPrefix(id, "arn:") {
		if i := strings.LastIndexByte(id, ':'); i >= 0 {
			id = id[i+1:]
		}
		id = strings.TrimPrefix(id, "key/")
	}
	return strings.TrimPrefix(id, "alias/")
}

// newEnvelope makes a data key for a new object.
func (s *Store) newEnvelope(ctx context.Context, bucket, key string, e object.Encryption) (*envelope, error) {
	v := &envelope{EncryptionHeader: object.EncryptionHeader{Kind: e.Kind, Context: e.Context, BucketKey: e.BucketKey},
		bucket: bucket, object: key, key: seal.NewKey()}
	var err error
	switch e.Kind {
	case object.EncryptedCustomer:
		v.Salt = seal.Random(16)
		v.wrapper, err = customerWrapper(e.Customer, v.Salt)
		return v, err
	case object.EncryptedKMS:
		v.KeyID = e.KeyID
		v.Key = keyName(e.KeyID)
		if v.KeyID == "" {
			v.KeyID = keyring.Default
		}
	default:
		v.Key = keyring.S3
	}
	v.wrapper, v.Generation, err = s.ring.Newest(ctx, v.Key)
	return v, err
}

// customerWrapper returns the Wrapper of a customer's key.
func customerWrapper(key, salt []byte) (*seal.Wrapper, error) {
	derived, err := seal.Derive(key, salt, "customer key")
	if err != nil {
		return nil, err
	}
	return seal.NewWrapper(derived)
}

// extent is the size of content and of its parts, which a wrapped data key is bound to.
type extent struct {
	size  int64
	parts []object.PartInfo
}

// text returns the extent as text.
func (e extent) text() string {
	if e.parts == nil {
		return strconv.FormatInt(e.size, 10)
	}
	h := sha256.New()
	for i := range e.parts {
		p := &e.parts[i]
		fmt.Fprintf(h, "%d %d %s\n", p.Number, p.Size, p.Attributes[object.AttrSealedPart]) // writing to a hash never fails
	}
	return fmt.Sprintf("%d in %d parts %s", e.size, len(e.parts), hex.EncodeToString(h.Sum(nil)))
}

// bound returns the texts that a wrapped data key is bound to.
func (v *envelope) bound(of string) []string {
	return []string{"data key", v.bucket, v.object, string(v.Kind), v.KeyID, v.Context, of}
}

const openExtent = "open"

// sealed returns the attribute of an object with that extent.
func (s *Store) sealed(_ context.Context, v *envelope, of extent) (string, error) {
	v.Open = false
	return v.encode(of.text())
}

// encode wraps the data key and returns the attribute.
func (v *envelope) encode(of string) (string, error) {
	v.Wrapped = v.wrapper.Wrap(v.key, v.bound(of)...)
	text, err := json.Marshal(v)
	if err == nil && len(text) > maxEnvelope {
		err = errs.New(errs.Invalid, "encrypt", v.object,
			fmt.Sprintf("the key's name and context need %d bytes, expected at most %d", len(text), maxEnvelope))
	}
	return string(text), errs.Wrap("encrypt", v.object, err)
}

// dataKey returns the data key of an object. It fails with object.ErrNeedsKey, ErrWrongKey or ErrUnneededKey if the
// customer's key in the context does not fit.
func (s *Store) dataKey(ctx context.Context, info *object.Info, text string) ([]byte, error) {
	v, err := parse(text)
	if err != nil {
		return nil, errs.Wrap("open", info.Key, err)
	}
	v.bucket, v.object = info.Bucket, info.Key
	of := extent{size: info.Size, parts: info.Parts}.text()
	if v.Open {
		of = openExtent
	}
	if err := s.unwrap(ctx, v, object.CustomerKeyIn(ctx), of); err != nil {
		return nil, err
	}
	return v.key, nil
}

// unwrap sets the data key and the wrapper of an envelope.
func (s *Store) unwrap(ctx context.Context, v *envelope, customer []byte, of string) (err error) {
	const op = "decrypt"
	switch {
	case v.Kind != object.EncryptedCustomer && customer != nil:
		return object.Fail(op, v.object, object.ErrUnneededKey, "")
	case v.Kind != object.EncryptedCustomer:
		v.wrapper, err = s.ring.Generation(ctx, v.Key, v.Generation)
	case customer == nil:
		return object.Fail(op, v.object, object.ErrNeedsKey, "")
	default:
		v.wrapper, err = customerWrapper(customer, v.Salt)
	}
	if err != nil {
		return err
	}
	v.key, err = v.wrapper.Unwrap(v.Wrapped, v.bound(of)...)
	switch {
	case err == nil:
		return nil
	case v.Kind == object.EncryptedCustomer:
		return object.Fail(op, v.object, object.ErrWrongKey, "")
	}
	return object.Fail(op, v.object, damagedBy{err}, "")
}

// damagedBy is object.ErrDamaged with its cause.
type damagedBy struct{ cause error }

// Error implements error.
func (d damagedBy) Error() string { return object.ErrDamaged.Error() + ": " + d.cause.Error() }

// Unwrap lets errors.Is find object.ErrDamaged and the cause.
func (d damagedBy) Unwrap() []error { return []error{object.ErrDamaged, d.cause} }
