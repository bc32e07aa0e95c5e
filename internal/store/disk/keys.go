// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"encoding/binary"
)

// The first byte of every key says what it is a key of. The package comment has the table.
const (
	kindBucket  = 'b'
	kindSums    = 'c'
	kindData    = 'd'
	kindFile    = 'f'
	kindGone    = 'g'
	kindMeta    = 'm'
	kindNull    = 'n'
	kindObject  = 'o'
	kindPart    = 'p'
	kindParts   = 'q'
	kindRecord  = 'r'
	kindCounts  = 's'
	kindUpload  = 'u'
	kindVersion = 'v'
)

// escape appends name so that the order of bytes stays and an end can follow:
// 0x00 becomes 0x00 0xff, and the end is 0x00 0x01, which sorts before all that could stand in its place.
func escape(dst []byte, name string) []byte {
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

// unescape reads what escape and an end wrote, and returns what follows the end.
func unescape(key []byte) (name string, rest []byte, ok bool) {
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

func numbered(kind byte, n uint64, more int) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9+more), kind), n)
}

func metaKey(name string) []byte   { return append([]byte{kindMeta}, name...) }
func bucketKey(name string) []byte { return append([]byte{kindBucket}, name...) }
func countsKey(bucket uint64) []byte {
	return numbered(kindCounts, bucket, 0)
}

func objectKey(bucket uint64, key string) []byte {
	return append(numbered(kindObject, bucket, len(key)), key...)
}

func nullKey(bucket uint64, key string) []byte {
	return append(numbered(kindNull, bucket, len(key)), key...)
}

// versionPrefix is what all noncurrent versions of a key begin with.
func versionPrefix(bucket uint64, key string) []byte {
	return append(escape(numbered(kindVersion, bucket, len(key)+16), key), 0, 1)
}

// versionKey has the sequence inverted: newest first.
func versionKey(bucket uint64, key string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(versionPrefix(bucket, key), ^seq)
}

// splitVersionKey is the reverse of versionKey; the bucket is the caller's.
func splitVersionKey(k []byte) (key string, seq uint64, ok bool) {
	if len(k) < 9 {
		return "", 0, false
	}
	key, rest, ok := unescape(k[9:])
	if !ok || len(rest) != 8 {
		return "", 0, false
	}
	return key, ^binary.BigEndian.Uint64(rest), true
}

func uploadPrefix(bucket uint64, key string) []byte {
	return append(escape(numbered(kindUpload, bucket, len(key)+24), key), 0, 1)
}

func uploadKey(bucket uint64, key string, id [16]byte) []byte {
	return append(uploadPrefix(bucket, key), id[:]...)
}

func splitUploadKey(k []byte) (key string, id [16]byte, ok bool) {
	if len(k) < 9 {
		return "", id, false
	}
	key, rest, ok := unescape(k[9:])
	if !ok || len(rest) != len(id) {
		return "", id, false
	}
	copy(id[:], rest)
	return key, id, true
}

func partKey(upload uint64, number int) []byte {
	return binary.BigEndian.AppendUint16(numbered(kindPart, upload, 2), uint16(number))
}

func recordKey(kind, name string) []byte {
	return append(append(escape([]byte{kindRecord}, kind), 0, 1), name...)
}

func dataKey(seq uint64) []byte  { return numbered(kindData, seq, 0) }
func partsKey(seq uint64) []byte { return numbered(kindParts, seq, 0) }
func fileKey(id uint64) []byte   { return numbered(kindFile, id, 0) }
func goneKey(id uint64) []byte   { return numbered(kindGone, id, 0) }

func sumsKey(id uint64, chunk uint32) []byte {
	return binary.BigEndian.AppendUint32(numbered(kindSums, id, 4), chunk)
}

// numberOf is the number in a key made by numbered alone.
func numberOf(k []byte) (uint64, bool) {
	if len(k) < 9 {
		return 0, false
	}
	return binary.BigEndian.Uint64(k[1:]), true
}

// exactNumber is the number in a key made by numbered alone, of which nothing is missing and nothing left over.
func exactNumber(k []byte) (uint64, bool) {
	n, ok := numberOf(k)
	return n, ok && len(k) == 9
}

// after is the first key behind all that begin with prefix, or nil where there is none.
func after(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}
