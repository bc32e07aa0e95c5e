// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// findings are the problems that one pass over a store found, and what repair does about them.
type findings struct {
	o      Options
	report Report
	fix    *repairs // nil without Repair

	// suspect is the first problem that repair cannot correct: files and records without an owner may belong to the
	// damaged record. doubt is the suspect of the first pass.
	suspect, doubt string

	called map[uint64]string // the names of buckets by their numbers
}

// problem reports a violated invariant. If repair is not nil and repairs were requested, repair corrects it.
func (k *findings) problem(invariant, what, msg string, repair *mend) error {
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
		p.Did, p.Repaired = did.text, did.done
	}
	k.report.add(p)
	return nil
}

// unreadable reports a record that cannot be decoded. The record stays, unless it is damaged and Unreadable allows
// the move.
func (k *findings) unreadable(key []byte, err error) error {
	var repair *mend
	if k.o.Unreadable && errs.KindOf(err) == errs.Corrupt && key[0] != record.KindBucket {
		repair = change(key, nil)
	}
	return k.problem("record", k.describe(key), err.Error(), repair)
}

// bucketName returns the name of the bucket with this number, or the number if there is no such bucket.
func (k *findings) bucketName(id uint64) string {
	if name, ok := k.called[id]; ok {
		return name
	}
	return "#" + datafile.ID(id).String()
}

// describe returns a readable description of a key.
func (k *findings) describe(key []byte) string {
	id, _ := record.NumberOf(key)
	switch key[0] {
	case record.KindBucket:
		return fmt.Sprintf("bucket %q", key[1:])
	case record.KindObject:
		if len(key) > 9 {
			return fmt.Sprintf("%s/%q", k.bucketName(id), key[9:])
		}
	case record.KindVersion:
		if name, seq, ok := record.SplitVersionKey(key); ok {
			return fmt.Sprintf("%s/%q noncurrent version %d", k.bucketName(id), name, seq)
		}
	case record.KindUpload:
		if name, _, ok := record.SplitUploadKey(key); ok {
			return fmt.Sprintf("upload of %s/%q", k.bucketName(id), name)
		}
	}
	return fmt.Sprintf("record %q", key)
}

// named returns a readable description of a file's owner.
func (k *findings) named(o record.Owner) string {
	name := fmt.Sprintf("%s/%q", k.bucketName(o.Bucket), o.Key)
	switch {
	case o.Part == 0:
		return "an upload of " + name
	case o.Part > 0:
		return fmt.Sprintf("part %d of an upload of %s", o.Part, name)
	}
	return fmt.Sprintf("%s, version %d", name, o.Seq)
}
