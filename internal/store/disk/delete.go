// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// Delete implements object.Objects.
func (s *Store) Delete(ctx context.Context, d object.Deletion) (object.Deleted, error) {
	out, fails := s.DeleteMany(ctx, d.Bucket, []object.Deletion{d})
	return out[0], fails[0]
}

// deleteBatch limits how many deletions become durable in one step.
const deleteBatch = 1000

// DeleteMany implements object.Objects. If ds names a key more than once, the later deletion sees the result of the
// earlier one.
func (s *Store) DeleteMany(ctx context.Context, bucket string, ds []object.Deletion) ([]object.Deleted, []error) {
	const op = "delete"
	out, fails := make([]object.Deleted, len(ds)), make([]error, len(ds))
	all := func(err error) ([]object.Deleted, []error) {
		for i := range fails {
			fails[i] = err
		}
		return out, fails
	}
	end, err := s.begin(ctx, op, bucket)
	if err != nil {
		return all(err)
	}
	defer end()
	bk, err := s.find(op, bucket)
	if err != nil {
		return all(err)
	}
	for i := 0; i < len(ds); {
		seen := map[string]bool{}
		j := i
		for ; j < len(ds) && j-i < deleteBatch && !seen[ds[j].Key]; j++ {
			seen[ds[j].Key] = true
		}
		s.deleteStep(ctx, op, bk, ds[i:j], out[i:j], fails[i:j], nil)
		i = j
	}
	return out, fails
}

// deleteStep deletes objects of different keys in one change. If note is not nil, the change also writes the record
// that note returns for the results.
func (s *Store) deleteStep(ctx context.Context, op string, bk *bucket, ds []object.Deletion, out []object.Deleted,
	fails []error, note func([]object.Deleted, []error) object.Note) {
	keys := make([]string, len(ds))
	for i := range ds {
		keys[i] = ds[i].Key
	}
	err := func() error {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(op, bk.settings.Load().Name, err)
		}
		release, err := bk.hold(op)
		if err != nil {
			return err
		}
		defer release()
		defer s.stripes.lockAll(bk.id, keys)()
		t := s.change(bk)
		for i, d := range ds {
			out[i], fails[i] = t.remove(ctx, op, d)
		}
		if note != nil {
			if err := addNote(t, op, note(out, fails)); err != nil {
				t.cancel()
				return err
			}
		}
		return t.commit(op, keys[0])
	}()
	if err == nil {
		return
	}
	for i := range ds {
		if fails[i] == nil {
			out[i], fails[i] = object.Deleted{}, err
		}
	}
}

// remove deletes as the bucket's versioning requires. The condition is checked on the current version, even if d
// names another one.
func (t *tx) remove(ctx context.Context, op string, d object.Deletion) (object.Deleted, error) {
	if err := object.CheckKey(op, d.Key); err != nil {
		return object.Deleted{}, err
	}
	head, err := t.s.current(t.bk, d.Key)
	if err != nil {
		return object.Deleted{}, err
	}
	if err := holds(op, d.Key, d.Condition, head); err != nil {
		return object.Deleted{}, err
	}
	off := t.bk.settings.Load().Versioning == object.VersioningOff
	id := d.Version
	if id == "" && off {
		id = object.NullVersion
	}
	if id == "" {
		return t.mark(ctx, op, d, head)
	}
	v, err := t.s.named(t.bk, d.Key, id, head)
	if v == nil || err != nil {
		return object.Deleted{}, err
	}
	if err := t.judge(op, d.Key, d.Judge, judged{gone: v, latest: head != nil && head.Seq == v.Seq}); err != nil {
		return object.Deleted{}, err
	}
	if err := t.removeVersion(d.Key, head, v); err != nil {
		return object.Deleted{}, err
	}
	t.s.journal.add(ctx, t, object.ChangeDelete, d.Key, v)
	gone := object.Deleted{Version: id, Marker: v.Marker(), Existed: true}
	if off {
		gone.Version = ""
	}
	return gone, nil
}

// mark adds a delete marker.
func (t *tx) mark(ctx context.Context, op string, d object.Deletion, head *record.Version) (object.Deleted, error) {
	m := &record.Version{Flags: record.FlagMarker}
	t.origin = d.Origin
	if err := t.supersede(op, d.Key, head, m, d.Judge); err != nil {
		return object.Deleted{}, err
	}
	t.putOld(d.Key, m)
	t.s.journal.add(ctx, t, object.ChangeMarker, d.Key, m)
	return object.Deleted{Version: t.s.names.Version(m), Marker: true, Existed: head != nil && !head.Marker()}, nil
}

// removeVersion removes one version; if it was the current one, the next version becomes current.
func (t *tx) removeVersion(key string, head, v *record.Version) error {
	var next *record.Version
	wasHead := head != nil && head.Seq == v.Seq
	if wasHead && t.bk.settings.Load().Versioning != object.VersioningOff {
		var err error
		if next, err = newestOld(t.s.db, t.bk.id, key, v.Seq); err != nil {
			return err
		}
	}
	if wasHead && !v.Marker() {
		t.takeCurrent(key, v)
	} else {
		t.takeOld(key, v)
	}
	t.dropContent(v)
	if next != nil && !next.Marker() {
		t.promote(key, next)
	}
	return nil
}

// SetAttributes implements object.Objects. For a delete marker, which has no attributes, SetAttributes fails with
// ErrIsMarker.
func (s *Store) SetAttributes(ctx context.Context, ref object.Ref, change func(map[string]string) error) error {
	const op = "set attributes"
	end, err := s.begin(ctx, op, ref.Key)
	if err != nil {
		return err
	}
	defer end()
	bk, err := s.find(op, ref.Bucket)
	if err != nil {
		return err
	}
	release, err := bk.hold(op)
	if err != nil {
		return err
	}
	defer release()
	lock := s.stripes.of(bk.id, ref.Key)
	lock.Lock()
	defer lock.Unlock()
	v, latest, err := s.resolveContent(op, bk, ref)
	if err != nil {
		return err
	}
	as := object.MergeAttributes(v.Attrs, nil)
	if err := change(as); err != nil {
		return err
	}
	if err := object.CheckAttributes(op, ref.Key, as); err != nil {
		return err
	}
	v.Attrs = as
	t := s.change(bk)
	if latest {
		t.set(record.ObjectKey(bk.id, ref.Key), v.Encode())
	} else {
		t.set(record.VersionKey(bk.id, ref.Key, v.Seq), v.Encode())
	}
	t.s.journal.add(ctx, t, object.ChangeKindOf(ctx, object.ChangeAttributes), ref.Key, v)
	return t.commit(op, ref.Key)
}
