// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

var _ object.Directories = (*Store)(nil)

// directory finds a directory bucket; the mutex is held.
func (s *Store) directory(op, name string) (*bucket, error) {
	b, err := s.find(op, name)
	if err == nil && !object.IsDirectory(name) {
		err = errs.New(errs.Unsupported, op, name, "it is no directory bucket")
	}
	return b, err
}

// tailOf checks the condition and the offset of an append; the mutex is held.
func (b *bucket) tailOf(op string, a object.Append) (*version, error) {
	v := b.current(a.Key)
	if err := holds(op, a.Key, a.Condition, v); err != nil {
		return nil, err
	}
	size := int64(0)
	if v != nil {
		size = v.info.Size
	}
	if size != a.Offset {
		return nil, object.Fail(op, a.Key, object.ErrWriteOffset, fmt.Sprintf("offset %d, size %d", a.Offset, size))
	}
	return v, nil
}

// Append implements object.Directories.
func (s *Store) Append(ctx context.Context, a object.Append) (object.Info, error) {
	const op = "append"
	if err := object.CheckKey(op, a.Key); err != nil {
		return object.Info{}, err
	}
	if err := s.enter(ctx, op, a.Bucket); err != nil {
		return object.Info{}, err
	}
	begun, err := s.directory(op, a.Bucket)
	if err == nil {
		_, err = begun.tailOf(op, a)
	}
	s.mu.Unlock()
	if err != nil {
		return object.Info{}, err
	}
	data, err := take(ctx, op, a.Key, a.Body, a.Size)
	if err != nil {
		return object.Info{}, err
	}
	w := written(data, false)
	if a.Finish != nil {
		if err := a.Finish(w); err != nil {
			return object.Info{}, err
		}
	}
	if err := s.enter(ctx, op, a.Bucket); err != nil {
		return object.Info{}, err
	}
	defer s.mu.Unlock()
	b, err := s.still(op, a.Bucket, begun)
	if err != nil {
		return object.Info{}, err
	}
	v, err := b.tailOf(op, a)
	if err != nil {
		return object.Info{}, err
	}
	if v != nil && len(data) == 0 {
		return b.describe(v), nil
	}
	return s.extended(op, b, a, v, data, w)
}

// extended makes the version with the appended data; v is the version before, or nil.
func (s *Store) extended(op string, b *bucket, a object.Append, v *version, data []byte,
	w object.Written) (object.Info, error) {
	var before *object.Info
	as := map[string]string{}
	if v != nil {
		info := b.describe(v)
		before, as = &info, info.Attributes
		data = append(bytes.Clone(v.data), data...)
	}
	if a.Extend != nil {
		var err error
		if as, err = a.Extend(before, w); err != nil {
			return object.Info{}, err
		}
		if err := object.CheckAttributes(op, a.Key, as); err != nil {
			return object.Info{}, err
		}
	}
	crc, size := checksum.Of(data), int64(len(data))
	return s.add(b, &version{data: data, info: object.Info{Bucket: a.Bucket, Key: a.Key, Size: size, CRC64: crc,
		ETag: object.CRC64ETag(crc, size, 1), Attributes: object.MergeAttributes(as, nil)}}), nil
}

// Rename implements object.Directories. The model keeps tokens for as long as it lives.
func (s *Store) Rename(ctx context.Context, r object.Rename) error {
	const op = "rename"
	for _, key := range []string{r.From, r.To} {
		if err := object.CheckKey(op, key); err != nil {
			return err
		}
	}
	if err := s.enter(ctx, op, r.Bucket); err != nil {
		return err
	}
	defer s.mu.Unlock()
	b, err := s.directory(op, r.Bucket)
	if err != nil {
		return err
	}
	if done, ok := b.tokens[r.Token]; ok && r.Token != "" {
		if done != [2]string{r.From, r.To} {
			return object.Fail(op, r.From, object.ErrTokenUsed, "")
		}
		return nil
	}
	v, old := b.current(r.From), b.current(r.To)
	if v == nil {
		return object.Fail(op, r.From, object.ErrNoSuchKey, "")
	}
	info := b.describe(v)
	if r.CheckFrom != nil {
		if err := r.CheckFrom(&info); err != nil {
			return err
		}
	}
	if r.CheckTo != nil {
		var at *object.Info
		if old != nil {
			i := b.describe(old)
			at = &i
		}
		if err := r.CheckTo(at); err != nil {
			return err
		}
	}
	if r.From != r.To {
		delete(b.keys, r.From)
		moved := *v
		moved.info = v.info.Clone()
		moved.info.Key = r.To
		b.keys[r.To] = []*version{&moved}
	}
	if r.Token != "" {
		if b.tokens == nil {
			b.tokens = map[string][2]string{}
		}
		b.tokens[r.Token] = [2]string{r.From, r.To}
	}
	return nil
}
