// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

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
	return object.PartInfo{Number: number, Size: r.Size, ETag: r.ETag, CRC64: r.CRC, Modified: Time(r.Modified),
		Attributes: r.Attrs}
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
		ps[i] = object.PartInfo{Number: int(t.Uint()), Size: int64(t.Uint()), CRC64: t.Word(), Modified: Time(t.Int()),
			ETag: t.Text(), Attributes: t.Pairs()}
	}
	if !t.Done() || len(ps) > object.MaxParts {
		return nil, Unreadable("parts", b)
	}
	return ps, nil
}

// SplitPart reads a part and its number from a key and its value; brief leaves out the sums.
func SplitPart(k, b []byte, brief bool) (*Part, int, error) {
	if len(k) != 11 {
		return nil, 0, Unreadable("part key", k)
	}
	p, err := DecodePart(b, brief)
	return p, int(k[9])<<8 | int(k[10]), err
}
