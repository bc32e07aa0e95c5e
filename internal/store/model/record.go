// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/object"
)

// PutRecord implements object.Records.
func (s *Store) PutRecord(ctx context.Context, kind, name string, value []byte) error {
	const op = "put record"
	if kind == "" || name == "" {
		return object.Fail(op, name, object.ErrInvalidName, fmt.Sprintf("kind %q, name %q", kind, name))
	}
	if len(value) > MaxRecord {
		return object.Fail(op, name, object.ErrTooLarge, fmt.Sprintf("%d bytes, expected at most %d", len(value), MaxRecord))
	}
	if err := s.enter(ctx, op, name); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.records[[2]string{kind, name}] = append([]byte{}, value...)
	return nil
}

// Record implements object.Records.
func (s *Store) Record(ctx context.Context, kind, name string) ([]byte, error) {
	const op = "record"
	if err := s.enter(ctx, op, name); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	v, ok := s.records[[2]string{kind, name}]
	if !ok {
		return nil, object.Fail(op, name, object.ErrNoSuchRecord, "of kind "+kind)
	}
	return slices.Clone(v), nil
}

// DeleteRecord implements object.Records.
func (s *Store) DeleteRecord(ctx context.Context, kind, name string) error {
	const op = "delete record"
	if err := s.enter(ctx, op, name); err != nil {
		return err
	}
	defer s.mu.Unlock()
	k := [2]string{kind, name}
	if _, ok := s.records[k]; !ok {
		return object.Fail(op, name, object.ErrNoSuchRecord, "of kind "+kind)
	}
	delete(s.records, k)
	return nil
}

// RecordNames implements object.Records.
func (s *Store) RecordNames(ctx context.Context, kind string) ([]string, error) {
	if err := s.enter(ctx, "record names", kind); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []string
	for k := range s.records {
		if k[0] == kind {
			out = append(out, k[1])
		}
	}
	slices.Sort(out)
	return out, nil
}
