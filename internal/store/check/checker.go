// SPDX-License-Identifier: Apache-2.0

// Package check verifies the invariants of a stopped store, and repairs records that can be derived from other
// records.
//
// # Invariants
//
// In the invariants I1 to I8, a single letter is a kind of record as listed in package record. For example, an o record
// is a current version, and a v record is a noncurrent version.
//
//	I1  All versions of a key have different sequences; the sequence of o is above those of v.
//	I2  If a key has v records but no o record, its newest v record is a delete marker.
//	I3  An n record exists if and only if a null version is under v, and names it.
//	    A key has at most one null version.
//	I4  A version with content has exactly one of: a d record of its size, or a file.
//	    The file has at least the version's size, all sums, and an f record that names the version.
//	I5  Every f, d, q, c and p record belongs to a record that names it.
//	I6  Every file in data/ has an f or g record, or is the file of an upload; a file with g has no f.
//	I7  The marks are above all numbers in use.
//	I8  The counts in s equal the result of counting.
//
// # Repair
//
// Repair deletes nothing. Repair corrects records that can be derived from other records: file owners (f records), null
// versions (n), counts (s), and marks, which are limits above all assigned numbers (m). Repair also corrects records
// with copies in text files in the store's root: the UUID, the epoch (how often the store was opened) and the last
// clean close. Repair rebuilds an unreadable record of a bucket from the keys of the bucket's objects.
//
// Repair moves data files without an owner to quarantine/. Repair also moves records without an owner: inline content
// (d records), lists of parts (q), checksums (c), file owners (f) and parts (p). Repair moves nothing to quarantine/
// while a possible owner is damaged or missing: an unreadable record, an object without its file, or a missing bucket.
// Repair walks over the store twice: the first pass finds the damage that cannot be repaired, and the second pass makes
// the changes.
//
// The old value of a record is durable in quarantine/ before repair changes the record. A note about a file, with its
// old path, is durable before repair moves the file to quarantine/. If a file on the removal list still has an owner,
// repair and Open both keep the file.
package check

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// checker walks over a store once in the order of its keys, and collects the records that have to match each other.
type checker struct {
	ctx context.Context
	s   *Subject
	findings

	buckets map[uint64]*record.Counts // counted
	files   map[uint64]*claim         // by what has them
	data    map[uint64]inlined        // by sequence, for d
	parts   map[uint64]bool           // sequences with q
	uploads map[uint64]*record.Upload
	nulls   map[string]uint64 // NullKey of keys with a noncurrent null version
	pending map[uint64]int64  // files found in tmp/, and their sizes
	top     struct{ seq, file, bucket uint64 }
}

// claim is the owner of a file and what the file should be.
type claim struct {
	owner  record.Owner
	size   int64 // at least so long
	sums   int64 // keys under c
	crc    uint64
	joined uint64 // of the sums under c that were seen
	must   bool   // exists; the file of an upload without parts in place may not
	seen   bool   // found on disk
	index  bool   // found under f
}

// inlined is the size and the checksum that a version records for its inline content.
type inlined struct {
	size int64
	crc  uint64
}

func newChecker(ctx context.Context, s *Subject, o Options) *checker {
	k := &checker{
		ctx: ctx, s: s, findings: findings{o: o, called: map[uint64]string{}}, buckets: map[uint64]*record.Counts{},
		files: map[uint64]*claim{}, data: map[uint64]inlined{},
		parts: map[uint64]bool{}, uploads: map[uint64]*record.Upload{}, nulls: map[string]uint64{},
		pending: map[uint64]int64{},
	}
	k.report.UUID = s.UUID
	return k
}

func (k *checker) run() error {
	for _, step := range []func() error{
		k.itself, k.bucketRecords, k.versions, k.nullIndex, k.uploadRecords, k.partRecords, k.contents, k.partLists, k.sums,
		k.fileIndex, k.removals, k.disk, k.marks, k.counted, k.others, k.content,
	} {
		if err := step(); err != nil {
			return err
		}
		if err := k.ctx.Err(); err != nil {
			return errs.Wrap("check store", k.s.Dir, err)
		}
	}
	return nil
}

func (k *checker) each(kind byte, f func(key, value []byte) error) error {
	return metadb.EachKind(k.s.DB, kind, func(key, value []byte) error {
		k.report.Records++
		if k.report.Records%4096 == 0 {
			if k.o.Progress != nil {
				k.o.Progress(k.report.Records, k.report.Files)
			}
			if err := k.ctx.Err(); err != nil {
				return errs.Wrap("check store", k.s.Dir, err)
			}
		}
		return f(key, value)
	})
}

// claim records the owner of a file; a second owner is a problem.
func (k *checker) claim(id uint64, c claim) error {
	k.top.file = max(k.top.file, id)
	if other := k.files[id]; other != nil {
		return k.problem("I4", "file "+datafile.ID(id).String(),
			fmt.Sprintf("it belongs to %s and to %s", k.named(other.owner), k.named(c.owner)), nil)
	}
	k.files[id] = &c
	return nil
}

// itself reports the damaged records about the store itself, including metadata that seems older than the data. While
// this damage cannot be repaired, nothing is moved to quarantine: newer files would seem to have no owner.
func (k *checker) itself() error {
	for _, f := range k.s.Faults {
		var repair *mend
		if f.Right != nil {
			repair = change(f.Key, f.Right)
		}
		if err := k.problem(f.Invariant, f.What, f.Err.Error(), repair); err != nil {
			return err
		}
	}
	return nil
}
