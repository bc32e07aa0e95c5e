// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
)

// The first byte of every key is the kind of its record. The comment of package record lists the kinds of records.
const (
	KindBucket  = 'b'
	KindSums    = 'c'
	KindData    = 'd'
	KindFile    = 'f'
	KindGone    = 'g'
	KindJournal = 'j'
	KindMeta    = 'm'
	KindNull    = 'n'
	KindObject  = 'o'
	KindPart    = 'p'
	KindParts   = 'q'
	KindRecord  = 'r'
	KindCounts  = 's'
	KindUpload  = 'u'
	KindVersion = 'v'
)

// Escape appends name so that another field can follow in the key and the byte order of names is kept. Escape replaces
// 0x00 by 0x00 0xff. The caller of Escape appends the end mark 0x00 0x01, so that a name sorts before every longer name
// that begins with it.
func Escape(dst []byte, name string) []byte {
	for {
		i := indexZero(name)
		if i < 0 {
			return append(dst, name...)
		}
		dst = append(append(dst, name[:i]...), 0, 0xff)
		name = name[i+1:]
	}
}

func indexZero(s string) int {
	for i := range len(s) {
		if s[i] == 0 {
			return i
		}
	}
	return -1
}

// Unescape reads a name that Escape wrote up to its end mark, and returns the bytes after the end mark as rest.
func Unescape(key []byte) (name string, rest []byte, ok bool) {
	i := bytes.IndexByte(key, 0)
	if i < 0 || i+1 >= len(key) {
		return "", nil, false
	}
	if key[i+1] == 1 {
		return string(key[:i]), key[i+2:], true
	}
	var b []byte
	for {
		if key[i+1] == 1 {
			return string(append(b, key[:i]...)), key[i+2:], true
		}
		if key[i+1] != 0xff {
			return "", nil, false
		}
		b = append(append(b, key[:i]...), 0)
		key = key[i+2:]
		if i = bytes.IndexByte(key, 0); i < 0 || i+1 >= len(key) {
			return "", nil, false
		}
	}
}

// Numbered returns a key that consists of a kind and a number, with capacity for `more` further bytes.
func Numbered(kind byte, n uint64, more int) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9+more), kind), n)
}

// MetaKey returns the key of a record about the store itself.
func MetaKey(name string) []byte { return append([]byte{KindMeta}, name...) }

// BucketKey returns the key of a bucket's record.
func BucketKey(name string) []byte { return append([]byte{KindBucket}, name...) }

// CountsKey returns the key of a bucket's Counts.
func CountsKey(bucket uint64) []byte {
	return Numbered(KindCounts, bucket, 0)
}

// ObjectKey returns the key of the record of an object's current version.
func ObjectKey(bucket uint64, key string) []byte {
	return append(Numbered(KindObject, bucket, len(key)), key...)
}

// NullKey returns the key of the record that holds the sequence of an object's noncurrent null version.
func NullKey(bucket uint64, key string) []byte {
	return append(Numbered(KindNull, bucket, len(key)), key...)
}

// VersionPrefix returns the common prefix of the keys of all noncurrent versions of an object.
func VersionPrefix(bucket uint64, key string) []byte {
	return append(Escape(Numbered(KindVersion, bucket, len(key)+16), key), 0, 1)
}

// VersionKey returns the key of a noncurrent version. The key contains the inverted sequence, so that newer versions
// sort first.
func VersionKey(bucket uint64, key string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(VersionPrefix(bucket, key), ^seq)
}

// SplitVersionKey returns the object key and the sequence that VersionKey was called with. The number of the bucket is
// not returned, because the caller knows it.
func SplitVersionKey(k []byte) (key string, seq uint64, ok bool) {
	if len(k) < 9 {
		return "", 0, false
	}
	key, rest, ok := Unescape(k[9:])
	if !ok || len(rest) != 8 {
		return "", 0, false
	}
	return key, ^binary.BigEndian.Uint64(rest), true
}

// UploadPrefix returns the common prefix of the keys of all uploads of an object.
func UploadPrefix(bucket uint64, key string) []byte {
	return append(Escape(Numbered(KindUpload, bucket, len(key)+24), key), 0, 1)
}

// UploadKey returns the key of the record of a multipart upload.
func UploadKey(bucket uint64, key string, id [16]byte) []byte {
	return append(UploadPrefix(bucket, key), id[:]...)
}

// SplitUploadKey returns the object key and the upload identifier that UploadKey was called with. The number of the
// bucket is not returned, because the caller knows it.
func SplitUploadKey(k []byte) (key string, id [16]byte, ok bool) {
	if len(k) < 9 {
		return "", id, false
	}
	key, rest, ok := Unescape(k[9:])
	if !ok || len(rest) != len(id) {
		return "", id, false
	}
	copy(id[:], rest)
	return key, id, true
}

// PartKey returns the key of the record of one part of an upload.
func PartKey(upload uint64, number int) []byte {
	return binary.BigEndian.AppendUint16(Numbered(KindPart, upload, 2), uint16(number))
}

// Key returns the key of a record that another package keeps in the store, such as an account.
func Key(kind, name string) []byte {
	return append(append(Escape([]byte{KindRecord}, kind), 0, 1), name...)
}

// DataKey returns the key of a version's inline content.
func DataKey(seq uint64) []byte { return Numbered(KindData, seq, 0) }

// PartsKey returns the key of the list of parts that a version was completed from.
func PartsKey(seq uint64) []byte { return Numbered(KindParts, seq, 0) }

// FileKey returns the key of the record that names the owner of a data file.
func FileKey(id uint64) []byte { return Numbered(KindFile, id, 0) }

// GoneKey returns the key of the record that puts a data file on the removal list.
func GoneKey(id uint64) []byte { return Numbered(KindGone, id, 0) }

// SumsKey returns the key of one chunk of a data file's checksums.
func SumsKey(id uint64, chunk uint32) []byte {
	return binary.BigEndian.AppendUint32(Numbered(KindSums, id, 4), chunk)
}

// NumberOf returns the 8-byte number that follows the kind in a key. NumberOf returns false if the key is too short.
func NumberOf(k []byte) (uint64, bool) {
	if len(k) < 9 {
		return 0, false
	}
	return binary.BigEndian.Uint64(k[1:]), true
}

// ExactNumber returns the number in a key that consists only of a kind and a number. ExactNumber returns false for a
// shorter or longer key.
func ExactNumber(k []byte) (uint64, bool) {
	n, ok := NumberOf(k)
	return n, ok && len(k) == 9
}

// After returns the first key that sorts after all keys with this prefix, or nil if there is none.
func After(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// Plausible is the limit above which a number in a record is taken for damage. A damaged record can contain any number,
// and the marks (limits above all assigned numbers) must not overflow.
const Plausible = 1 << 62
