// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// lastPlausibleVersion is the highest format version that a newer program may give a record. Versions go up one by
// one, so a higher one means a damaged byte.
const lastPlausibleVersion = 15

// spoiltBucket is the record of a bucket that cannot be read. Its name is in the key, which is intact.
type spoiltBucket struct {
	name  string
	value []byte
	err   error
}

// bucketRecords reads the buckets and rebuilds unreadable records, because a store with one of them does not open.
func (k *checker) bucketRecords() error {
	var spoilt []spoiltBucket
	err := k.each(record.KindBucket, func(key, value []byte) error {
		name := string(key[1:])
		id, o, err := record.DecodeBucket(name, value)
		if name == "" || len(name) > object.MaxKey {
			return k.unreadable(key, record.Unreadable("bucket key", key))
		}
		if err != nil && (errs.Is(err, errs.Corrupt) || len(value) > 0 && value[0] > lastPlausibleVersion) {
			spoilt = append(spoilt, spoiltBucket{name, bytes.Clone(value), err})
			return nil
		}
		if err != nil {
			return k.unreadable(key, err)
		}
		if k.buckets[id] != nil {
			k.top.bucket = max(k.top.bucket, id)
			return k.problem("I5", fmt.Sprintf("bucket %q", name),
				fmt.Sprintf("it has the number of the bucket %q", k.bucketName(id)), nil)
		}
		k.addBucket(id, o)
		return nil
	})
	if err != nil || len(spoilt) == 0 {
		return err
	}
	return bucketRepair{k}.rebuildBuckets(spoilt)
}

// addBucket records a bucket for the rest of the check.
func (k *checker) addBucket(id uint64, o *object.Bucket) {
	k.top.bucket = max(k.top.bucket, id)
	k.buckets[id] = &record.Counts{}
	k.called[id] = o.Name
}

// bucketRepair rebuilds unreadable bucket records.
type bucketRepair struct{ *checker }

// rebuildBuckets finds the numbers of buckets with unreadable records. All keys of a bucket's objects contain its
// number, so numbers that no other bucket has belong to the damaged records.
func (k bucketRepair) rebuildBuckets(spoilt []spoiltBucket) error {
	free, err := k.bucketsInUse()
	if err != nil {
		return err
	}
	take := func(id uint64) { free = slices.DeleteFunc(free, func(n uint64) bool { return n == id }) }
	var left []spoiltBucket
	for _, b := range spoilt {
		switch id, whole := b.whole(); {
		case whole != nil && k.buckets[id] == nil:
			take(id)
			k.addBucket(id, whole)
			err = k.problem("record", fmt.Sprintf("bucket %q", b.name), b.err.Error(),
				&mend{do: changeTo(record.BucketKey(b.name), record.EncodeBucket(id, whole),
					"its version was put right, and all its settings are kept")})
		case slices.Contains(free, b.number()):
			take(b.number())
			err = k.rebuild(b, b.number())
		default:
			left = append(left, b)
		}
		if err != nil {
			return err
		}
	}
	if len(left) == 1 && len(free) == 1 {
		// Only a bucket has counts. A number in the damaged key of an object has none.
		if counted, err := metadb.Has(k.s.DB, record.CountsKey(free[0])); counted || err != nil {
			if err != nil {
				return err
			}
			return k.rebuild(left[0], free[0])
		}
	}
	for _, b := range left {
		repair := &mend{do: changeTo(record.BucketKey(b.name), nil,
			"no object is known to be in it; the record was moved to "+layout.QuarantineName+
				"/, and the bucket can be made again")}
		if err := k.problem("record", fmt.Sprintf("bucket %q", b.name), b.err.Error(), repair); err != nil {
			return err
		}
	}
	if len(left) == 0 {
		return nil
	}
	// It is unknown which number belongs to which name. The objects get new buckets.
	for _, id := range free {
		b := spoiltBucket{name: fmt.Sprintf("recovered-%d", id)}
		b.err = errs.New(errs.Corrupt, "read metadata", b.name,
			fmt.Sprintf("the record of the bucket with the number %d cannot be read", id))
		if slices.Contains(slices.Collect(maps.Values(k.called)), b.name) {
			continue
		}
		if err := k.rebuild(b, id); err != nil {
			return err
		}
	}
	return nil
}

// rebuild gives a bucket a record with default settings: owned by root, private, and versioned if it has noncurrent
// versions.
func (k bucketRepair) rebuild(b spoiltBucket, id uint64) error {
	o := &object.Bucket{Name: b.name, Created: record.Time(k.s.Now().UnixMilli()), ETag: object.ETagMD5}
	objects, versioned, err := k.inBucket(id)
	if err != nil {
		return err
	}
	state := "off"
	if versioned {
		o.Versioning = object.VersioningEnabled
		state = "on"
	}
	k.addBucket(id, o)
	did := fmt.Sprintf("rebuilt with its %d objects and default settings: of root, private, versioning %s; set its "+
		"policy and its settings again; "+
		"what was there is in %s/", objects, state, layout.QuarantineName)
	return k.problem("record", fmt.Sprintf("bucket %q", b.name), b.err.Error(),
		&mend{do: changeTo(record.BucketKey(b.name), record.EncodeBucket(id, o), did)})
}

// number returns the bucket's number in a damaged record, or 0 if it has none.
func (b *spoiltBucket) number() uint64 {
	t := codec.Decoder{Rest: b.value}
	t.Byte()
	return t.Uint()
}

// whole decodes a record in which only the version byte is damaged; it returns nil if more is damaged.
func (b *spoiltBucket) whole() (uint64, *object.Bucket) {
	if len(b.value) == 0 {
		return 0, nil
	}
	v := bytes.Clone(b.value)
	v[0] = record.Format
	id, o, err := record.DecodeBucket(b.name, v)
	if err != nil || id == 0 || id > record.Plausible || o.ETag == "" || object.CheckBucket("check store", o) != nil {
		return 0, nil
	}
	return id, o
}

// bucketsInUse returns the numbers of buckets in the keys of objects, versions, uploads and counts that no readable
// bucket has. It seeks from number to number and reads no object.
func (k bucketRepair) bucketsInUse() ([]uint64, error) {
	var found []uint64
	for _, kind := range []byte{record.KindObject, record.KindVersion, record.KindUpload, record.KindCounts} {
		it, err := k.s.DB.NewIter(&pebble.IterOptions{LowerBound: []byte{kind}, UpperBound: []byte{kind + 1}})
		if err != nil {
			return nil, metadb.WrapRead("", err)
		}
		for ok := it.First(); ok; {
			id, good := record.NumberOf(it.Key())
			if good && k.buckets[id] == nil && id <= record.Plausible && !slices.Contains(found, id) {
				found = append(found, id)
			}
			if id >= record.Plausible {
				break // a damaged key; there is no number behind it
			}
			ok = it.SeekGE(record.Numbered(kind, id+1, 0))
		}
		if err := metadb.WrapRead("", it.Close()); err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	return found, nil
}

// inBucket counts the current versions of a bucket, and reports whether the bucket had versioning.
func (k bucketRepair) inBucket(id uint64) (objects int, versioned bool, err error) {
	err = metadb.Each(k.s.DB, record.Numbered(record.KindVersion, id, 0), record.Numbered(record.KindVersion, id+1, 0),
		func(_, _ []byte) error {
			versioned = true
			return metadb.ErrStop
		})
	if err != nil && err != metadb.ErrStop {
		return 0, false, err
	}
	err = metadb.Each(k.s.DB, record.Numbered(record.KindObject, id, 0), record.Numbered(record.KindObject, id+1, 0),
		func(_, value []byte) error {
			objects++
			if v, err := record.DecodeVersion(value, true); err == nil && !v.Null() {
				versioned = true
			}
			return nil
		})
	return objects, versioned, err
}
