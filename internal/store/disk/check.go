// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// CheckOptions says what Check does beside looking.
type CheckOptions struct {
	// Repair moves files that nothing knows to quarantine/, and puts right counts,
	// indexes and leftovers that follow from the rest. It never deletes content, and invents none.
	Repair bool
	// Progress hears from time to time how many records and files were looked at; nil is allowed.
	Progress func(records, files int64)
}

// Problem is an invariant that does not hold.
type Problem struct {
	Invariant string // I1 to I8, see the package comment, or "record" for one that cannot be read
	What      string // on what: a key, a file
	Msg       string
	Repaired  bool
}

// CheckReport is what Check found.
type CheckReport struct {
	UUID     string
	Records  int64
	Versions int64
	Files    int64
	Bytes    int64
	Problems []Problem // at most MaxProblems; Found counts all
	Found    int64
	Repaired int64
	// Unfinished is work of a stopped store that the next Open does: files to be settled or removed. It is no problem.
	Unfinished int64
}

// MaxProblems bounds the problems that a report names.
const MaxProblems = 10000

// Check proves the invariants of a store that nobody has open; it takes the
// store's lock. It looks at every record and at the name and length of every
// file, and reads no content: see Scrub. Without Repair it changes nothing
// but the lock. An error means that it could not look; problems are in the report.
func Check(ctx context.Context, o Options, c CheckOptions) (report CheckReport, err error) {
	const op = "check store"
	if err := o.defaults(); err != nil {
		return report, err
	}
	s := newStore(o)
	if _, err := o.FS.Stat(o.Dir); err != nil {
		return report, wrapIO(op, o.Dir, err)
	}
	readOnly, err := s.takeLock()
	if err != nil {
		return report, err
	}
	defer s.abandon()
	if readOnly != nil && c.Repair {
		return report, readOnly
	}
	if format, err := readNote(o.FS, o.FS.PathJoin(o.Dir, formatName)); format == nil {
		if err == nil {
			err = errs.New(errs.NotFound, op, o.Dir, "is not a store: it has no "+formatName)
		}
		return report, err
	}
	if err := s.look(); err != nil {
		return report, err
	}
	if err := s.openMeta(!c.Repair); err != nil {
		return report, err
	}
	s.fence.armed.Store(true)
	if s.files == nil {
		if s.files, err = datafile.Open(s.fileOptions(true)); err != nil {
			return report, err
		}
	}
	if c.Repair {
		if err := s.files.BeginWrites(); err != nil {
			return report, err
		}
	}
	if err := s.loadBuckets(); err != nil {
		return report, err
	}
	k := newChecker(ctx, s, c)
	k.report.UUID = s.uuid
	err = k.run()
	return k.report, err
}

// checker walks over a store once in the order of its keys, and gathers what has to fit together.
type checker struct {
	ctx    context.Context
	s      *Store
	o      CheckOptions
	report CheckReport
	fix    *pebble.Batch

	buckets map[uint64]*counts // counted
	files   map[uint64]*claim  // by what has them
	data    map[uint64]int64   // size of content by sequence, for d
	parts   map[uint64]bool    // sequences with q
	uploads map[uint64]*upload
	nulls   map[string]uint64 // versionPrefix of keys with a noncurrent null version
	top     struct{ seq, file, bucket uint64 }
}

// claim is who has a file.
type claim struct {
	owner owner
	size  int64 // at least so long
	sums  int64 // keys under c
	must  bool  // exists; the file of an upload without parts in place may not
	seen  bool  // found on disk
	index bool  // found under f
}

func newChecker(ctx context.Context, s *Store, o CheckOptions) *checker {
	return &checker{
		ctx: ctx, s: s, o: o, buckets: map[uint64]*counts{}, files: map[uint64]*claim{}, data: map[uint64]int64{},
		parts: map[uint64]bool{}, uploads: map[uint64]*upload{}, nulls: map[string]uint64{},
	}
}

func (k *checker) run() error {
	if k.o.Repair {
		k.fix = k.s.db.NewBatch()
	}
	for _, b := range k.s.buckets {
		k.buckets[b.id] = &counts{}
		k.top.bucket = max(k.top.bucket, b.id)
	}
	for _, step := range []func() error{
		k.versions, k.nullIndex, k.uploadRecords, k.partRecords, k.contents, k.partLists, k.sums, k.fileIndex, k.removals, k.disk, k.marks, k.counted, k.others,
	} {
		if err := step(); err != nil {
			return err
		}
		if err := k.ctx.Err(); err != nil {
			return errs.Wrap("check store", k.s.opts.Dir, err)
		}
	}
	if k.fix == nil || k.fix.Empty() {
		return nil
	}
	return k.s.apply("repair store", k.s.opts.Dir, k.fix, nil)
}

// problem notes a broken invariant; repair, where given and asked for, puts it right.
func (k *checker) problem(invariant, what, msg string, repair func() error) error {
	p := Problem{Invariant: invariant, What: what, Msg: msg}
	if repair != nil && k.o.Repair {
		if err := repair(); err != nil {
			return err
		}
		p.Repaired = true
		k.report.Repaired++
	}
	k.report.Found++
	if len(k.report.Problems) < MaxProblems {
		k.report.Problems = append(k.report.Problems, p)
	}
	return nil
}

func (k *checker) each(kind byte, f func(key, value []byte) error) error {
	return k.s.each(kind, func(key, value []byte) error {
		k.report.Records++
		if k.report.Records%4096 == 0 {
			if k.o.Progress != nil {
				k.o.Progress(k.report.Records, k.report.Files)
			}
			if err := k.ctx.Err(); err != nil {
				return errs.Wrap("check store", k.s.opts.Dir, err)
			}
		}
		return f(key, value)
	})
}

// unreadable notes a record that cannot be decoded. It is left alone.
func (k *checker) unreadable(key []byte, err error) error {
	return k.problem("record", fmt.Sprintf("%q", key), err.Error(), nil)
}

// drop removes a record that belongs to nothing.
func (k *checker) drop(key []byte) func() error {
	key = bytes.Clone(key)
	return func() error { return k.fix.Delete(key, nil) }
}

func (k *checker) set(key, value []byte) func() error {
	return func() error { return k.fix.Set(key, value, nil) }
}

// claim says who has a file; two who have one is a problem.
func (k *checker) claim(id uint64, c claim) error {
	k.top.file = max(k.top.file, id)
	if other := k.files[id]; other != nil {
		return k.problem("I4", datafile.ID(id).String(), fmt.Sprintf("the file belongs to %+v and to %+v", other.owner, c.owner), nil)
	}
	k.files[id] = &c
	return nil
}

// version checks what one version says of itself.
func (k *checker) version(bucket uint64, key string, v *version) error {
	name := fmt.Sprintf("%s/%q %s", k.s.bucketName(bucket), key, k.s.names.version(v))
	k.report.Versions++
	k.top.seq = max(k.top.seq, v.seq)
	if v.marker() {
		if v.flags&(flagInline|flagParts) != 0 {
			return k.problem("I4", name, "a delete marker has content", nil)
		}
		return nil
	}
	k.report.Bytes += v.size
	if v.flags&flagParts != 0 {
		k.parts[v.seq] = true
	}
	switch {
	case v.file != 0 && (v.inline() || v.size == 0), v.file == 0 && v.inline() != (v.size > 0):
		return k.problem("I4", name, fmt.Sprintf("%d bytes, file %d, inline %v", v.size, v.file, v.inline()), nil)
	case v.inline():
		k.data[v.seq] = v.size
	case v.file != 0:
		chunks := chunksOf(v.size)
		if chunks == 0 && int64(len(v.sums)) != blocksOf(v.size) || chunks > 0 && len(v.sums) > 0 {
			if err := k.problem("I4", name, fmt.Sprintf("%d sums for %d bytes", len(v.sums), v.size), nil); err != nil {
				return err
			}
		}
		return k.claim(v.file, claim{owner: owner{bucket: bucket, key: key, seq: v.seq, part: -1}, size: v.size, sums: chunks, must: true})
	}
	return nil
}

// versions goes over current and noncurrent versions together, key by key.
func (k *checker) versions() error {
	it, err := k.s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kindVersion}, UpperBound: []byte{kindVersion + 1}})
	if err != nil {
		return errs.Wrap("check store", "", err)
	}
	defer func() { _ = it.Close() }()
	// The keys of v are in the order of bucket and name, as those of o are.
	old := &oldVersions{k: k, it: it}
	old.next(it.First())
	err = k.each(kindObject, func(key, value []byte) error {
		bucket, ok := numberOf(key)
		if !ok {
			return k.unreadable(key, badRecord("object key", key))
		}
		name := string(key[9:])
		for old.ok && (old.bucket < bucket || old.bucket == bucket && old.key < name) {
			if err := old.group(nil); err != nil {
				return err
			}
		}
		v, err := decodeVersion(value, false)
		if err != nil {
			return k.unreadable(key, err)
		}
		if v.marker() {
			return k.problem("I2", fmt.Sprintf("%q", key), "a delete marker is among the current versions", nil)
		}
		if c := k.buckets[bucket]; c != nil {
			c.hold(v, true, 1)
		} else if err := k.problem("I5", fmt.Sprintf("%q", key), "no bucket has this number", nil); err != nil {
			return err
		}
		if err := k.version(bucket, name, v); err != nil {
			return err
		}
		if old.ok && old.bucket == bucket && old.key == name {
			return old.group(v)
		}
		return nil
	})
	for err == nil && old.ok {
		err = old.group(nil)
	}
	if err == nil {
		err = old.err
	}
	return err
}

// oldVersions walks over noncurrent versions.
type oldVersions struct {
	k      *checker
	it     *pebble.Iterator
	ok     bool
	bucket uint64
	key    string
	seq    uint64
	err    error
}

func (o *oldVersions) next(ok bool) {
	for ; ok; ok = o.it.Next() {
		o.k.report.Records++
		var good bool
		if o.key, o.seq, good = splitVersionKey(o.it.Key()); good {
			o.bucket, _ = numberOf(o.it.Key())
			o.ok = true
			return
		}
		if o.err = o.k.unreadable(o.it.Key(), badRecord("version key", o.it.Key())); o.err != nil {
			break
		}
	}
	o.ok = false
	if o.err == nil {
		o.err = o.it.Error()
	}
}

// group checks the noncurrent versions of one key; head is its current one, or nil.
func (o *oldVersions) group(head *version) error {
	k, bucket, key := o.k, o.bucket, o.key
	name := fmt.Sprintf("%s/%q", k.s.bucketName(bucket), key)
	nulls := 0
	if head != nil && head.null() {
		nulls++
	}
	for first := true; o.ok && o.bucket == bucket && o.key == key; first = false {
		value, err := o.it.ValueAndErr()
		if err != nil {
			return err
		}
		v, err := decodeVersion(value, false)
		if err != nil {
			if err := k.unreadable(o.it.Key(), err); err != nil {
				return err
			}
			o.next(o.it.Next())
			continue
		}
		switch {
		case v.seq != o.seq:
			err = k.problem("I1", name, fmt.Sprintf("the version %d lies under the sequence %d", v.seq, o.seq), nil)
		case head != nil && head.seq <= v.seq:
			err = k.problem("I1", name, fmt.Sprintf("the current version %d is not above the version %d", head.seq, v.seq), nil)
		case head == nil && first && !v.marker():
			err = k.problem("I2", name, "the newest version is not the current one", nil)
		}
		if err != nil {
			return err
		}
		if c := k.buckets[bucket]; c != nil {
			c.hold(v, false, 1)
		} else if err := k.problem("I5", name, "no bucket has this number", nil); err != nil {
			return err
		}
		if v.null() {
			nulls++
			k.nulls[string(nullKey(bucket, key))] = v.seq
		}
		if err := k.version(bucket, key, v); err != nil {
			return err
		}
		o.next(o.it.Next())
	}
	if nulls > 1 {
		return k.problem("I3", name, fmt.Sprintf("%d null versions", nulls), nil)
	}
	return o.err
}

// nullIndex compares n with the null versions that were found.
func (k *checker) nullIndex() error {
	err := k.each(kindNull, func(key, value []byte) error {
		want, ok := k.nulls[string(key)]
		delete(k.nulls, string(key))
		if !ok {
			return k.problem("I3", fmt.Sprintf("%q", key), "there is no such null version", k.drop(key))
		}
		if len(value) != 8 || binary.BigEndian.Uint64(value) != want {
			return k.problem("I3", fmt.Sprintf("%q", key), fmt.Sprintf("names %x, the null version is %d", value, want),
				k.set(bytes.Clone(key), binary.BigEndian.AppendUint64(nil, want)))
		}
		return nil
	})
	for key, seq := range k.nulls {
		if err == nil {
			err = k.problem("I3", fmt.Sprintf("%q", key), "the null version is not named", k.set([]byte(key), binary.BigEndian.AppendUint64(nil, seq)))
		}
	}
	return err
}
