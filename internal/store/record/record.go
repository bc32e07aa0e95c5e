// SPDX-License-Identifier: Apache-2.0

// Package record encodes and decodes the keys and values of a store's metadata. Package record does no I/O.
//
// # Keys
//
// A key begins with a letter for the kind of its record. Numbers in keys are big-endian. Numbers of buckets, files
// and sequences have 8 bytes. If a field follows a name, the name is escaped (0x00 becomes 0x00 0xff) and ended by
// 0x00 0x01. Escaped names keep their order, so keys sort by the bytes of the names in them. Every value begins with
// the format version byte 1, except plain numbers, which have 8 bytes.
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
//	j consumer/ sequence         a change that waits for a consumer of the journal
//	m name                       uuid, epoch, closed, and the marks: files, sequences, buckets
//
// Each version of an object has exactly one record. The sequence of a version is assigned in ascending order under the
// lock of its key, and is never used twice. The version identifier that clients see contains the sequence in hidden
// form, so that one read of one key finds the version.
package record

import (
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// Format is the format version, which is the first byte of every record.
const Format = 1

// The Flag constants are bits of Version.Flags.
const (
	FlagMarker = 1 << iota // the version is a delete marker
	FlagNull               // the version is the null version of its key
	FlagInline             // the version's content is stored under DataKey(seq)
	FlagParts              // the version's list of parts is stored under PartsKey(seq)
	// FlagDeclared means that a client wrote the content through the door and declared its checksums. The server has
	// not read content with declared checksums. If the content and its declared checksums differ later, the checksums
	// may have been wrong from the beginning.
	FlagDeclared
	FlagSealed // the content is encrypted; Plain and PlainCRC describe it before encryption
	flagsEnd   // above all known flags
)

// BlockSize is the number of bytes that one checksum covers. SumsInRecord is the largest number of checksums that a
// version's record holds; more checksums are stored in chunks under their own keys. SumsPerChunk is the largest number
// of checksums in one chunk.
const (
	BlockSize    = 1 << 20
	SumsInRecord = 8
	SumsPerChunk = 8192
)

// Version is one version of an object, or a delete marker. The number Seq orders the versions of a key and identifies
// the version's inline content; no Seq is used twice.
type Version struct {
	Flags    byte
	Seq      uint64
	Nonce    uint64 // random number that makes the version's identifier hard to guess
	Modified int64  // Unix milliseconds
	Size     int64
	CRC      uint64
	ETag     string
	File     uint64   // number of the version's data file; 0: no data file
	Sums     []uint64 // checksums of the file's blocks, if there are at most SumsInRecord
	Attrs    map[string]string
	Plain    int64  // size of encrypted content before encryption; 0 if FlagSealed is not set
	PlainCRC uint64 // checksum of encrypted content before encryption; 0 if FlagSealed is not set
}

// Marker reports whether v is a delete marker.
func (v *Version) Marker() bool { return v.Flags&FlagMarker != 0 }

// Null reports whether v is the null version of its key.
func (v *Version) Null() bool { return v.Flags&FlagNull != 0 }

// Inline reports whether the content of v is stored with the metadata.
func (v *Version) Inline() bool { return v.Flags&FlagInline != 0 }

// Wrong returns the kind of a damage of v's content, as reports name it. If the parameter what is "checksum" and a
// client declared the checksums of v, Wrong returns "declared"; otherwise Wrong returns the parameter unchanged.
func (v *Version) Wrong(what string) string {
	if what == "checksum" && v.Flags&FlagDeclared != 0 {
		return object.DamageDeclared
	}
	return what
}

// Encode returns the record of v.
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
	if v.Sealed() {
		p.Uint(uint64(v.Plain))
		p.Word(v.PlainCRC)
	}
	p.Words(v.Sums)
	p.Pairs(v.Attrs)
	return p
}

// DecodeVersion decodes the record of a version; if brief is true, the result has no checksums and no attributes.
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
		if v.Sealed() {
			v.Plain, v.PlainCRC = int64(t.Uint()), t.Word()
		}
		if brief {
			if t.Bad || v.Size < 0 || v.Plain < 0 {
				return nil, Unreadable("version", b)
			}
			return v, nil
		}
		v.Sums = t.Words()
		v.Attrs = t.Pairs()
	}
	if !t.Done() || v.Size < 0 || v.Plain < 0 {
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

// Unreadable returns the error for a damaged record.
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
	Seq    uint64 // sequence of the version or of the upload
	Part   int    // -1: a version owns the file; 0: an upload; above 0: the part with this number
}

// Encode returns the record of o.
func (o *Owner) Encode() []byte {
	p := make(codec.Encoder, 0, 32+len(o.Key))
	p.Byte(Format)
	p.Uint(o.Bucket)
	p.Uint(o.Seq)
	p.Int(int64(o.Part))
	p.Text(o.Key)
	return p
}

// DecodeOwner decodes a record that Owner.Encode wrote.
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

// Time converts Unix milliseconds to a UTC time.
func Time(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
