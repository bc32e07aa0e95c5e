// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
)

// The first byte of every key says what it is a key of. The package comment has the table.
const (
	KindBucket  = 'b'
	KindSums    = 'c'
	KindData    = 'd'
	KindFile    = 'f'
	KindGone    = 'g'
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

// Escape appends name so that the order of bytes stays and an end can follow:
// 0x00 becomes 0x00 0xff, and the end is 0x00 0x01, which sorts before all that could stand in its place.
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

// Unescape reads what Escape and an end wrote, and returns what follows the end.
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

// Numbered is a key of a kind and a number, with room for more bytes behind them.
func Numbered(kind byte, n uint64, more int) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9+more), kind), n)
}

// MetaKey is the key of something that the store says of itself.
func MetaKey(name string) []byte { return append([]byte{KindMeta}, name...) }

// BucketKey is the key of a bucket.
func BucketKey(name string) []byte { return append([]byte{KindBucket}, name...) }

// CountsKey is the key of what a bucket holds.
func CountsKey(bucket uint64) []byte {
	return Numbered(KindCounts, bucket, 0)
}

// ObjectKey is the key of the current version of an object.
func ObjectKey(bucket uint64, key string) []byte {
	return append(Numbered(KindObject, bucket, len(key)), key...)
}

// NullKey is the key of the sequence of a noncurrent null version.
func NullKey(bucket uint64, key string) []byte {
	return append(Numbered(KindNull, bucket, len(key)), key...)
}

// VersionPrefix is what all noncurrent versions of a key begin with.
func VersionPrefix(bucket uint64, key string) []byte {
	return append(Escape(Numbered(KindVersion, bucket, len(key)+16), key), 0, 1)
}

// VersionKey has the sequence inverted: newest first.
func VersionKey(bucket uint64, key string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(VersionPrefix(bucket, key), ^seq)
}

// SplitVersionKey is the reverse of VersionKey; the bucket is the caller's.
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

// UploadPrefix is what all uploads of a key begin with.
func UploadPrefix(bucket uint64, key string) []byte {
	return append(Escape(Numbered(KindUpload, bucket, len(key)+24), key), 0, 1)
}

// UploadKey is the key of an upload.
func UploadKey(bucket uint64, key string, id [16]byte) []byte {
	return append(UploadPrefix(bucket, key), id[:]...)
}

// SplitUploadKey is the reverse of UploadKey; the bucket is the caller's.
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

// PartKey is the key of a part of an upload.
func PartKey(upload uint64, number int) []byte {
	return binary.BigEndian.AppendUint16(Numbered(KindPart, upload, 2), uint16(number))
}

// Key is the key of a record of others.
func Key(kind, name string) []byte {
	return append(append(Escape([]byte{KindRecord}, kind), 0, 1), name...)
}

// DataKey is the key of content that lies with the metadata.
func DataKey(seq uint64) []byte { return Numbered(KindData, seq, 0) }

// PartsKey is the key of the list of parts that a version was completed of.
func PartsKey(seq uint64) []byte { return Numbered(KindParts, seq, 0) }

// FileKey is the key of the owner of a file.
func FileKey(id uint64) []byte { return Numbered(KindFile, id, 0) }

// GoneKey is the key of a file on the removal list.
func GoneKey(id uint64) []byte { return Numbered(KindGone, id, 0) }

// SumsKey is the key of one chunk of the sums of a file.
func SumsKey(id uint64, chunk uint32) []byte {
	return binary.BigEndian.AppendUint32(Numbered(KindSums, id, 4), chunk)
}

// NumberOf is the number that a key made by Numbered begins with.
func NumberOf(k []byte) (uint64, bool) {
	if len(k) < 9 {
		return 0, false
	}
	return binary.BigEndian.Uint64(k[1:]), true
}

// ExactNumber is the number of a key made by Numbered, of which nothing is missing and nothing left over.
func ExactNumber(k []byte) (uint64, bool) {
	n, ok := NumberOf(k)
	return n, ok && len(k) == 9
}

// After is the first key behind all that begin with prefix, or nil where there is none.
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

// Plausible bounds the numbers that a mark follows: a damaged record may name any number, and a mark must not overflow.
const Plausible = 1 << 62
