// SPDX-License-Identifier: Apache-2.0

package object

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// CheckKey returns ErrInvalidName if the key is empty or longer than MaxKey bytes.
func CheckKey(op, key string) error {
	if n := len(key); n < 1 || n > MaxKey {
		return Fail(op, key, ErrInvalidName, fmt.Sprintf("a key of %d bytes, expected 1 to %d", n, MaxKey))
	}
	return nil
}

// CheckAttributes returns ErrTooLarge if the names and values of the attributes together exceed MaxAttributes bytes.
func CheckAttributes(op, key string, attributes map[string]string) error {
	n := 0
	for k, v := range attributes {
		n += len(k) + len(v)
	}
	if n > MaxAttributes {
		return Fail(op, key, ErrTooLarge, fmt.Sprintf("attributes of %d bytes, expected at most %d", n, MaxAttributes))
	}
	return nil
}

// CheckNew returns the error of CheckKey or of CheckAttributes for an object that is about to be written.
func CheckNew(op, key string, attributes map[string]string) error {
	if err := CheckKey(op, key); err != nil {
		return err
	}
	return CheckAttributes(op, key, attributes)
}

// CheckBucket returns an error of kind Invalid if the kind of ETag or the versioning state of b is unknown. If b names
// no kind of ETag, CheckBucket sets ETagMD5, or ETagCRC64 for a directory bucket. CheckBucket refuses a directory
// bucket with MD5 ETags or versions, because appends cannot extend them.
func CheckBucket(op string, b *Bucket) error {
	dir := IsDirectory(b.Name)
	switch {
	case b.ETag == "" && dir:
		b.ETag = ETagCRC64
	case b.ETag == "":
		b.ETag = ETagMD5
	}
	if dir && (b.ETag == ETagMD5 || b.Versioning != VersioningOff) {
		return errs.New(errs.Invalid, op, b.Name, fmt.Sprintf("kind of ETag %q and versioning %q, expected %q and no "+
			"versioning in a directory bucket", b.ETag, b.Versioning, ETagCRC64))
	}
	if b.ETag != ETagMD5 && b.ETag != ETagCRC64 {
		return errs.New(errs.Invalid, op, b.Name,
			fmt.Sprintf("kind of ETag %q, expected %q or %q", b.ETag, ETagMD5, ETagCRC64))
	}
	switch b.Versioning {
	case VersioningOff, VersioningEnabled, VersioningSuspended:
		return nil
	}
	return errs.New(errs.Invalid, op, b.Name,
		fmt.Sprintf("versioning %q, expected %q or %q", b.Versioning, VersioningEnabled, VersioningSuspended))
}

// ChangedBucket applies the function change to a copy of a bucket's old settings and returns the copy. ChangedBucket
// keeps the name and the time of creation of the bucket. ChangedBucket returns an error if the new settings are invalid
// or turn versioning off again.
func ChangedBucket(op string, old *Bucket, change func(*Bucket) error) (*Bucket, error) {
	given := old.Clone()
	if err := change(&given); err != nil {
		return nil, err
	}
	b := given.Clone() // change may have kept the settings that it was given
	b.Name, b.Created = old.Name, old.Created
	if err := CheckBucket(op, &b); err != nil {
		return nil, err
	}
	if b.Versioning == VersioningOff && old.Versioning != VersioningOff {
		return nil, errs.New(errs.Invalid, op, old.Name, "versioning cannot be turned off again").WithFix("suspend it")
	}
	return &b, nil
}

// CheckOrder returns an error if the request lists no part, or lists part numbers that do not ascend.
func (c *Complete) CheckOrder(op string) error {
	if len(c.Parts) == 0 {
		return Fail(op, c.Key, ErrInvalidPart, "no part is named")
	}
	for i := 1; i < len(c.Parts); i++ {
		if c.Parts[i].Number <= c.Parts[i-1].Number {
			return Fail(op, c.Key, ErrPartOrder, fmt.Sprintf("part %d after %d", c.Parts[i].Number, c.Parts[i-1].Number))
		}
	}
	return nil
}

// CRC64ETag returns the ETag of content in a bucket with ETags of kind ETagCRC64.
func CRC64ETag(crc uint64, size int64, parts int) string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], crc)
	binary.BigEndian.PutUint64(raw[8:], uint64(size))
	var text [64]byte
	out := append(hex.AppendEncode(text[:0], raw[:]), '-')
	return string(strconv.AppendInt(out, int64(parts), 10))
}

// ETagOf returns the ETag of content that was written in one request.
func ETagOf(kind ETagKind, w Written) string {
	if kind == ETagCRC64 {
		return CRC64ETag(w.CRC64, w.Size, 1)
	}
	return fmt.Sprintf("%x", w.MD5)
}

// MergeAttributes returns a new map with the attributes of both maps. If both maps have a value for a name, the result
// has the value from the second map (the parameter more).
func MergeAttributes(base, more map[string]string) map[string]string {
	out := make(map[string]string, len(base)+len(more))
	maps.Copy(out, base)
	maps.Copy(out, more)
	return out
}

// FinishAttributes calls the function hook, if it is not nil, and returns the attributes in base together with those
// that hook returned.
func FinishAttributes[T any](op, key string, base map[string]string, hook func(T) (map[string]string, error),
	arg T) (map[string]string, error) {
	var more map[string]string
	if hook != nil {
		var err error
		if more, err = hook(arg); err != nil {
			return nil, err
		}
	}
	all := MergeAttributes(base, more)
	return all, CheckAttributes(op, key, all)
}

// Clone returns a copy of b that shares no memory with b.
func (b *Bucket) Clone() Bucket {
	c := *b
	c.Settings = make(map[string][]byte, len(b.Settings))
	for k, v := range b.Settings {
		c.Settings[k] = bytes.Clone(v)
	}
	return c
}

// Clone returns a copy of i that shares no memory with i.
func (i Info) Clone() Info {
	i.Attributes = maps.Clone(i.Attributes)
	i.Parts = CloneParts(i.Parts)
	return i
}

// CloneParts returns a copy of the list of parts that shares no memory with the list.
func CloneParts(parts []PartInfo) []PartInfo {
	parts = slices.Clone(parts)
	for k := range parts {
		parts[k].Attributes = maps.Clone(parts[k].Attributes)
	}
	return parts
}
