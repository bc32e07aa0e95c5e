// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"context"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/seal"
)

// saltSize is the length of a part's salt in bytes.
const saltSize = 16

// partName returns the name of the stream of a part.
func partName(number int) string { return "part " + strconv.Itoa(number) }

// CreateUpload implements object.Uploads. All parts of an upload share a data key.
func (s *Store) CreateUpload(ctx context.Context, bucket, key string, attributes map[string]string) (string, error) {
	e, err := s.chosen(ctx, bucket)
	if err != nil {
		return "", err
	}
	if e.Kind == object.EncryptedNot {
		return s.Below.CreateUpload(ctx, bucket, key, attributes)
	}
	v, err := s.newEnvelope(ctx, bucket, key, e)
	if err != nil {
		return "", err
	}
	v.Open = true
	text, err := v.encode(openExtent)
	if err != nil {
		return "", err
	}
	return s.Below.CreateUpload(ctx, bucket, key,
		object.MergeAttributes(attributes, map[string]string{object.AttrSealed: text}))
}

// uploadKey returns the envelope of an upload with its data key, or nil if the upload is not encrypted. The key of a
// customer comes from the context.
func (s *Store) uploadKey(ctx context.Context, u *object.Upload) (*envelope, error) {
	e, _ := object.EncryptionIn(ctx)
	text, ok := u.Attributes[object.AttrSealed]
	if !ok {
		if e.Customer != nil {
			return nil, object.Fail("put part", u.Key, object.ErrUnneededKey, "")
		}
		return nil, nil
	}
	v, err := parse(text)
	if err != nil {
		return nil, err
	}
	v.bucket, v.object = u.Bucket, u.Key
	return v, s.unwrap(ctx, v, e.Customer, openExtent)
}

// UnlockUpload implements object.Encrypter.
func (s *Store) UnlockUpload(ctx context.Context, u *object.Upload) error {
	_, err := s.uploadKey(ctx, u)
	return err
}

// PutPart implements object.Uploads. Each part is a stream of its own, with a random salt: a part that is sent again
// has another key.
func (s *Store) PutPart(ctx context.Context, p object.PutPart) (object.PartInfo, error) {
	u, err := s.Below.GetUpload(ctx, p.Bucket, p.Key, p.Upload)
	if err != nil {
		return object.PartInfo{}, err
	}
	v, err := s.uploadKey(ctx, &u)
	if err != nil {
		return object.PartInfo{}, err
	}
	if v == nil {
		return s.Below.PutPart(ctx, p)
	}
	salt := seal.Random(saltSize)
	stream, err := seal.NewStream(v.key, salt, partName(p.Number))
	if err != nil {
		return object.PartInfo{}, err
	}
	w := &sealing{v: v, r: seal.NewReader(bodyOf(p.Body), stream, true)}
	p.Body, p.Size, p.Plain = w.r, sealedSize(p.Size), w.plain
	p.Finish = w.finish("put part", p.Key, p.Finish, func(of object.Written, attrs map[string]string) error {
		attrs[object.AttrSealedPart] = object.PartSeal{Size: of.Size, CRC: of.CRC64, Salt: salt}.Text()
		return nil
	})
	return s.Below.PutPart(ctx, p)
}

// CompleteUpload implements object.Uploads. The data key is wrapped anew, bound to the sizes of all parts. If the
// upload is encrypted with a customer's key and the context has none, the data key stays as it is. Each part is then
// bound only to its own size.
func (s *Store) CompleteUpload(ctx context.Context, c object.Complete) (object.Info, error) {
	u, err := s.Below.GetUpload(ctx, c.Bucket, c.Key, c.Upload)
	if err != nil {
		return object.Info{}, err
	}
	if h := object.EncryptionOf(u.Attributes); h == nil || h.Kind == object.EncryptedCustomer && noCustomer(ctx) {
		return s.Below.CompleteUpload(ctx, c)
	}
	v, err := s.uploadKey(ctx, &u)
	if err != nil {
		return object.Info{}, err
	}
	finish := c.Finish
	c.Finish = func(parts []object.PartInfo) (map[string]string, error) {
		of := extent{parts: parts}
		for i := range parts {
			of.size += parts[i].Size
		}
		attrs, err := object.FinishAttributes("complete upload", c.Key, nil, finish, object.CloneParts(parts))
		if err != nil {
			return nil, err
		}
		attrs[object.AttrSealed], err = s.sealed(ctx, v, of)
		return attrs, err
	}
	return s.Below.CompleteUpload(ctx, c)
}

// noCustomer reports whether a context has no key of a customer for a new object.
func noCustomer(ctx context.Context) bool {
	e, _ := object.EncryptionIn(ctx)
	return e.Customer == nil
}
