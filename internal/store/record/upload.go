// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// Upload is the record of a multipart upload in progress.
type Upload struct {
	File     uint64 // number of the upload's file, into which parts are written at their final offsets
	PartSize int64  // size of the parts in the upload's file, in bytes; 0: not known yet
	Started  int64
	Attrs    map[string]string
}

// Encode returns the record of u.
func (u *Upload) Encode() []byte {
	p := make(codec.Encoder, 0, 64)
	p.Byte(Format)
	p.Uint(u.File)
	p.Uint(uint64(u.PartSize))
	p.Int(u.Started)
	p.Pairs(u.Attrs)
	return p
}

// DecodeUpload decodes a record that Upload.Encode wrote.
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

// Part is the record of one part of an upload. The part's bytes are either in the upload's file at offset Off, or in
// a file of the part's own.
type Part struct {
	Size     int64
	CRC      uint64
	Modified int64
	ETag     string
	MD5      []byte
	Off      int64    // offset of the part in the upload's file; 0 if the part has a file of its own
	File     uint64   // number of the upload's file or of the part's own file; 0: the part is empty
	Sums     []uint64 // checksums of the part's pieces, which end at the file's block boundaries
	Attrs    map[string]string
}

// Encode returns the record of r.
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

// DecodePart decodes a record that Part.Encode wrote; if brief is true, the result has no checksums.
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

// Info returns the description of the part that clients see.
func (r *Part) Info(number int) object.PartInfo {
	size, crc, _ := r.Shown()
	return object.PartInfo{Number: number, Size: size, ETag: r.ETag, CRC64: crc, Modified: Time(r.Modified),
		Attributes: r.Attrs}
}

// EncodeParts returns the record that lists the parts from which an object was completed.
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

// DecodeParts decodes a record that EncodeParts wrote.
func DecodeParts(b []byte) ([]object.PartInfo, error) {
	t := codec.Decoder{Rest: b}
	if err := checkVersion(&t, "parts"); err != nil {
		return nil, err
	}
	ps := make([]object.PartInfo, t.Size(13))
	for i := range ps {
		ps[i] = object.PartInfo{Number: int(t.Uint()), Size: int64(t.Uint()), CRC64: t.Word(), Modified: Time(t.Int()),
			ETag: t.Text(), Attributes: t.Pairs()}
	}
	if !t.Done() || len(ps) > object.MaxParts {
		return nil, Unreadable("parts", b)
	}
	return ps, nil
}

// SplitPart decodes a part from its record, and its number from its key; if brief is true, the part has no checksums.
func SplitPart(k, b []byte, brief bool) (*Part, int, error) {
	if len(k) != 11 {
		return nil, 0, Unreadable("part key", k)
	}
	p, err := DecodePart(b, brief)
	return p, int(k[9])<<8 | int(k[10]), err
}
