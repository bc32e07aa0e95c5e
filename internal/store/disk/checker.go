// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
)

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
		k.itself, k.bucketRecords, k.versions, k.nullIndex, k.uploadRecords, k.partRecords, k.contents, k.partLists, k.sums,
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

// itself names the damaged records about the store itself. Metadata that seems older than the data is among them. While it
// cannot be put right nothing is moved aside: newer files would seem to belong to nobody.
func (k *checker) itself() error {
	for _, f := range k.s.faults {
		var repair *mend
		if f.right != nil {
			repair = change(f.key, f.right)
		}
		if err := k.problem(f.invariant, f.what, f.err.Error(), repair); err != nil {
			return err
		}
	}
	return nil
}
