// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"context"
	"fmt"
	"maps"

	"github.com/nebulaio/nebulaio/internal/object"
)

// isSealed reports whether the content of a version is encrypted.
func isSealed(info *object.Info) bool { return info.Stored > 0 }

// Copy implements object.Objects. If neither the source nor the copy is encrypted, the store below copies. Otherwise
// the content is decrypted and encrypted anew, with a new data key, and the copy has the ETag of content that was
// written in one request.
func (s *Store) Copy(ctx context.Context, c object.Copy) (object.Info, error) {
	const op = "copy"
	e, err := s.chosen(ctx, c.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	src, err := s.Below.Stat(ctx, c.From)
	if err != nil {
		return object.Info{}, err
	}
	if src.Marker {
		return object.Info{}, object.Fail(op, c.From.Key, object.ErrIsMarker, c.From.Version)
	}
	if e.Kind == object.EncryptedNot && !isSealed(&src) {
		if err := keyUnneeded(ctx, c.From.Key); err != nil {
			return object.Info{}, err
		}
		return s.Below.Copy(ctx, c)
	}
	c.From.Version = src.Version
	from, err := s.Open(ctx, c.From)
	if err != nil {
		return object.Info{}, err
	}
	defer from.Close()
	info := from.Info()
	if err := meets(op, &info, c.FromCondition); err != nil {
		return object.Info{}, err
	}
	attrs := c.Attributes
	if attrs == nil {
		attrs = maps.Clone(info.Attributes)
		for _, name := range []string{object.AttrSealed, object.AttrUpload, object.AttrUploadParts} {
			delete(attrs, name)
		}
	}
	body, err := strict(from, object.Range{N: info.Size})
	if err != nil {
		return object.Info{}, err
	}
	defer body.Close()
	return s.Put(object.WithEncryption(ctx, e), object.Put{Bucket: c.Bucket, Key: c.Key, Size: info.Size, Body: body,
		Attributes: attrs, Condition: c.Condition, Judge: c.Judge})
}

// meets returns an error if the source of a copy does not meet a condition.
func meets(op string, info *object.Info, c object.Condition) error {
	ok := (c.IfMatch == "" || c.IfMatch == "*" || c.IfMatch == info.ETag) &&
		(c.IfNoneMatch == "" || c.IfNoneMatch != "*" && c.IfNoneMatch != info.ETag) &&
		(c.IfSize == nil || *c.IfSize == info.Size) &&
		(c.IfModified == nil || c.IfModified.Unix() == info.Modified.Unix())
	if ok {
		return nil
	}
	return object.Fail(op, info.Key, object.ErrPrecondition, fmt.Sprintf("ETag %q, size %d", info.ETag, info.Size))
}

// strict returns a body that compares every block, because new checksums are computed of its bytes.
func strict(c object.Content, r object.Range) (object.Body, error) {
	if x, ok := c.(object.Stricter); ok {
		return x.Strict(r)
	}
	return c.Section(r)
}

// CopyPart implements object.Uploads. If neither the source nor the upload is encrypted, the store below copies.
func (s *Store) CopyPart(ctx context.Context, c object.CopyPart) (object.PartInfo, error) {
	const op = "copy part"
	u, err := s.Below.GetUpload(ctx, c.Bucket, c.Key, c.Upload)
	if err != nil {
		return object.PartInfo{}, err
	}
	src, err := s.Below.Stat(ctx, c.From)
	if err != nil {
		return object.PartInfo{}, err
	}
	_, sealed := u.Attributes[object.AttrSealed]
	if !sealed && !isSealed(&src) {
		if err := keyUnneeded(ctx, c.From.Key); err != nil {
			return object.PartInfo{}, err
		}
		return s.Below.CopyPart(ctx, c)
	}
	from, err := s.Open(ctx, c.From)
	if err != nil {
		return object.PartInfo{}, err
	}
	defer from.Close()
	size := from.Info().Size
	if c.N == -1 {
		c.N = size - c.Off
	}
	if c.Off < 0 || c.N < 0 || c.Off > size || c.N > size-c.Off {
		return object.PartInfo{}, object.Fail(op, c.From.Key, object.ErrInvalidRange,
			fmt.Sprintf("%d bytes at offset %d of %d", c.N, c.Off, size))
	}
	body, err := strict(from, object.Range{Off: c.Off, N: c.N})
	if err != nil {
		return object.PartInfo{}, err
	}
	defer body.Close()
	return s.PutPart(ctx, object.PutPart{Bucket: c.Bucket, Key: c.Key, Upload: c.Upload, Number: c.Number, Size: c.N,
		Body: body, Finish: c.Finish})
}
