// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/fence"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// tx collects one change of a bucket, which becomes durable and visible completely or not at all. The caller holds
// the locks of the changed keys, and the bucket's lock for reading. commit returns the first error.
type tx struct {
	s       *Store
	bk      *bucket
	b       *pebble.Batch
	delta   record.Counts
	gone    []datafile.ID
	freed   int64  // approximate bytes of deleted records
	then    func() // called when the change is durable
	entries []entered
	// origin, if not nil, is the version of another server that the added version or delete marker is a copy of.
	origin *object.Origin
	err    error
}

func (s *Store) change(bk *bucket) *tx { return &tx{s: s, bk: bk, b: s.db.NewBatch()} }

func (t *tx) set(k, v []byte) {
	if t.err == nil {
		t.err = t.b.Set(k, v, nil)
	}
}

func (t *tx) del(k []byte) {
	t.freed += int64(len(k)) + recordCost
	if t.err == nil {
		t.err = t.b.Delete(k, nil)
	}
}

// commit makes the change. Store.apply describes its errors.
func (t *tx) commit(op, name string) error {
	if t.err == nil && t.delta != (record.Counts{}) {
		t.err = t.b.Merge(record.CountsKey(t.bk.id), t.delta.Encode(), nil)
	}
	if t.err != nil {
		_ = t.b.Close()
		return errs.Wrap(op, name, t.err)
	}
	if t.b.Empty() {
		_ = t.b.Close()
		// If the store has failed, a change with an unknown outcome may still become visible, so that even "nothing
		// to delete" would promise too much.
		return t.s.writable(op, name)
	}
	held, err := t.s.quotas.reserve(op, name, t.bk, growthOf(t.delta))
	if err != nil {
		_ = t.b.Close()
		return err
	}
	ended := func(error) {}
	if len(t.entries) > 0 {
		if ended = t.s.journal.begin(t); t.err != nil {
			ended(t.err)
			held.settle(func() {})
			_ = t.b.Close()
			return errs.Wrap(op, name, t.err)
		}
	}
	err = t.s.apply(op, name, t.b, func() {
		ended(nil)
		held.settle(func() { t.bk.count(t.delta) })
		t.s.sweeper.freed.Add(t.freed)
		t.s.sweeper.changes.Add(1)
		t.s.remover.add(t.gone...)
		if t.then != nil {
			t.then()
		}
	})
	if err != nil && !fence.IsUnsure(err) { // after an unsure error, the change may still be made and counted
		ended(err)
		held.settle(func() {})
	}
	return err
}

// cancel discards the change.
func (t *tx) cancel() { _ = t.b.Close() }

// putCurrent writes v as the current version of key.
func (t *tx) putCurrent(key string, v *record.Version) {
	t.set(record.ObjectKey(t.bk.id, key), v.Encode())
	t.delta.Hold(v, true, 1)
}

// takeCurrent removes the record of v as the current version; its content stays.
func (t *tx) takeCurrent(key string, v *record.Version) {
	t.del(record.ObjectKey(t.bk.id, key))
	t.delta.Hold(v, true, -1)
}

// putOld writes v among the noncurrent versions and delete markers.
func (t *tx) putOld(key string, v *record.Version) {
	t.set(record.VersionKey(t.bk.id, key, v.Seq), v.Encode())
	if v.Null() {
		t.set(record.NullKey(t.bk.id, key), binary.BigEndian.AppendUint64(nil, v.Seq))
	}
	t.delta.Hold(v, false, 1)
}

// takeOld removes v from the noncurrent versions; its content stays.
func (t *tx) takeOld(key string, v *record.Version) {
	t.del(record.VersionKey(t.bk.id, key, v.Seq))
	if v.Null() {
		t.del(record.NullKey(t.bk.id, key))
	}
	t.delta.Hold(v, false, -1)
}

// retire makes the current version a noncurrent one.
func (t *tx) retire(key string, v *record.Version) {
	t.takeCurrent(key, v)
	t.putOld(key, v)
}

// promote makes a noncurrent version the current one.
func (t *tx) promote(key string, v *record.Version) {
	t.takeOld(key, v)
	t.putCurrent(key, v)
}

// putContent writes the records that belong to a new version.
func (t *tx) putContent(key string, v *record.Version, inline []byte, sums []uint64, parts []object.PartInfo) {
	if v.Inline() {
		t.set(record.DataKey(v.Seq), inline)
	}
	if v.File != 0 {
		t.own(v.File, record.Owner{Bucket: t.bk.id, Key: key, Seq: v.Seq, Part: -1})
		t.putSums(v, sums)
	}
	if len(parts) > 0 {
		v.Flags |= record.FlagParts
		t.set(record.PartsKey(v.Seq), record.EncodeParts(parts))
	}
}

// putSums stores few sums in the record, and many in chunks of their own.
func (t *tx) putSums(v *record.Version, sums []uint64) {
	if len(sums) <= record.SumsInRecord {
		v.Sums = sums
		return
	}
	for i := 0; i*record.SumsPerChunk < len(sums); i++ {
		some := sums[i*record.SumsPerChunk : min((i+1)*record.SumsPerChunk, len(sums))]
		t.set(record.SumsKey(v.File, uint32(i)), record.EncodeSums(some))
	}
}

// own records the owner of a data file.
func (t *tx) own(file uint64, o record.Owner) { t.set(record.FileKey(file), o.Encode()) }

// dropContent removes the content of a version that is deleted.
func (t *tx) dropContent(v *record.Version) {
	if v.Inline() {
		t.del(record.DataKey(v.Seq))
		t.freed += v.Size
	}
	if v.Flags&record.FlagParts != 0 {
		t.del(record.PartsKey(v.Seq))
	}
	if v.File != 0 && t.dropFile(v.File, v.Seq) {
		t.dropSums(v)
	}
}

func (t *tx) dropSums(v *record.Version) {
	for i := range record.ChunksOf(v.Size) {
		t.del(record.SumsKey(v.File, uint32(i)))
	}
}

// dropFile puts a file of the version or the upload seq on the removal list; the file is removed when the change is
// durable. If the index names another owner, the file stays and dropFile returns false: one of the records is
// damaged, and removing the file might destroy the content of an intact object.
func (t *tx) dropFile(id, seq uint64) bool {
	b, err := metadb.Get(t.s.db, record.FileKey(id))
	if err != nil {
		if t.err == nil {
			t.err = err
		}
		return false
	}
	if o, err := record.DecodeOwner(b); err == nil && o.Seq != seq {
		t.s.background(errs.New(errs.Corrupt, "remove", t.s.files.Path(datafile.ID(id)),
			fmt.Sprintf("the file belongs to %q, and another object that was deleted named it too; it was kept", o.Key)).
			WithFix("stop the server and run nebulaio store check"))
		return false
	}
	t.del(record.FileKey(id))
	t.set(record.GoneKey(id), []byte{record.Format})
	t.gone = append(t.gone, datafile.ID(id))
	return true
}
