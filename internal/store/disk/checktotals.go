// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/object"
)

// plausible bounds the numbers that a mark follows: a damaged record may name any number, and a mark must not overflow.
const plausible = 1 << 62

// marks checks that no number in use could be given out again.
func (k *checker) marks() error {
	for _, m := range []struct {
		n   *numbers
		top uint64
	}{{&k.s.fileIDs, k.top.file}, {&k.s.seqs, k.top.seq}, {&k.s.bucketIDs, k.top.bucket}} {
		b, err := get(k.s.db, m.n.key)
		if err != nil {
			return err
		}
		var mark uint64
		if len(b) == 8 {
			mark = binary.BigEndian.Uint64(b)
		}
		broken := b != nil && len(b) != 8 || mark > plausible
		if !broken && (m.top == 0 || mark > m.top) {
			continue
		}
		name, msg := "mark of "+string(m.n.key[1:]), fmt.Sprintf("the mark is %d (%d bytes), %d is in use", mark, len(b), m.top)
		var repair *mend
		if m.top < plausible {
			repair = change(m.n.key, binary.BigEndian.AppendUint64(nil, m.top+1+m.n.reserve))
		}
		if err := k.problem("I7", name, msg, repair); err != nil {
			return err
		}
	}
	return nil
}

// counted compares s with what was counted.
func (k *checker) counted() error {
	for id, want := range k.buckets {
		got, err := loadCounts(k.s.db, id)
		switch {
		case err != nil:
			err = k.problem("I8", "counts of "+k.s.bucketName(id), err.Error(), change(countsKey(id), want.encode()))
		case got != *want:
			err = k.problem("I8", "counts of "+k.s.bucketName(id), fmt.Sprintf("%+v, counted %+v", got, *want), replace(countsKey(id), want.encode()))
		}
		if err != nil {
			return err
		}
	}
	return k.each(kindCounts, func(key, _ []byte) error {
		id, ok := exactNumber(key)
		if !ok || k.buckets[id] == nil {
			return k.problem("I5", fmt.Sprintf("counts %q", key), "no bucket has this number", aside(key))
		}
		return nil
	})
}

// others checks what is left: records of others, what the store says of itself, and keys of no kind.
func (k *checker) others() error {
	known := []byte{kindBucket, kindSums, kindData, kindFile, kindGone, kindMeta, kindNull, kindObject, kindPart, kindParts, kindRecord, kindCounts, kindUpload, kindVersion}
	unknown := func(key, _ []byte) error {
		return k.problem("record", fmt.Sprintf("record %q", key), "it is of no kind that this program knows", nil)
	}
	for c := range 256 {
		if bytes.IndexByte(known, byte(c)) >= 0 {
			continue
		}
		from := []byte{byte(c)}
		if err := eachIn(k.s.db, from, after(from), unknown); err != nil {
			return err
		}
	}
	if err := k.each(kindMeta, func(key, value []byte) error {
		switch string(key[1:]) {
		case "uuid", "epoch", "closed", "files", "sequences", "buckets":
			return nil
		}
		return unknown(key, value)
	}); err != nil {
		return err
	}
	return k.each(kindRecord, func(key, value []byte) error {
		if _, name, ok := unescape(key[1:]); !ok || len(name) == 0 || len(name) > object.MaxKey || len(value) < 1 || value[0] != recordVersion {
			return k.unreadable(key, badRecord("record", value))
		}
		return nil
	})
}

// content reads all content, where that is asked for.
func (k *checker) content() error {
	if !k.o.Content {
		return nil
	}
	sc := &scrubber{s: k.s, ctx: k.ctx, still: true}
	var failed error
	sc.o.Progress = func(r ScrubReport, d *object.Damage) {
		if k.o.Reading != nil {
			k.o.Reading(r.Bytes)
		}
		if d == nil || failed != nil || d.What == object.DamageRecord {
			return // records were named before
		}
		where := "with the metadata"
		if d.File != "" {
			where = "in " + d.File
		}
		failed = k.problem("content", fmt.Sprintf("%s/%q %s", d.Bucket, d.Key, d.Version), fmt.Sprintf("%s: %d bytes at offset %d, %s", d.What, d.N, d.Off, where), nil)
	}
	if err := sc.run(); err != nil {
		return err
	}
	return failed
}
