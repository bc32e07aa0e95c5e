// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// version checks one version by its own record.
func (k *checker) version(bucket uint64, key string, v *record.Version) error {
	name := fmt.Sprintf("%s/%q %s", k.bucketName(bucket), key, k.s.Names.Version(v))
	k.report.Versions++
	k.top.seq = max(k.top.seq, v.Seq)
	if v.Marker() {
		if v.Flags&(record.FlagInline|record.FlagParts) != 0 {
			return k.problem("I4", name, "a delete marker has content", nil)
		}
		return nil
	}
	k.report.Bytes += v.Size
	if v.Flags&record.FlagParts != 0 {
		if k.parts[v.Seq] {
			return k.problem("I1", name, fmt.Sprintf("another version has the sequence %d", v.Seq), nil)
		}
		k.parts[v.Seq] = true
	}
	switch {
	case v.Size > datafile.MaxSize:
		return k.problem("I4", name, fmt.Sprintf("%d bytes, a file has at most %d", v.Size, int64(datafile.MaxSize)), nil)
	case v.File != 0 && (v.Inline() || v.Size == 0), v.File == 0 && v.Inline() != (v.Size > 0):
		return k.problem("I4", name, fmt.Sprintf("%d bytes, file %d, inline %v", v.Size, v.File, v.Inline()), nil)
	case v.Inline():
		if _, ok := k.data[v.Seq]; ok {
			return k.problem("I1", name, fmt.Sprintf("another version has the sequence %d", v.Seq), nil)
		}
		k.data[v.Seq] = inlined{v.Size, v.CRC}
	case v.File != 0:
		chunks := record.ChunksOf(v.Size)
		if chunks == 0 && int64(len(v.Sums)) != record.BlocksOf(v.Size) || chunks > 0 && len(v.Sums) > 0 {
			if err := k.problem("I4", name, fmt.Sprintf("%d sums for %d bytes", len(v.Sums), v.Size), nil); err != nil {
				return err
			}
		} else if chunks == 0 && record.JoinSums(k.s.Join, v.Sums, v.Size) != v.CRC {
			if err := k.problem("I4", name, fmt.Sprintf("the sums of its blocks do not make its checksum %016x", v.CRC),
				nil); err != nil {
				return err
			}
		}
		return k.claim(v.File, claim{owner: record.Owner{Bucket: bucket, Key: key, Seq: v.Seq, Part: -1}, size: v.Size,
			sums: chunks, crc: v.CRC, must: true})
	}
	return nil
}

// versions walks over current and noncurrent versions together, key by key.
func (k *checker) versions() error {
	it, err := k.s.DB.NewIter(&pebble.IterOptions{LowerBound: []byte{record.KindVersion},
		UpperBound: []byte{record.KindVersion + 1}})
	if err != nil {
		return errs.Wrap("check store", "", err)
	}
	defer func() { _ = it.Close() }()
	// The keys of v are sorted by bucket and name, as those of o are.
	old := &oldVersions{k: k, it: it}
	old.next(it.First())
	err = k.each(record.KindObject, func(key, value []byte) error {
		bucket, ok := record.NumberOf(key)
		if !ok || len(key) == 9 {
			return k.unreadable(key, record.Unreadable("object key", key))
		}
		name := string(key[9:])
		for old.ok && (old.bucket < bucket || old.bucket == bucket && old.key < name) {
			if err := old.group(nil); err != nil {
				return err
			}
		}
		v, err := record.DecodeVersion(value, false)
		if err != nil {
			return k.unreadable(key, err)
		}
		if v.Marker() {
			return k.problem("I2", k.describe(key), "a delete marker is among the current versions", nil)
		}
		if c := k.buckets[bucket]; c != nil {
			c.Hold(v, true, 1)
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
		if o.key, o.seq, good = record.SplitVersionKey(o.it.Key()); good {
			o.bucket, _ = record.NumberOf(o.it.Key())
			o.ok = true
			return
		}
		if o.err = o.k.unreadable(o.it.Key(), record.Unreadable("version key", o.it.Key())); o.err != nil {
			break
		}
	}
	o.ok = false
	if o.err == nil {
		o.err = metadb.WrapRead("", o.it.Error())
	}
}

// group checks the noncurrent versions of one key; head is its current one, or nil.
func (o *oldVersions) group(head *record.Version) error {
	k, bucket, key := o.k, o.bucket, o.key
	name := fmt.Sprintf("%s/%q", k.bucketName(bucket), key)
	nulls := 0
	if head != nil && head.Null() {
		nulls++
	}
	for first := true; o.ok && o.bucket == bucket && o.key == key; first = false {
		value, err := o.it.ValueAndErr()
		if err != nil {
			return err
		}
		v, err := record.DecodeVersion(value, false)
		if err != nil {
			if err := k.unreadable(o.it.Key(), err); err != nil {
				return err
			}
			o.next(o.it.Next())
			continue
		}
		switch {
		case v.Seq != o.seq:
			err = k.problem("I1", name, fmt.Sprintf("the version %d lies under the sequence %d", v.Seq, o.seq), nil)
		case head != nil && head.Seq <= v.Seq:
			err = k.problem("I1", name, fmt.Sprintf("the current version %d is not above the version %d", head.Seq, v.Seq), nil)
		case head == nil && first && !v.Marker():
			err = k.problem("I2", name, "the newest version is not the current one", nil)
		}
		if err != nil {
			return err
		}
		if c := k.buckets[bucket]; c != nil {
			c.Hold(v, false, 1)
		} else if err := k.problem("I5", name, "no bucket has this number", nil); err != nil {
			return err
		}
		if v.Null() {
			nulls++
			k.nulls[string(record.NullKey(bucket, key))] = v.Seq
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

// nullIndex compares the n records with the null versions that were found.
func (k *checker) nullIndex() error {
	err := k.each(record.KindNull, func(key, value []byte) error {
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
			err = k.problem("I3", fmt.Sprintf("%q", key), "the null version is not named",
				change([]byte(key), binary.BigEndian.AppendUint64(nil, seq)))
		}
	}
	return err
}
