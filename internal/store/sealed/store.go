// SPDX-License-Identifier: Apache-2.0

// Package sealed is an object store that encrypts the content of another store.
//
// The store below keeps the encrypted bytes, with checksums of its own, so that scrubs, checks and backups need no key.
// The store below also keeps the size, the ETag and the checksum of the content before encryption, for clients. A
// wrapped data key is an attribute of each encrypted object. Package seal defines the format of the bytes, and package
// keyring has the keys.
package sealed

import (
	"context"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/keyring"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/seal"
)

// Below is a store that keeps encrypted content.
type Below interface {
	object.Store
	object.Handles
	object.Directories
}

// Store encrypts and decrypts the content of the store below. Objects that are not encrypted pass through.
type Store struct {
	Below
	ring *keyring.Ring
}

var (
	_ object.Store     = (*Store)(nil)
	_ object.Encrypter = (*Store)(nil)
)

// New returns a Store that encrypts with the keys of a ring. The Store closes the store below when it is closed.
func New(below Below, ring *keyring.Ring) *Store { return &Store{Below: below, ring: ring} }

// Ring returns the keys of the store.
func (s *Store) Ring() *keyring.Ring { return s.ring }

// CheckEncryption implements object.Encrypter.
func (s *Store) CheckEncryption(ctx context.Context, bucket string, e object.Encryption) error {
	const op = "encrypt"
	bk, err := s.Below.Bucket(ctx, bucket)
	if err != nil {
		return err
	}
	switch {
	case e.Kind == object.EncryptedNot:
		return nil
	case bk.OnUpstream():
		return errs.New(errs.Unsupported, op, bucket, "another S3 server keeps the objects of the bucket").
			WithFix("let the other server encrypt")
	case object.IsDirectory(bucket):
		return errs.New(errs.Unsupported, op, bucket, "objects of a directory bucket cannot be encrypted").
			WithFix("use a bucket that is no directory bucket")
	}
	switch e.Kind {
	case object.EncryptedCustomer:
		if len(e.Customer) != object.CustomerKey {
			return errs.New(errs.Invalid, op, bucket, fmt.Sprintf("a key of %d bytes, expected %d", len(e.Customer),
				object.CustomerKey))
		}
		return nil
	case object.EncryptedKMS:
		if name := keyName(e.KeyID); !s.ring.Has(name) {
			return &errs.Error{Kind: errs.NotFound, Op: op, Name: e.KeyID, Err: object.ErrNoSuchEncryptionKey,
				Fix: "make the key: nebulaio encryption create " + name}
		}
	case object.EncryptedS3:
	default:
		return errs.New(errs.Invalid, op, bucket, fmt.Sprintf("encryption %.40q, expected %s, %s or %s", e.Kind,
			object.EncryptedS3, object.EncryptedKMS, object.EncryptedCustomer))
	}
	return s.ring.Usable()
}

// chosen returns how a new object of a bucket is encrypted: as the context says, or else as the bucket's default says.
func (s *Store) chosen(ctx context.Context, bucket string) (object.Encryption, error) {
	e, asked := object.EncryptionIn(ctx)
	if !asked {
		bk, err := s.Below.Bucket(ctx, bucket)
		if err != nil {
			return e, err
		}
		d, err := bk.DefaultEncryption()
		if d == nil || err != nil {
			return e, err
		}
		e = d.Encryption()
	}
	return e, s.CheckEncryption(ctx, bucket, e)
}

// Put implements object.Objects.
func (s *Store) Put(ctx context.Context, p object.Put) (object.Info, error) {
	e, err := s.chosen(ctx, p.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	if e.Kind == object.EncryptedNot {
		return s.Below.Put(ctx, p)
	}
	v, err := s.newEnvelope(ctx, p.Bucket, p.Key, e)
	if err != nil {
		return object.Info{}, err
	}
	stream, err := seal.NewStream(v.key, nil, "object")
	if err != nil {
		return object.Info{}, err
	}
	w := &sealing{v: v, r: seal.NewReader(bodyOf(p.Body), stream, true)}
	p.Body, p.Size, p.Plain = w.r, sealedSize(p.Size), w.plain
	p.Finish = w.finish("put", p.Key, p.Finish, func(of object.Written, attrs map[string]string) (err error) {
		attrs[object.AttrSealed], err = s.sealed(ctx, v, extent{size: of.Size})
		return err
	})
	return s.Below.Put(ctx, p)
}

// bodyOf returns a body that is not nil.
func bodyOf(r io.Reader) io.Reader {
	if r == nil {
		return eof{}
	}
	return r
}

// eof is an empty body.
type eof struct{}

// Read implements io.Reader.
func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// written describes the content that a Reader has sealed. Only objects of the kind EncryptedS3 show their MD5.
func (v *envelope) written(r *seal.Reader) (object.Written, error) {
	size, crc, md5 := r.Written()
	if v.Kind != object.EncryptedS3 {
		hidden, err := seal.HiddenMD5(v.key, md5)
		return object.Written{Size: size, CRC64: crc, MD5: hidden}, err
	}
	return object.Written{Size: size, CRC64: crc, MD5: md5}, nil
}

// Open implements object.Objects.
func (s *Store) Open(ctx context.Context, ref object.Ref) (object.Content, error) {
	c, err := s.Below.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	out, err := s.opened(ctx, c)
	if err != nil {
		_ = c.Close() // nothing was read
	}
	return out, err
}

// opened returns content that decrypts c, or c itself if c is not encrypted.
func (s *Store) opened(ctx context.Context, c object.Content) (object.Content, error) {
	if m, ok := c.(object.MaybeEncrypted); ok && !m.Encrypted() && object.CustomerKeyIn(ctx) == nil {
		return c, nil
	}
	info := c.Info()
	text, ok := info.Attributes[object.AttrSealed]
	switch {
	case !ok && info.Stored > 0:
		return nil, object.Fail("open", info.Key, object.ErrDamaged, "the object is encrypted, and its key is missing")
	case !ok:
		return c, keyUnneeded(ctx, info.Key)
	}
	key, err := s.dataKey(ctx, &info, text)
	if err != nil {
		return nil, err
	}
	return newContent(c, info, key)
}

// keyUnneeded returns an error if the context has a customer's key.
func keyUnneeded(ctx context.Context, name string) error {
	if object.CustomerKeyIn(ctx) != nil {
		return object.Fail("open", name, object.ErrUnneededKey, "")
	}
	return nil
}

// Unlock implements object.Encrypter.
func (s *Store) Unlock(ctx context.Context, info *object.Info) error {
	text, ok := info.Attributes[object.AttrSealed]
	if !ok {
		return keyUnneeded(ctx, info.Key)
	}
	_, err := s.dataKey(ctx, info, text)
	return err
}

// SetAttributes implements object.Objects. A change never sees the wrapped data key, so that it cannot lose it.
func (s *Store) SetAttributes(ctx context.Context, ref object.Ref, change func(map[string]string) error) error {
	return s.Below.SetAttributes(ctx, ref, func(attrs map[string]string) error {
		text, ok := attrs[object.AttrSealed]
		delete(attrs, object.AttrSealed)
		if err := change(attrs); err != nil {
			return err
		}
		delete(attrs, object.AttrSealed)
		if ok {
			attrs[object.AttrSealed] = text
		}
		return nil
	})
}

// Handle implements object.Handles. An encrypted object has no file that a client could read.
func (s *Store) Handle(ctx context.Context, ref object.Ref) (object.Handle, error) {
	h, err := s.Below.Handle(ctx, ref)
	if err != nil {
		return nil, err
	}
	if i := h.Info(); i.Stored > 0 {
		_ = h.Close() // nothing was read
		return nil, &errs.Error{Kind: errs.Unsupported, Op: "open", Name: ref.Key, Err: object.ErrEncrypted,
			Fix: "read it over HTTP, where the server decrypts it"}
	}
	return h, nil
}

// NewDraft implements object.Handles. A client cannot write into a bucket that encrypts its objects.
func (s *Store) NewDraft(ctx context.Context, d object.Draft) (object.Drafting, error) {
	bk, err := s.Below.Bucket(ctx, d.Bucket)
	if err != nil {
		return nil, err
	}
	if def, err := bk.DefaultEncryption(); def != nil || err != nil {
		return nil, errs.New(errs.Unsupported, "begin draft", d.Key, "the bucket encrypts its objects").
			WithFix("write it over HTTP, where the server encrypts it")
	}
	return s.Below.NewDraft(ctx, d)
}
