// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// maxRecord is the largest size of a record's value, in bytes.
const maxRecord = 1 << 20

func checkRecord(op, kind, name string) error {
	if kind == "" || name == "" || len(kind) > object.MaxKey || len(name) > object.MaxKey {
		return object.Fail(op, kind+"/"+name, object.ErrInvalidName,
			fmt.Sprintf("a kind and a name of 1 to %d bytes are expected", object.MaxKey))
	}
	return nil
}

// PutRecord implements object.Records.
func (s *Store) PutRecord(ctx context.Context, kind, name string, value []byte) error {
	const op = "put record"
	end, err := s.begin(ctx, op, name)
	if err != nil {
		return err
	}
	defer end()
	if err := checkRecord(op, kind, name); err != nil {
		return err
	}
	if len(value) > maxRecord {
		return object.Fail(op, name, object.ErrTooLarge, fmt.Sprintf("%d bytes, expected at most %d", len(value), maxRecord))
	}
	if err := s.space.check(op, name, int64(len(value))); err != nil {
		return err
	}
	b := s.db.NewBatch()
	if err := b.Set(record.Key(kind, name), append([]byte{record.Format}, value...), nil); err != nil {
		return errs.Wrap(op, name, err)
	}
	return s.apply(op, name, b, nil)
}

// Record implements object.Records.
func (s *Store) Record(ctx context.Context, kind, name string) ([]byte, error) {
	const op = "record"
	end, err := s.begin(ctx, op, name)
	if err != nil {
		return nil, err
	}
	defer end()
	return s.record(op, kind, name)
}

func (s *Store) record(op, kind, name string) ([]byte, error) {
	if err := checkRecord(op, kind, name); err != nil {
		return nil, err
	}
	b, err := metadb.Get(s.db, record.Key(kind, name))
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, object.Fail(op, name, object.ErrNoSuchRecord, "of kind "+kind)
	}
	if b[0] != record.Format {
		return nil, record.Unreadable("record", b)
	}
	return b[1:], nil
}

// DeleteRecord implements object.Records.
func (s *Store) DeleteRecord(ctx context.Context, kind, name string) error {
	const op = "delete record"
	end, err := s.begin(ctx, op, name)
	if err != nil {
		return err
	}
	defer end()
	s.changing.Lock() // of two deletions one finds nothing
	defer s.changing.Unlock()
	if _, err := s.record(op, kind, name); err != nil {
		return err
	}
	b := s.db.NewBatch()
	if err := b.Delete(record.Key(kind, name), nil); err != nil {
		return errs.Wrap(op, name, err)
	}
	return s.apply(op, name, b, nil)
}

// RecordNames implements object.Records.
func (s *Store) RecordNames(ctx context.Context, kind string) ([]string, error) {
	const op = "record names"
	end, err := s.begin(ctx, op, kind)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := checkRecord(op, kind, "any"); err != nil {
		return nil, err
	}
	prefix := record.Key(kind, "")
	var names []string
	err = metadb.Each(s.db, prefix, record.After(prefix), func(k, _ []byte) error {
		names = append(names, string(k[len(prefix):]))
		return ctx.Err()
	})
	return names, err
}
