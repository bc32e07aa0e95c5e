// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// tx gathers one change of a bucket: it becomes durable and visible whole, or
// not at all. The caller holds the locks of the keys it touches, and the
// bucket's for reading. The first error stays and is returned by commit.
type tx struct {
	s     *Store
	bk    *bucket
	b     *pebble.Batch
	delta counts
	gone  []datafile.ID
	freed int64  // bytes of records that are deleted, about
	then  func() // called when the change is durable
	err   error
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

// commit makes the change. See Store.apply for what an error means.
func (t *tx) commit(op, name string) error {
	if t.err == nil && t.delta != (counts{}) {
		t.err = t.b.Merge(countsKey(t.bk.id), t.delta.encode(), nil)
	}
	if t.err != nil {
		_ = t.b.Close()
		return errs.Wrap(op, name, t.err)
	}
	if t.b.Empty() {
		_ = t.b.Close()
		// Where the store has failed, a change whose outcome is not known may still come to light, so that even
		// "nothing to delete" would be a promise too much.
		return t.s.writable(op, name)
	}
	return t.s.apply(op, name, t.b, func() {
		t.bk.count(t.delta)
		t.s.sweeper.freed.Add(t.freed)
		t.s.sweeper.changes.Add(1)
		t.s.remover.add(t.gone...)
		if t.then != nil {
			t.then()
		}
	})
}

// cancel gives up the change.
func (t *tx) cancel() { _ = t.b.Close() }

// putCurrent writes v as the current version of key.
func (t *tx) putCurrent(key string, v *version) {
	t.set(objectKey(t.bk.id, key), v.encode())
	t.delta.hold(v, true, 1)
}

// takeCurrent takes v, the current version, out of its place; its content stays.
func (t *tx) takeCurrent(key string, v *version) {
	t.del(objectKey(t.bk.id, key))
	t.delta.hold(v, true, -1)
}

// putOld writes v among the noncurrent versions and delete markers.
func (t *tx) putOld(key string, v *version) {
	t.set(versionKey(t.bk.id, key, v.seq), v.encode())
	if v.null() {
		t.set(nullKey(t.bk.id, key), binary.BigEndian.AppendUint64(nil, v.seq))
	}
	t.delta.hold(v, false, 1)
}

// takeOld takes v out from among them; its content stays.
func (t *tx) takeOld(key string, v *version) {
	t.del(versionKey(t.bk.id, key, v.seq))
	if v.null() {
		t.del(nullKey(t.bk.id, key))
	}
	t.delta.hold(v, false, -1)
}

// retire makes the current version a noncurrent one.
func (t *tx) retire(key string, v *version) {
	t.takeCurrent(key, v)
	t.putOld(key, v)
}

// promote makes a noncurrent version the current one.
func (t *tx) promote(key string, v *version) {
	t.takeOld(key, v)
	t.putCurrent(key, v)
}

// putContent writes what belongs to a new version beside its record.
func (t *tx) putContent(key string, v *version, inline []byte, sums []uint64, parts []object.PartInfo) {
	if v.inline() {
		t.set(dataKey(v.seq), inline)
	}
	if v.file != 0 {
		t.own(v.file, owner{bucket: t.bk.id, key: key, seq: v.seq, part: -1})
		t.putSums(v, sums)
	}
	if len(parts) > 0 {
		v.flags |= flagParts
		t.set(partsKey(v.seq), encodeParts(parts))
	}
}

// putSums keeps few sums in the record and many beside it.
func (t *tx) putSums(v *version, sums []uint64) {
	if len(sums) <= sumsInRecord {
		v.sums = sums
		return
	}
	for i := 0; i*sumsPerChunk < len(sums); i++ {
		p := make(put, 0, 1+8*sumsPerChunk)
		p.byte(recordVersion)
		p.rawWords(sums[i*sumsPerChunk : min((i+1)*sumsPerChunk, len(sums))])
		t.set(sumsKey(v.file, uint32(i)), p)
	}
}

// own notes whose a file is.
func (t *tx) own(file uint64, o owner) { t.set(fileKey(file), o.encode()) }

// dropContent gives up the content of a version whose record is taken away.
func (t *tx) dropContent(v *version) {
	if v.inline() {
		t.del(dataKey(v.seq))
		t.freed += v.size
	}
	if v.flags&flagParts != 0 {
		t.del(partsKey(v.seq))
	}
	if v.file != 0 && t.dropFile(v.file, v.seq) {
		t.dropSums(v)
	}
}

func (t *tx) dropSums(v *version) {
	for i := range chunksOf(v.size) {
		t.del(sumsKey(v.file, uint32(i)))
	}
}

// dropFile puts a file of the version or the upload seq on the removal list; it is removed when the change is durable. A file
// that belongs to another one by the index stays, and dropFile says false: one of the records is damaged, and to remove the file
// might take the content of an object that is whole.
func (t *tx) dropFile(id, seq uint64) bool {
	b, err := get(t.s.db, fileKey(id))
	if err != nil {
		if t.err == nil {
			t.err = err
		}
		return false
	}
	if o, err := decodeOwner(b); err == nil && o.seq != seq {
		t.s.background(errs.New(errs.Corrupt, "remove", t.s.files.Path(datafile.ID(id)),
			fmt.Sprintf("the file belongs to %q, and another object that was deleted named it too; it was kept", o.key)).
			WithFix("stop the server and run nebulaio store check"))
		return false
	}
	t.del(fileKey(id))
	t.set(goneKey(id), []byte{recordVersion})
	t.gone = append(t.gone, datafile.ID(id))
	return true
}

// blocksOf is how many blocks, and sums, size bytes have.
func blocksOf(size int64) int64 { return (size + blockSize - 1) / blockSize }

// chunksOf is how many keys the sums of size bytes take, 0 where they are in the record.
func chunksOf(size int64) int64 {
	n := blocksOf(size)
	if n <= sumsInRecord {
		return 0
	}
	return (n + sumsPerChunk - 1) / sumsPerChunk
}

// loadSums reads the sums of a version's file.
func loadSums(r pebble.Reader, v *version) ([]uint64, error) {
	chunks := chunksOf(v.size)
	if chunks == 0 {
		return v.sums, nil
	}
	sums := make([]uint64, 0, min(blocksOf(v.size), sumsPerChunk))
	for i := range chunks {
		b, err := get(r, sumsKey(v.file, uint32(i)))
		if err != nil {
			return nil, err
		}
		t := take{b: b}
		if t.byte() != recordVersion || len(t.b)%8 != 0 || len(t.b) > 8*sumsPerChunk {
			return nil, badRecord("sums", b)
		}
		for len(t.b) > 0 {
			sums = append(sums, t.word())
		}
	}
	if int64(len(sums)) != blocksOf(v.size) {
		return nil, errs.New(errs.Corrupt, "read metadata", datafile.ID(v.file).String(), "the sums of the file are not all there")
	}
	return sums, nil
}
