// SPDX-License-Identifier: Apache-2.0

// Package record encodes the metadata of a store: its keys and its values. It does no I/O.
//
// # Keys
//
// A key begins with a letter for its kind. Numbers are big-endian: those of buckets, files and sequences have 8 bytes. A
// name that something follows is escaped (0x00 becomes 0x00 0xff) and ended by 0x00 0x01. So the order of keys is the
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
// A version has one record and no copy of it. Its sequence is given out in ascending order under the lock of its key, and
// is never used twice. The sequence is hidden in the identifier that clients see, so a version is found by a point read.
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

// Wrong is the word for content of v that is not what its record says: what, or "declared" where a checksum that differs may
// be the mistake of the client that declared it.
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
		return errs.New(errs.Unsupported, "read metadata", what, fmt.Sprintf("the record has version %d, expected %d", t.Rest[0], Format)).
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
	return errs.New(errs.Corrupt, "read metadata", what, fmt.Sprintf("a record of %d bytes that begins with %x cannot be read", len(b), b[:n])).
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

// Upload is an upload in progress.
type Upload struct {
	File     uint64 // where parts are written in place
	PartSize int64  // 0: no part has decided it yet
	Started  int64
	Attrs    map[string]string
}

// Encode is the record of u.
func (u *Upload) Encode() []byte {
	p := make(codec.Encoder, 0, 64)
	p.Byte(Format)
	p.Uint(u.File)
	p.Uint(uint64(u.PartSize))
	p.Int(u.Started)
	p.Pairs(u.Attrs)
	return p
}

// DecodeUpload reads what Encode wrote.
func DecodeUpload(b []byte) (*Upload, error) {
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "upload"); err != nil {
		return nil, err
	}
	u := &Upload{File: t.Uint(), PartSize: int64(t.Uint()), Started: t.Int(), Attrs: t.Pairs()}
	if !t.Done() || u.PartSize < 0 {
		return nil, Unreadable("upload", b)
	}
	return u, nil
}

// Part is one part of an upload: in place at off of the upload's file, or in a
// side file of its own.
type Part struct {
	Size     int64
	CRC      uint64
	Modified int64
	ETag     string
	MD5      []byte
	Off      int64    // in place: where it begins; else 0
	File     uint64   // the upload's file or the side file; 0: no bytes
	Sums     []uint64 // of the pieces that the grid of the file cuts it into
	Attrs    map[string]string
}

// Encode is the record of r.
func (r *Part) Encode() []byte {
	p := make(codec.Encoder, 0, 96+8*len(r.Sums))
	p.Byte(Format)
	p.Uint(uint64(r.Size))
	p.Word(r.CRC)
	p.Int(r.Modified)
	p.Text(r.ETag)
	p.Text(string(r.MD5))
	p.Uint(uint64(r.Off))
	p.Uint(r.File)
	p.Pairs(r.Attrs)
	p.Words(r.Sums)
	return p
}

// DecodePart reads a part; brief leaves out the sums.
func DecodePart(b []byte, brief bool) (*Part, error) {
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "part"); err != nil {
		return nil, err
	}
	r := &Part{Size: int64(t.Uint()), CRC: t.Word(), Modified: t.Int(), ETag: t.Text(), MD5: []byte(t.Text()),
		Off: int64(t.Uint()), File: t.Uint(), Attrs: t.Pairs()}
	if brief {
		if t.Bad || r.Size < 0 || r.Off < 0 {
			return nil, Unreadable("part", b)
		}
		return r, nil
	}
	r.Sums = t.Words()
	if !t.Done() || r.Size < 0 || r.Off < 0 {
		return nil, Unreadable("part", b)
	}
	return r, nil
}

// Info describes the part to clients.
func (r *Part) Info(number int) object.PartInfo {
	return object.PartInfo{Number: number, Size: r.Size, ETag: r.ETag, CRC64: r.CRC, Modified: Time(r.Modified), Attributes: r.Attrs}
}

// EncodeParts is the list of the parts that an object was completed of.
func EncodeParts(ps []object.PartInfo) []byte {
	p := make(codec.Encoder, 0, 64*len(ps))
	p.Byte(Format)
	p.Uint(uint64(len(ps)))
	for i := range ps {
		p.Uint(uint64(ps[i].Number))
		p.Uint(uint64(ps[i].Size))
		p.Word(ps[i].CRC64)
		p.Int(ps[i].Modified.UnixMilli())
		p.Text(ps[i].ETag)
		p.Pairs(ps[i].Attributes)
	}
	return p
}

// DecodeParts reads what EncodeParts wrote.
func DecodeParts(b []byte) ([]object.PartInfo, error) {
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "parts"); err != nil {
		return nil, err
	}
	ps := make([]object.PartInfo, t.Size(13))
	for i := range ps {
		ps[i] = object.PartInfo{Number: int(t.Uint()), Size: int64(t.Uint()), CRC64: t.Word(), Modified: Time(t.Int()), ETag: t.Text(), Attributes: t.Pairs()}
	}
	if !t.Done() || len(ps) > object.MaxParts {
		return nil, Unreadable("parts", b)
	}
	return ps, nil
}

// EncodeBucket is the record of a bucket with a number.
func EncodeBucket(id uint64, b *object.Bucket) []byte {
	p := make(codec.Encoder, 0, 128)
	p.Byte(Format)
	p.Uint(id)
	p.Int(b.Created.UnixMilli())
	p.Text(b.Owner)
	p.Text(string(b.Versioning))
	p.Text(string(b.ETag))
	m := make(map[string]string, len(b.Settings))
	for k, v := range b.Settings {
		m[k] = string(v)
	}
	p.Pairs(m)
	return p
}

// DecodeBucket reads what EncodeBucket wrote.
func DecodeBucket(name string, b []byte) (uint64, *object.Bucket, error) {
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "bucket"); err != nil {
		return 0, nil, err
	}
	id := t.Uint()
	o := &object.Bucket{Name: name, Created: Time(t.Int()), Owner: t.Text(), Versioning: object.Versioning(t.Text()), ETag: object.ETagKind(t.Text())}
	m := t.Pairs()
	if !t.Done() {
		return 0, nil, Unreadable("bucket", b)
	}
	if len(m) > 0 {
		o.Settings = make(map[string][]byte, len(m))
		for k, v := range m {
			o.Settings[k] = []byte(v)
		}
	}
	return id, o, nil
}

// Time is the moment of Unix milliseconds.
func Time(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
