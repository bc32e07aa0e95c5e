// SPDX-License-Identifier: Apache-2.0

// Package tfrecord reads and writes TFRecord files and their text indexes.
package tfrecord

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	opScan  = "scan TFRecord file"
	opCheck = "check TFRecord file"
	// before and after are the bytes of a record around its data: the length with its CRC, and the CRC of the data.
	before, after = 12, 4

	fixCopy = "the file is damaged or truncated: copy it again, or write it again"
)

// Column is the name of the only column of a file: the data of a record.
const Column = "record"

// Options changes how Open scans a file. The zero value is the default.
type Options struct {
	// If CheckData is true, Open reads the whole file and compares the data of each record with its CRC.
	CheckData bool
	// Skip, if not nil, is called with the error about a record with damaged data. If Skip returns true, the table
	// leaves the record out, and the scan goes on.
	Skip func(error) bool
}

// Shard is a TFRecord file and its records. Several goroutines can use a Shard if they can use its io.ReaderAt.
type Shard struct {
	// Table lists the data of the records in its column "record".
	Table *sample.Table
	r     io.ReaderAt
}

// Open lists the records of a TFRecord file of `size` bytes. The path or URL `name` is for messages and the table.
// Open reads the length of each record and compares the length with its CRC. OpenIndex needs no scan, because it takes
// the places of the records from an index file.
//
// A damaged file is an error of kind Corrupt. A part of a record at the end of the file is damage too, while TensorFlow
// ignores up to 11 bytes there. With an error of kind Corrupt, the result has the records before the damage, or is nil
// if there are none. Open returns an error of kind Unsupported for a file compressed with GZIP or ZLIB, and for a
// record of 4 GiB or more.
func Open(r io.ReaderAt, size int64, name string, o Options) (*Shard, error) {
	s := &Shard{Table: sample.NewTable(name, size, []string{Column}, 0), r: r}
	err := s.scan(size, name, o)
	if err != nil && (!errs.Is(err, errs.Corrupt) || s.Table.Len() == 0) {
		return nil, err
	}
	return s, err
}

// scan adds all records of a file to the table.
func (s *Shard) scan(size int64, name string, o Options) error {
	w := sample.NewWindow(s.r, size, opScan, name)
	if o.CheckData {
		w.ReadAll()
	}
	i := -1
	for at := int64(0); at < size; {
		i++
		if size-at < before+after {
			return s.corrupt(opScan, i, at, "it has %d bytes, expected at least %d", size-at, before+after)
		}
		head, err := w.Bytes(at, before)
		if err != nil {
			return err
		}
		length, ok := parseLength(head)
		if !ok {
			// A compressed file does not begin with a length. Its first bytes are a number above its size.
			if kind := compression(head); kind != "" && at == 0 && length > uint64(size) {
				return compressed(name, kind)
			}
			return s.badLength(opScan, i, at, head)
		}
		if length > uint64(size-at-before-after) {
			return s.corrupt(opScan, i, at, "its data has %d bytes, expected at most %d before the end of the file",
				length, size-at-before-after)
		}
		data := sample.Extent{Offset: at + before, Size: int64(length)}
		if data.Size > sample.MaxPart {
			return errs.New(errs.Unsupported, opScan, name, fmt.Sprintf(
				"record %d at offset %d: its data has %d bytes, expected at most %d", i, at, length, int64(sample.MaxPart))).
				WithFix("write the file again with smaller records")
		}
		if o.CheckData {
			if err := s.checkData(opScan, w, i, data); err != nil {
				if o.Skip == nil || !errs.Is(err, errs.Corrupt) || !o.Skip(err) {
					return err
				}
				at = data.Offset + data.Size + after
				continue
			}
		}
		if err := s.Table.Add("", data); err != nil {
			return err
		}
		at = data.Offset + data.Size + after
	}
	return nil
}

// Check compares the length field of record i in the file with the size of the record in the table. Use Check for
// records that OpenIndex listed. A difference is an error of kind Corrupt. Check panics if there is no such record.
func (s *Shard) Check(i int) error {
	data, _ := s.Table.Part(i, 0)
	at := data.Offset - before
	var head [before]byte
	if err := sample.ReadFull(s.r, head[:], at, opCheck, s.Table.File()); err != nil {
		return err
	}
	length, ok := parseLength(head[:])
	if !ok {
		return s.badLength(opCheck, i, at, head[:])
	}
	if length != uint64(data.Size) {
		err := s.corrupt(opCheck, i, at, "its data has %d bytes, and %d bytes in the index", length, data.Size)
		return err.WithFix("make the index again from this file")
	}
	return nil
}

// CheckData does what Check does, and compares the data of record i with its CRC.
func (s *Shard) CheckData(i int) error {
	if err := s.Check(i); err != nil {
		return err
	}
	data, _ := s.Table.Part(i, 0)
	w := sample.NewWindow(s.r, data.Offset+data.Size+after, opCheck, s.Table.File())
	return s.checkData(opCheck, w.ReadAll(), i, data)
}

// checkData compares the data of a record with its CRC.
func (s *Shard) checkData(op string, w *sample.Window, i int, data sample.Extent) error {
	sum := uint32(0)
	for at, end := data.Offset, data.Offset+data.Size; at < end; {
		b, err := w.Bytes(at, int(min(end-at, w.Ready(at), sample.LargePiece)))
		if err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli(), b)
		at += int64(len(b))
	}
	tail, err := w.Bytes(data.Offset+data.Size, after)
	if err != nil {
		return err
	}
	if got, want := mask(sum), binary.LittleEndian.Uint32(tail); got != want {
		return s.corrupt(op, i, data.Offset-before, "the masked CRC-32C of its data is %08x, expected %08x", got, want)
	}
	return nil
}

// corrupt returns an error about record i, which begins at an offset.
func (s *Shard) corrupt(op string, i int, at int64, msg string, args ...any) *errs.Error {
	text := fmt.Sprintf("record %d at offset %d: ", i, at) + fmt.Sprintf(msg, args...)
	return errs.New(errs.Corrupt, op, s.Table.File(), text).WithFix(fixCopy)
}

// badLength returns an error about a length that does not have its CRC.
func (s *Shard) badLength(op string, i int, at int64, head []byte) error {
	err := s.corrupt(op, i, at, "the masked CRC-32C of its length field %x is %08x, expected %08x", head[:8],
		maskedSum(head[:8]), binary.LittleEndian.Uint32(head[8:]))
	if i == 0 && op == opScan {
		return err.WithFix("check that this is a TFRecord file without compression, or copy it again")
	}
	return err
}

// compression returns the name of the compression of a file that begins with these bytes, or "".
func compression(head []byte) string {
	switch {
	case head[0] == 0x1f && head[1] == 0x8b && head[2] == 8:
		return "GZIP"
	case head[0]&0x0f == 8 && head[0]>>4 <= 7 && (uint16(head[0])<<8|uint16(head[1]))%31 == 0:
		return "ZLIB"
	}
	return ""
}

// compressed returns the error for a compressed file.
func compressed(name, kind string) error {
	fix := "decompress the file first, for example with gunzip, or write it without compression"
	if kind == "ZLIB" {
		fix = "decompress the file first, for example with zlib.decompress in Python, or write it without compression"
	}
	return errs.New(errs.Unsupported, opScan, name,
		fmt.Sprintf("the file is a %s stream, and its records cannot be read one by one", kind)).WithFix(fix)
}
