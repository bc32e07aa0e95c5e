// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

// CheckOptions says what Check does beside looking.
type CheckOptions struct {
	// Repair puts right counts, indexes and marks that follow from the rest, and moves aside what nothing refers to. It
	// deletes nothing: files go to quarantine/, and records are written to a file there before they are changed. While
	// anything is wrong that repair cannot put right, a record that cannot be read say, nothing is moved aside: it might
	// belong to that.
	Repair bool
	// Unreadable makes Repair move aside damaged records of objects, uploads and parts too, after which what belonged to
	// them can be moved aside. Records of a newer version and records of buckets always stay.
	Unreadable bool
	// Content reads all content and compares it with its checksums, as Scrub does.
	Content bool
	// Progress hears from time to time how many records and files were looked at; nil is allowed.
	Progress func(records, files int64)
	// Reading hears from time to time how many bytes of content were read, with Content; nil is allowed.
	Reading func(bytes int64)
}

// Problem is an invariant that does not hold.
type Problem struct {
	// Invariant is I1 to I8, see the package comment; "record", "metadata" or "witness" for what cannot be read; "age" or "content".
	Invariant string
	What      string // on what: an object, a file, a record
	Msg       string
	Repaired  bool
	Did       string // what repair did, or why it did nothing; empty without Repair
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
	// Metadata are the files of the metadata. Where one of them is damaged, the invariants were not looked at.
	Metadata []MetaFile
	// Unfinished is work of a stopped store that the next Open does: files to be settled or removed. It is no problem.
	Unfinished int64
}

// MaxProblems bounds the problems that a report names.
const MaxProblems = 10000

// Check proves the invariants of a store that nobody has open; it takes the
// store's lock. It looks at every record and at the name and length of every
// file; it reads the content of files only with Content. Without Repair it changes nothing
// but the lock. An error means that it could not look; problems are in the report.
func Check(ctx context.Context, o Options, c CheckOptions) (report CheckReport, err error) {
	s, err := lockStopped("check store", o, c.Repair)
	if err != nil {
		return report, err
	}
	defer s.abandon()
	if damaged, err := s.checkMeta(ctx, c, &report); damaged || err != nil {
		return report, err
	}
	if err := s.openLocked(c.Repair); err != nil {
		return report, err
	}
	k := newChecker(ctx, s, c)
	k.report = report
	// The first look changes nothing. It tells whether everything that owns something is whole: only then it is known what
	// belongs to nobody.
	k.o.Repair, k.o.Content = false, c.Content && !c.Repair
	if err := k.run(); err != nil || !c.Repair {
		return k.report, err
	}
	second := newChecker(ctx, s, c)
	second.report = report
	second.doubt = k.suspect
	second.fix = &repairs{s: s, batch: s.db.NewBatch(), when: o.now()}
	if err := second.run(); err != nil {
		return second.report, err
	}
	return second.report, second.fix.flush()
}

func (o *Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// lockStopped takes the lock of a store that nobody has open, and opens nothing of it yet.
func lockStopped(op string, o Options, change bool) (*Store, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	s := newStore(o)
	s.stopped = true
	if _, err := o.FS.Stat(o.Dir); err != nil {
		return nil, wrapIO(op, o.Dir, err)
	}
	readOnly, err := s.takeLock()
	if err != nil {
		return nil, err
	}
	if readOnly != nil && change {
		s.abandon()
		return nil, readOnly
	}
	format, err := readNote(o.FS, o.FS.PathJoin(o.Dir, formatName))
	if err == nil && format == nil {
		err = errs.New(errs.NotFound, op, o.Dir, "is not a store: it has no "+formatName)
	}
	if err != nil {
		s.abandon()
		return nil, err
	}
	if change {
		s.closeUp()
	}
	return s, nil
}

// openLocked opens a store that lockStopped locked, for reading unless change is set. What makes Open refuse a store is an
// error here too, except metadata that seems older than the data: that is left in s.aged.
func (s *Store) openLocked(change bool) (err error) {
	if err := s.look(); err != nil {
		return err
	}
	if err := s.openMeta(!change); err != nil {
		return err
	}
	if change {
		if err := s.fence.reach.start(s.opts.Dir, s.uuid); err != nil {
			return err
		}
	}
	s.fence.armed.Store(true)
	if s.files == nil {
		if s.files, err = datafile.Open(s.fileOptions(true)); err != nil {
			return err
		}
	}
	if change {
		return s.files.BeginWrites()
	}
	return nil
}

// openStopped is lockStopped and openLocked.
func openStopped(op string, o Options, change bool) (*Store, error) {
	s, err := lockStopped(op, o, change)
	if err != nil {
		return nil, err
	}
	if err := s.openLocked(change); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

// checker walks over a store once in the order of its keys, and gathers what has to fit together.
type checker struct {
	ctx    context.Context
	s      *Store
	o      CheckOptions
	report CheckReport
	fix    *repairs // nil without Repair

	// suspect is the first problem that repair cannot put right: what seems to belong to nobody may belong to that. doubt
	// is what the first look left in suspect.
	suspect, doubt string

	buckets map[uint64]*counts // counted
	files   map[uint64]*claim  // by what has them
	data    map[uint64]inlined // by sequence, for d
	parts   map[uint64]bool    // sequences with q
	uploads map[uint64]*upload
	nulls   map[string]uint64 // versionPrefix of keys with a noncurrent null version
	pending map[uint64]int64  // files found in tmp/, and their sizes
	top     struct{ seq, file, bucket uint64 }
}

// claim is who has a file.
type claim struct {
	owner  owner
	size   int64 // at least so long
	sums   int64 // keys under c
	crc    uint64
	joined uint64 // of the sums under c that were seen
	must   bool   // exists; the file of an upload without parts in place may not
	seen   bool   // found on disk
	index  bool   // found under f
}

// inlined is what a version says of content that lies with the metadata.
type inlined struct {
	size int64
	crc  uint64
}

func newChecker(ctx context.Context, s *Store, o CheckOptions) *checker {
	s.buckets = map[string]*bucket{}
	k := &checker{
		ctx: ctx, s: s, o: o, buckets: map[uint64]*counts{}, files: map[uint64]*claim{}, data: map[uint64]inlined{},
		parts: map[uint64]bool{}, uploads: map[uint64]*upload{}, nulls: map[string]uint64{}, pending: map[uint64]int64{},
	}
	k.report.UUID = s.uuid
	return k
}

func (k *checker) run() error {
	for _, step := range []func() error{
		k.age, k.bucketRecords, k.versions, k.nullIndex, k.uploadRecords, k.partRecords, k.contents, k.partLists, k.sums,
		k.fileIndex, k.removals, k.disk, k.marks, k.counted, k.others, k.content,
	} {
		if err := step(); err != nil {
			return err
		}
		if err := k.ctx.Err(); err != nil {
			return errs.Wrap("check store", k.s.opts.Dir, err)
		}
	}
	return nil
}

// problem notes a broken invariant; repair, where given and asked for, puts it right.
func (k *checker) problem(invariant, what, msg string, repair *mend) error {
	p := Problem{Invariant: invariant, What: what, Msg: msg}
	if repair == nil && k.suspect == "" {
		k.suspect = what + ": " + msg
	}
	switch {
	case k.fix == nil:
	case repair == nil:
		p.Did = "left as it is"
	case repair.sure && k.doubt != "":
		p.Did = "kept, for it may belong to what is damaged: " + k.doubt
	default:
		did, err := repair.do(k.fix, what, msg)
		if err != nil {
			return err
		}
		if p.Did = did.text; did.done {
			p.Repaired = true
			k.report.Repaired++
		}
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

// unreadable notes a record that cannot be decoded. It is left alone, unless it is damaged and may be moved aside.
func (k *checker) unreadable(key []byte, err error) error {
	var repair *mend
	if k.o.Unreadable && errs.KindOf(err) == errs.Corrupt && key[0] != kindBucket {
		repair = change(key, nil)
	}
	return k.problem("record", k.describe(key), err.Error(), repair)
}

// describe says in words what a key is the key of.
func (k *checker) describe(key []byte) string {
	id, _ := numberOf(key)
	switch key[0] {
	case kindBucket:
		return fmt.Sprintf("bucket %q", key[1:])
	case kindObject:
		if len(key) > 9 {
			return fmt.Sprintf("%s/%q", k.s.bucketName(id), key[9:])
		}
	case kindVersion:
		if name, seq, ok := splitVersionKey(key); ok {
			return fmt.Sprintf("%s/%q noncurrent version %d", k.s.bucketName(id), name, seq)
		}
	case kindUpload:
		if name, _, ok := splitUploadKey(key); ok {
			return fmt.Sprintf("upload of %s/%q", k.s.bucketName(id), name)
		}
	}
	return fmt.Sprintf("record %q", key)
}

func (k *checker) named(o owner) string {
	name := fmt.Sprintf("%s/%q", k.s.bucketName(o.bucket), o.key)
	switch {
	case o.part == 0:
		return "an upload of " + name
	case o.part > 0:
		return fmt.Sprintf("part %d of an upload of %s", o.part, name)
	}
	return fmt.Sprintf("%s, version %d", name, o.seq)
}

// claim says who has a file; two who have one is a problem.
func (k *checker) claim(id uint64, c claim) error {
	k.top.file = max(k.top.file, id)
	if other := k.files[id]; other != nil {
		return k.problem("I4", "file "+datafile.ID(id).String(), fmt.Sprintf("it belongs to %s and to %s", k.named(other.owner), k.named(c.owner)), nil)
	}
	k.files[id] = &c
	return nil
}

// age tells of metadata that seems older than the data. Newer files would seem to belong to nobody.
func (k *checker) age() error {
	if k.s.aged == nil {
		return nil
	}
	return k.problem("age", k.s.opts.Dir, k.s.aged.Error(), nil)
}

// bucketRecords reads the buckets.
func (k *checker) bucketRecords() error {
	return k.each(kindBucket, func(key, value []byte) error {
		name := string(key[1:])
		id, o, err := decodeBucket(name, value)
		if err == nil && (name == "" || len(name) > object.MaxKey) {
			err = badRecord("bucket key", key)
		}
		if err != nil {
			return k.unreadable(key, err)
		}
		k.top.bucket = max(k.top.bucket, id)
		if k.buckets[id] != nil {
			return k.problem("I5", fmt.Sprintf("bucket %q", name), fmt.Sprintf("it has the number of the bucket %q", k.s.bucketName(id)), nil)
		}
		k.buckets[id] = &counts{}
		b := &bucket{id: id}
		b.settings.Store(o)
		k.s.buckets[name] = b
		return nil
	})
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
		if k.parts[v.seq] {
			return k.problem("I1", name, fmt.Sprintf("another version has the sequence %d", v.seq), nil)
		}
		k.parts[v.seq] = true
	}
	switch {
	case v.size > datafile.MaxSize:
		return k.problem("I4", name, fmt.Sprintf("%d bytes, a file has at most %d", v.size, int64(datafile.MaxSize)), nil)
	case v.file != 0 && (v.inline() || v.size == 0), v.file == 0 && v.inline() != (v.size > 0):
		return k.problem("I4", name, fmt.Sprintf("%d bytes, file %d, inline %v", v.size, v.file, v.inline()), nil)
	case v.inline():
		if _, ok := k.data[v.seq]; ok {
			return k.problem("I1", name, fmt.Sprintf("another version has the sequence %d", v.seq), nil)
		}
		k.data[v.seq] = inlined{v.size, v.crc}
	case v.file != 0:
		chunks := chunksOf(v.size)
		if chunks == 0 && int64(len(v.sums)) != blocksOf(v.size) || chunks > 0 && len(v.sums) > 0 {
			if err := k.problem("I4", name, fmt.Sprintf("%d sums for %d bytes", len(v.sums), v.size), nil); err != nil {
				return err
			}
		} else if chunks == 0 && k.s.joined(v.sums, v.size) != v.crc {
			if err := k.problem("I4", name, fmt.Sprintf("the sums of its blocks do not make its checksum %016x", v.crc), nil); err != nil {
				return err
			}
		}
		return k.claim(v.file, claim{owner: owner{bucket: bucket, key: key, seq: v.seq, part: -1}, size: v.size, sums: chunks, crc: v.crc, must: true})
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
		if !ok || len(key) == 9 {
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
			return k.problem("I2", k.describe(key), "a delete marker is among the current versions", nil)
		}
		if c := k.buckets[bucket]; c != nil {
			c.hold(v, true, 1)
		} else if err := k.problem("I5", k.describe(key), "no bucket has this number", nil); err != nil {
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
		o.err = metaErr("", o.it.Error())
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
			return k.problem("I3", fmt.Sprintf("%q", key), "there is no such null version", aside(key))
		}
		if len(value) != 8 || binary.BigEndian.Uint64(value) != want {
			right := binary.BigEndian.AppendUint64(nil, want)
			repair := replace(key, right)
			if len(value) != 8 {
				repair = change(key, right) // it names nothing
			}
			return k.problem("I3", fmt.Sprintf("%q", key), fmt.Sprintf("names %x, the null version is %d", value, want), repair)
		}
		return nil
	})
	for key, seq := range k.nulls {
		if err == nil {
			err = k.problem("I3", fmt.Sprintf("%q", key), "the null version is not named", change([]byte(key), binary.BigEndian.AppendUint64(nil, seq)))
		}
	}
	return err
}
