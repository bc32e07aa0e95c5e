// SPDX-License-Identifier: Apache-2.0

package object

import (
	"encoding/json"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// EncryptionHeader is the part of the attribute AttrSealed that clients see.
type EncryptionHeader struct {
	Kind    EncryptionKind `json:"kind"`
	KeyID   string         `json:"key_id,omitempty"` // key of EncryptedKMS, as the client named it
	Context string         `json:"context,omitempty"`
	// BucketKey repeats Encryption.BucketKey.
	BucketKey bool `json:"bucket_key,omitempty"`
}

// EncryptionOf returns how an object or an upload with these attributes is encrypted. EncryptionOf returns nil if the
// object is not encrypted, or if the attribute cannot be read.
func EncryptionOf(attributes map[string]string) *EncryptionHeader {
	text, ok := attributes[AttrSealed]
	if !ok {
		return nil
	}
	h := &EncryptionHeader{}
	if json.Unmarshal([]byte(text), h) != nil {
		return nil
	}
	return h
}

// DefaultEncryption is the default encryption of a bucket.
type DefaultEncryption struct {
	Kind      EncryptionKind `json:"kind"` // EncryptedS3 or EncryptedKMS
	KeyID     string         `json:"key_id,omitempty"`
	BucketKey *bool          `json:"bucket_key,omitempty"` // nil if the bucket's configuration does not say it
}

// Encryption returns how a new object of the bucket is encrypted.
func (d *DefaultEncryption) Encryption() Encryption {
	return Encryption{Kind: d.Kind, KeyID: d.KeyID, BucketKey: d.BucketKey != nil && *d.BucketKey}
}

// Encode returns the value of the setting SettingEncryption.
func (d *DefaultEncryption) Encode() ([]byte, error) { return json.Marshal(d) }

// DefaultEncryption returns the default encryption of the bucket, or nil if the bucket has none. DefaultEncryption
// fails with kind Corrupt if the setting cannot be read, because nobody may then write objects without encryption.
func (b *Bucket) DefaultEncryption() (*DefaultEncryption, error) {
	doc, ok := b.Settings[SettingEncryption]
	if !ok {
		return nil, nil
	}
	d := &DefaultEncryption{}
	if err := json.Unmarshal(doc, d); err != nil {
		return nil, errs.New(errs.Corrupt, "read default encryption", b.Name, err.Error()).
			WithFix("set the default encryption of the bucket again")
	}
	return d, nil
}
