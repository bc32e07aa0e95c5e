// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

var _ object.Noter = (*Store)(nil)

// noter makes the changes of a store that write a record too.
type noter struct{ s *Store }

// addNote adds a record of another package to a change.
func addNote(t *tx, op string, n object.Note) error {
	if err := checkRecord(op, n.Kind, n.Name); err != nil {
		return err
	}
	if len(n.Value) > maxRecord {
		return object.Fail(op, n.Name, object.ErrTooLarge,
			fmt.Sprintf("a record of %d bytes, expected at most %d", len(n.Value), maxRecord))
	}
	t.set(record.Key(n.Kind, n.Name), append([]byte{record.Format}, n.Value...))
	return nil
}

// DeleteNoted implements object.Noter.
func (n noter) DeleteNoted(ctx context.Context, bucket string, ds []object.Deletion,
	note func([]object.Deleted, []error) object.Note) ([]object.Deleted, []error) {
	const op = "delete"
	s := n.s
	out, fails := make([]object.Deleted, len(ds)), make([]error, len(ds))
	if err := func() error {
		end, err := s.begin(ctx, op, bucket)
		if err != nil {
			return err
		}
		defer end()
		bk, err := s.find(op, bucket)
		if err != nil {
			return err
		}
		if err := distinct(op, bucket, ds); err != nil {
			return err
		}
		s.deleteStep(ctx, op, bk, ds, out, fails, note)
		return nil
	}(); err != nil {
		for i := range fails {
			fails[i] = err
		}
	}
	return out, fails
}

// distinct returns an error unless one step can make all deletions.
func distinct(op, bucket string, ds []object.Deletion) error {
	seen := make(map[string]bool, len(ds))
	for i := range ds {
		seen[ds[i].Key] = true
	}
	if len(ds) == 0 || len(ds) > deleteBatch || len(seen) < len(ds) {
		return errs.New(errs.Invalid, op, bucket, fmt.Sprintf("%d deletions of %d keys, expected 1 to %d deletions of "+
			"different keys", len(ds), len(seen), deleteBatch))
	}
	return nil
}

// AbortNoted implements object.Noter.
func (n noter) AbortNoted(ctx context.Context, bucket, key, id string, note object.Note) error {
	return abortUpload(ctx, n.s, bucket, key, id, &note)
}
