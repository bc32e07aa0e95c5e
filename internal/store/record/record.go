// SPDX-License-Identifier: Apache-2.0

// Package record encodes the metadata of a store: its keys and its values. It does no I/O.
//
// # Keys
//
// A key begins with a letter for its kind. Numbers are big-endian: those of buckets, files and sequences have 8 bytes.
// A name that something follows is escaped (0x00 becomes 0x00 0xff) and ended by 0x00 0x01. So the order of keys is the
// order of the names' bytes. Every value begins with a version byte, 1, except numbers, which are 8 bytes.
//
//	b name                       a bucket: number, settings
//	o bucket name                the current version of a key, unless that is a delete marker
//	v bucket name/ ^sequence     a noncurrent version, or a delete marker; newest first
//	n bucket name                the sequence of the key's null version, where that is under v
//	d sequence                   content of a version that is kept with the metadata
//	q sequence                   the parts that a version was completed of
//	c file chunk4                sums of a file, 8192 each, where they are more than 8
//	f file                       the owner of a file: a version, an upload, or a part
//	g file                       a file without an owner, which is to be removed
//	u bucket name/ id16          an upload
//	p upload number2             a part
//	r kind/ name                 a record of others: accounts and settings
//	s bucket                     what the bucket holds, a sum that batches add to
//	m name                       uuid, epoch, closed, and the marks: files, sequences, buckets
//
// A version has one record and no copy of it. Its sequence is given out in ascending order under the lock of its key,
// and is never used twice. The sequence is hidden in the identifier that clients see, so a version is found by a point
// read.
package record

import (
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// Format is the first byte of every record.
const Format = 1

// What a version is.
const (
	FlagMarker = 1 << iota // a delete marker
	FlagNull               // the null version of its key
	FlagInline             // its content lies under DataKey(seq)
	FlagParts              // its parts lie under PartsKey(seq)
	// FlagDeclared says that a client wrote the content through the door and declared its sums. The server has not read
	// the content then: if the two differ later, the sums may have been wrong from the beginning.
	FlagDeclared
	flagsEnd // above all that are known
)

// BlockSize is what one sum is of; SumsInRecord is how many sums a record holds
// before they get keys of their own, SumsPerChunk how many each of those holds.
const (
	BlockSize    = 1 << 20
	SumsInRecord = 8
	SumsPerChunk = 8192
)

// Version is one version of an object, or a delete marker. Seq orders the
// versions of a key and names its content; it is never used twice.
type Version struct {
	Flags    byte
	Seq      uint64
	Nonce    uint64 // makes the identifier unguessable
	Modified int64  // Unix milliseconds
	Size     int64
	CRC      uint64
	ETag     string
	File     uint64   // 0: no file
	Sums     []uint64 // of the file's blocks, where they are at most SumsInRecord
	Attrs    map[string]string
}

// Marker says whether v is a delete marker.
func (v *Version) Marker() bool { return v.Flags&FlagMarker != 0 }

// Null says whether v is the null version of its key.
func (v *Version) Null() bool { return v.Flags&FlagNull != 0 }

// Inline says whether the content of v lies with the metadata.
func (v *Version) Inline() bool { return v.Flags&FlagInline != 0 }

// Wrong is the word for content of v that is not what its record says: what, or "declared" where a checksum that
// differs may be the mistake of the client that declared it.
func (v *Version) Wrong(what string) string {
	if what == "checksum" && v.Flags&FlagDeclared != 0 {
		return object.DamageDeclared
	}
	return what
}

// Encode is the record of v.
func (v *Version) Encode() []byte {
	p := make(codec.Encoder, 0, 96+8*len(v.Sums))
	p.Byte(Format)
	p.Byte(v.Flags)
	p.Uint(v.Seq)
	p.Word(v.Nonce)
	p.Int(v.Modified)
	if v.Marker() {
		return p
	}
	p.Uint(uint64(v.Size))
	p.Word(v.CRC)
	p.Text(v.ETag)
	p.Uint(v.File)
	p.Words(v.Sums)
	p.Pairs(v.Attrs)
	return p
}

// DecodeVersion reads a version; brief leaves out the sums and the attributes.
func DecodeVersion(b []byte, brief bool) (*Version, error) {
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "version"); err != nil {
		return nil, err
	}
	v := &Version{Flags: t.Byte(), Seq: t.Uint(), Nonce: t.Word(), Modified: t.Int()}
	if v.Flags >= flagsEnd {
		t.Bad = true
	}
	if !v.Marker() {
		v.Size = int64(t.Uint())
		v.CRC = t.Word()
		v.ETag = t.Text()
		v.File = t.Uint()
		if brief {
			if t.Bad || v.Size < 0 {
				return nil, Unreadable("version", b)
			}
			return v, nil
		}
		v.Sums = t.Words()
		v.Attrs = t.Pairs()
	}
	if !t.Done() || v.Size < 0 {
		return nil, Unreadable("version", b)
	}
	return v, nil
}

// checkVersion reads the first byte of a record and refuses one of a newer version.
func checkVersion(t *codec.Decoder, what string) error {
	if len(t.Rest) > 0 && t.Rest[0] > Format {
		return errs.New(errs.Unsupported, "read metadata", what,
			fmt.Sprintf("the record has version %d, expected %d", t.Rest[0], Format)).
			WithFix("use a newer nebulaio")
	}
	if t.Byte() != Format {
		t.Bad = true
	}
	return nil
}

// Unreadable is the error of a damaged record.
func Unreadable(what string, b []byte) error {
	n := min(len(b), 16)
	return errs.New(errs.Corrupt, "read metadata", what,
		fmt.Sprintf("a record of %d bytes that begins with %x cannot be read", len(b), b[:n])).
		WithFix("stop the server and run nebulaio store check")
}

// Owner is the owner of a data file: a version, an upload, or a part.
type Owner struct {
	Bucket uint64
	Key    string
	Seq    uint64 // of the version, or of the upload
	Part   int    // -1: a version's; 0: the upload's own file; else a side file of this part
}

// Encode is the record of o.
func (o *Owner) Encode() []byte {
	p := make(codec.Encoder, 0, 32+len(o.Key))
	p.Byte(Format)
	p.Uint(o.Bucket)
	p.Uint(o.Seq)
	p.Int(int64(o.Part))
	p.Text(o.Key)
	return p
}

// DecodeOwner reads what Encode wrote.
func DecodeOwner(b []byte) (*Owner, error) {
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "file"); err != nil {
		return nil, err
	}
	o := &Owner{Bucket: t.Uint(), Seq: t.Uint(), Part: int(t.Int()), Key: t.Text()}
	if !t.Done() || o.Part < -1 || o.Part > object.MaxParts {
		return nil, Unreadable("file", b)
	}
	return o, nil
}

// Time is the moment of Unix milliseconds.
func Time(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
