// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Delete implements object.Objects.
func (s *Store) Delete(ctx context.Context, d object.Deletion) (object.Deleted, error) {
	const op = "delete"
	if err := s.enter(ctx, op, d.Bucket); err != nil {
		return object.Deleted{}, err
	}
	defer s.mu.Unlock()
	return s.remove(op, d)
}

// DeleteMany implements object.Objects. If two deletions name the same key, the later one sees the result of the
// earlier one.
func (s *Store) DeleteMany(ctx context.Context, bucket string, ds []object.Deletion) ([]object.Deleted, []error) {
	const op = "delete"
	out, fails := make([]object.Deleted, len(ds)), make([]error, len(ds))
	if err := s.enter(ctx, op, bucket); err != nil {
		for i := range fails {
			fails[i] = err
		}
		return out, fails
	}
	defer s.mu.Unlock()
	for i, d := range ds {
		d.Bucket = bucket
		out[i], fails[i] = s.remove(op, d)
	}
	return out, fails
}

// remove deletes as the bucket's versioning says; the mutex is held. The
// condition is judged on the current version, also where another one is named.
func (s *Store) remove(op string, d object.Deletion) (object.Deleted, error) {
	b, err := s.find(op, d.Bucket)
	if err != nil {
		return object.Deleted{}, err
	}
	if err := object.CheckKey(op, d.Key); err != nil {
		return object.Deleted{}, err
	}
	if err := holds(op, d.Key, d.Condition, b.current(d.Key)); err != nil {
		return object.Deleted{}, err
	}
	off := b.settings.Versioning == object.VersioningOff
	id := d.Version
	if id == "" && off {
		id = object.NullVersion
	}
	if id != "" {
		v := b.named(d.Key, id)
		if v == nil {
			return object.Deleted{}, nil
		}
		if _, err := b.ask(d.Judge, v, nil); err != nil {
			return object.Deleted{}, err
		}
		b.drop(d.Key, v)
		gone := object.Deleted{Version: id, Marker: v.info.Marker, Existed: true}
		if off {
			gone.Version = ""
		}
		return gone, nil
	}
	old := b.current(d.Key)
	m, err := s.judged(op, b, d.Judge, &version{origin: d.Origin,
		info: object.Info{Bucket: d.Bucket, Key: d.Key, Marker: true}})
	if err != nil {
		return object.Deleted{}, err
	}
	return object.Deleted{Version: m.Version, Marker: true, Existed: old != nil && !old.info.Marker}, nil
}
