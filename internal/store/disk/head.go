// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// current reads the current version of a key, or returns nil if it has none. A delete marker can only be current in a
// bucket that has, or had, versioning.
func (s *Store) current(bk *bucket, key string) (*record.Version, error) {
	return currentIn(s.db, bk.id, key, bk.settings.Load().Versioning != object.VersioningOff)
}

func currentIn(r pebble.Reader, bucket uint64, key string, versioned bool) (*record.Version, error) {
	b, closer, err := r.Get(record.ObjectKey(bucket, key))
	if err == nil {
		v, err := record.DecodeVersion(b, false)
		if e := closer.Close(); e != nil {
			return nil, metadb.WrapRead(key, e)
		}
		return v, err
	}
	if !errors.Is(err, pebble.ErrNotFound) {
		return nil, metadb.WrapRead(key, err)
	}
	if !versioned {
		return nil, nil
	}
	return newestOld(r, bucket, key, ^uint64(0))
}

// newestOld reads the newest noncurrent version or delete marker of a key with a sequence below `below`, or returns
// nil.
func newestOld(r pebble.Reader, bucket uint64, key string, below uint64) (*record.Version, error) {
	prefix := record.VersionPrefix(bucket, key)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: record.After(prefix)})
	if err != nil {
		return nil, metadb.WrapRead(key, err)
	}
	defer func() { _ = it.Close() }()
	if !it.SeekGE(binary.BigEndian.AppendUint64(prefix, ^below+1)) {
		return nil, metadb.WrapRead(key, it.Error())
	}
	b, err := it.ValueAndErr()
	if err != nil {
		return nil, metadb.WrapRead(key, err)
	}
	return record.DecodeVersion(b, false)
}

// oldAt reads the noncurrent version of a key with this sequence, or returns nil.
func oldAt(r pebble.Reader, bucket uint64, key string, seq uint64) (*record.Version, error) {
	b, err := metadb.Get(r, record.VersionKey(bucket, key, seq))
	if b == nil || err != nil {
		return nil, err
	}
	return record.DecodeVersion(b, false)
}

// oldNull reads the null version of a key if it is not the current one.
func oldNull(r pebble.Reader, bucket uint64, key string) (*record.Version, error) {
	b, err := metadb.Get(r, record.NullKey(bucket, key))
	if b == nil || err != nil {
		return nil, err
	}
	if len(b) != 8 {
		return nil, record.Unreadable("null version", b)
	}
	return oldAt(r, bucket, key, binary.BigEndian.Uint64(b))
}

// named reads the version with an identifier, or returns nil; head is the current version, or nil.
func (s *Store) named(bk *bucket, key, id string, head *record.Version) (*record.Version, error) {
	if id == object.NullVersion {
		if head != nil && head.Null() {
			return head, nil
		}
		return oldNull(s.db, bk.id, key)
	}
	raw, ok := record.ParseName(id)
	if !ok {
		return nil, nil
	}
	nonce, seq := s.names.Split(raw)
	v := head
	if head == nil || head.Seq != seq {
		var err error
		if v, err = oldAt(s.db, bk.id, key, seq); v == nil || err != nil {
			return nil, err
		}
	}
	if v.Nonce != nonce || v.Null() {
		return nil, nil
	}
	return v, nil
}

// resolve reads the version that ref names, under the key's lock. If the current version is a delete marker, resolve
// returns it with ErrNoSuchKey.
func (s *Store) resolve(op string, bk *bucket, ref object.Ref) (v *record.Version, latest bool, err error) {
	head, err := s.current(bk, ref.Key)
	if err != nil {
		return nil, false, err
	}
	if ref.Version == "" {
		switch {
		case head == nil:
			return nil, false, noKey(op, ref.Key, "")
		case head.Marker():
			return head, true, noKey(op, ref.Key, "it is deleted")
		}
		return head, true, nil
	}
	v, err = s.named(bk, ref.Key, ref.Version, head)
	if err != nil {
		return nil, false, err
	}
	if v == nil {
		return nil, false, object.Fail(op, ref.Key, object.ErrNoSuchVersion, ref.Version)
	}
	return v, head != nil && head.Seq == v.Seq, nil
}

// info returns the description of a version that callers see.
func (s *Store) info(bk *bucket, key string, v *record.Version, latest bool) object.Info {
	i := object.Info{
		Bucket: bk.settings.Load().Name, Key: key, Version: s.names.Version(v), Latest: latest, Marker: v.Marker(),
		ETag: v.ETag, Modified: record.Time(v.Modified), Attributes: v.Attrs,
	}
	i.Size, i.CRC64 = v.Shown()
	if v.Sealed() {
		i.Stored = v.Size
	}
	if i.Attributes == nil && !i.Marker {
		i.Attributes = map[string]string{}
	}
	return i
}

// fullInfo is info with the parts, which have a record of their own.
func (s *Store) fullInfo(bk *bucket, key string, v *record.Version, latest bool) (object.Info, error) {
	i := s.info(bk, key, v, latest)
	var err error
	i.Parts, err = loadParts(s.db, v)
	return i, err
}

func loadParts(r pebble.Reader, v *record.Version) ([]object.PartInfo, error) {
	if v.Flags&record.FlagParts == 0 {
		return nil, nil
	}
	b, err := metadb.Get(r, record.PartsKey(v.Seq))
	if err != nil {
		return nil, err
	}
	return record.DecodeParts(b)
}

// shownSize returns the size of a version that clients see.
func shownSize(v *record.Version) int64 {
	size, _ := v.Shown()
	return size
}

// holds checks a condition on a version; v is nil if there is none, and a delete marker counts as none.
func holds(op, key string, c object.Condition, v *record.Version) error {
	if c == (object.Condition{}) {
		return nil
	}
	if v == nil || v.Marker() {
		if c.IfMatch != "" || c.IfSize != nil || c.IfModified != nil {
			return noKey(op, key, "the condition needs an object")
		}
		return nil
	}
	fail := func(format string, args ...any) error {
		return object.Fail(op, key, object.ErrPrecondition, fmt.Sprintf(format, args...))
	}
	switch {
	case c.IfMatch != "" && c.IfMatch != "*" && c.IfMatch != v.ETag:
		return fail("ETag %q, expected %q", v.ETag, c.IfMatch)
	case c.IfNoneMatch == "*" || c.IfNoneMatch != "" && c.IfNoneMatch == v.ETag:
		return fail("ETag %q, expected none of %q", v.ETag, c.IfNoneMatch)
	case c.IfSize != nil && *c.IfSize != shownSize(v):
		return fail("size %d, expected %d", shownSize(v), *c.IfSize)
	case c.IfModified != nil && c.IfModified.Unix() != record.Time(v.Modified).Unix():
		return fail("modified %s, expected %s", record.Time(v.Modified).Format(time.RFC3339),
			c.IfModified.Format(time.RFC3339))
	}
	return nil
}
