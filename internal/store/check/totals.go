// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// marks checks that no number in use could be assigned again.
func (k *checker) marks() error {
	tops := map[string]uint64{"files": k.top.file, "sequences": k.top.seq, "buckets": k.top.bucket}
	for _, m := range k.s.Marks {
		top := tops[string(m.Key[1:])]
		b, err := metadb.Get(k.s.DB, m.Key)
		if err != nil {
			return err
		}
		var mark uint64
		if len(b) == 8 {
			mark = binary.BigEndian.Uint64(b)
		}
		broken := b != nil && len(b) != 8 || mark > record.Plausible
		if !broken && (top == 0 || mark > top) {
			continue
		}
		name, msg := "mark of "+string(m.Key[1:]), fmt.Sprintf("the mark is %d (%d bytes), %d is in use", mark, len(b), top)
		var repair *mend
		if top < record.Plausible {
			repair = change(m.Key, binary.BigEndian.AppendUint64(nil, top+1+m.Reserve))
		}
		if err := k.problem("I7", name, msg, repair); err != nil {
			return err
		}
	}
	return nil
}

// counted compares the s records with the result of counting.
func (k *checker) counted() error {
	for id, want := range k.buckets {
		got, err := metadb.LoadCounts(k.s.DB, id)
		switch {
		case err != nil:
			err = k.problem("I8", "counts of "+k.bucketName(id), err.Error(), change(record.CountsKey(id), want.Encode()))
		case got != *want:
			err = k.problem("I8", "counts of "+k.bucketName(id), fmt.Sprintf("%+v, counted %+v", got, *want),
				replace(record.CountsKey(id), want.Encode()))
		}
		if err != nil {
			return err
		}
	}
	return k.each(record.KindCounts, func(key, _ []byte) error {
		id, ok := record.ExactNumber(key)
		if !ok || k.buckets[id] == nil {
			return k.problem("I5", fmt.Sprintf("counts %q", key), "no bucket has this number", aside(key))
		}
		return nil
	})
}

// others checks the remaining records: those of other packages, those about the store itself, and keys of no kind.
func (k *checker) others() error {
	known := []byte{record.KindBucket, record.KindSums, record.KindData, record.KindFile, record.KindGone,
		record.KindJournal,
		record.KindMeta, record.KindNull, record.KindObject, record.KindPart, record.KindParts, record.KindRecord,
		record.KindCounts, record.KindUpload, record.KindVersion}
	unknown := func(key, _ []byte) error {
		return k.problem("record", fmt.Sprintf("record %q", key), "it is of no kind that this program knows", nil)
	}
	for c := range 256 {
		if bytes.IndexByte(known, byte(c)) >= 0 {
			continue
		}
		from := []byte{byte(c)}
		if err := metadb.Each(k.s.DB, from, record.After(from), unknown); err != nil {
			return err
		}
	}
	if err := k.each(record.KindMeta, func(key, value []byte) error {
		switch string(key[1:]) {
		case "uuid", "epoch", "closed", "files", "sequences", "buckets":
			return nil
		}
		return unknown(key, value)
	}); err != nil {
		return err
	}
	if err := k.each(record.KindJournal, func(key, value []byte) error {
		_, seq, ok := record.SplitJournalKey(key)
		if !ok {
			return k.unreadable(key, record.Unreadable("journal entry", value))
		}
		if _, err := record.DecodeJournal(seq, value); err != nil {
			return k.unreadable(key, err)
		}
		return nil
	}); err != nil {
		return err
	}
	return k.each(record.KindRecord, func(key, value []byte) error {
		if _, name, ok := record.Unescape(key[1:]); !ok || len(name) == 0 || len(name) > object.MaxKey || len(value) < 1 ||
			value[0] != record.Format {
			return k.unreadable(key, record.Unreadable("record", value))
		}
		return nil
	})
}

// content reads all content if that was requested.
func (k *checker) content() error {
	if !k.o.Content {
		return nil
	}
	var failed error
	tell := func(bytes int64, d *object.Damage) {
		if k.o.Reading != nil {
			k.o.Reading(bytes)
		}
		if d == nil || failed != nil || d.What == object.DamageRecord {
			return // records were named before
		}
		where := "with the metadata"
		if d.File != "" {
			where = "in " + d.File
		}
		failed = k.problem("content", fmt.Sprintf("%s/%q %s", d.Bucket, d.Key, d.Version),
			fmt.Sprintf("%s: %d bytes at offset %d, %s", d.What, d.N, d.Off, where), nil)
	}
	if err := k.s.Scrub(k.ctx, k.bucketName, tell); err != nil {
		return err
	}
	return failed
}
