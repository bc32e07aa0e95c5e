// SPDX-License-Identifier: Apache-2.0

// Package metafile reads Pebble's logs and manifests, and continues behind damaged ranges.
package metafile

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// Pebble's logs and manifests consist of blocks, and blocks consist of chunks. A chunk is a header and a part of a
// record. The header has a checksum (4 bytes), a length (2), a type (1), in logs the log's number (4), and in newer
// logs a synced offset (8). A chunk never crosses a block. The rest of a block that is too short for a header is
// zero.
const (
	chunkBlock   = 32 << 10
	plainHeader  = 7  // of manifests: types 1 to 4
	numberHeader = 11 // of logs whose files are reused: types 5 to 8, and of the end mark of every log
	syncedHeader = 19 // of logs that name the synced offset: types 9 to 12
)

// Castagnoli is the CRC-32C table for the checksums in Pebble's files.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the checksum of a chunk in the masked form that Pebble stores.
func Checksum(b []byte) uint32 {
	c := crc32.Checksum(b, Castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// header returns the length of a header by its type, and whether the chunk is the first or the last of its record.
func header(kind byte) (header int, first, last bool) {
	if kind < 1 || kind > 12 {
		return 0, false, false
	}
	at := (kind - 1) % 4 // full, first, middle, last
	return [3]int{plainHeader, numberHeader, syncedHeader}[(kind-1)/4], at == 0 || at == 1, at == 0 || at == 3
}

// Span is a range of bytes of a file.
type Span struct{ From, To int64 }

// Result is the result of scanning a log or a manifest.
type Result struct {
	Records int64  // complete records in the file
	Before  int64  // complete records before the first damage, which are the records that Pebble replays
	Damaged []Span // unreadable ranges before the last readable chunk
	End     int64  // the offset after the last readable chunk
	Stopped int64  // the offset of the first unreadable chunk: damage, or the end of the written data
}

// scanner reads a log or a manifest chunk by chunk and continues behind damage.
type scanner struct {
	number uint32 // of the log
	log    bool   // false: a manifest, whose chunks have no number
	each   func(record []byte) error

	scan    Result
	pending []byte // a record without its last chunk so far
	within  bool
	lost    int64 // where unreadable bytes begin; -1: none
	broken  bool  // something was unreadable already
}

// Scan reads all chunks of the log with the given number, or of a manifest if the parameter log is false. If the
// function each is not nil, Scan calls it with every complete record. A chunk of a log counts only if its checksum is
// right and it carries the log's own number, because Pebble reuses log files. Scan returns an error only if reading
// fails or the function each returns an error.
func Scan(r io.Reader, log bool, number uint64, each func(record []byte) error) (Result, error) {
	s := &scanner{number: uint32(number), log: log, each: each, lost: -1}
	s.scan.Stopped = -1
	block := make([]byte, chunkBlock)
	for off := int64(0); ; off += chunkBlock {
		n, err := io.ReadFull(r, block)
		if n > 0 {
			if e := s.block(block[:n], off); e != nil {
				return s.scan, e
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			if s.scan.Stopped < 0 {
				s.scan.Stopped = off + int64(n)
			}
			return s.scan, nil
		}
		if err != nil {
			return s.scan, err
		}
	}
}

// block reads the chunks of one block. Behind an unreadable chunk it continues with the next readable one.
func (s *scanner) block(b []byte, off int64) error {
	for at := 0; len(b)-at >= plainHeader; {
		length, next, state := s.chunk(b, at)
		switch state {
		case chunkPadding:
			return nil
		case chunkEnd:
			s.stop(off + int64(at))
			return nil
		case chunkBad:
			s.stop(off + int64(at))
			s.within, s.pending = false, nil
			if s.lost < 0 {
				s.lost = off + int64(at)
			}
			if at = s.resume(b, at+1); at < 0 {
				return nil
			}
			continue
		}
		if s.lost >= 0 {
			s.scan.Damaged = append(s.scan.Damaged, Span{s.lost, off + int64(at)})
			s.lost = -1
		}
		_, first, last := header(b[at+6])
		payload := b[next-length : next]
		at = next
		s.scan.End = off + int64(at)
		switch {
		case first:
			s.within, s.pending = true, append(s.pending[:0], payload...)
		case !s.within:
			continue // the beginning of the record was not readable
		default:
			s.pending = append(s.pending, payload...)
		}
		if !last {
			continue
		}
		s.within = false
		s.scan.Records++
		if !s.broken {
			s.scan.Before++
		}
		if s.each != nil {
			if err := s.each(s.pending); err != nil {
				return err
			}
		}
	}
	return nil
}

// resume finds the next readable chunk in a block, or returns -1. A checksum that matches by chance is practically
// impossible.
func (s *scanner) resume(b []byte, at int) int {
	for ; len(b)-at >= plainHeader; at++ {
		header, _, _ := header(b[at+6])
		if header == 0 || s.log != (header > plainHeader) || len(b)-at < header || s.log &&
			binary.LittleEndian.Uint32(b[at+7:]) != s.number {
			continue
		}
		if length, _, state := s.chunk(b, at); state == chunkGood && length > 0 {
			return at
		}
	}
	return -1
}

func (s *scanner) stop(at int64) {
	s.broken = true
	if s.scan.Stopped < 0 {
		s.scan.Stopped = at
	}
}

type state int

const (
	chunkGood state = iota
	chunkPadding
	chunkEnd // the mark behind the last record of a log that was closed
	chunkBad
)

// chunk judges the chunk at b[at:] as Pebble's reader does: a chunk that stops Pebble's reader is bad.
func (s *scanner) chunk(b []byte, at int) (length, next int, state state) {
	c := b[at:]
	sum, length, kind := binary.LittleEndian.Uint32(c), int(binary.LittleEndian.Uint16(c[4:])), c[6]
	if sum == 0 && length == 0 && kind == 0 {
		if len(c) >= syncedHeader || len(c) >= numberHeader && !IsZero(c) {
			return 0, 0, chunkBad
		}
		return 0, 0, chunkPadding
	}
	header, _, _ := header(kind)
	if header == 0 || s.log != (header > plainHeader) || len(c) < header+length {
		return 0, 0, chunkBad
	}
	if s.log {
		if n := binary.LittleEndian.Uint32(c[7:]); n == s.number+1 && sum == 0 && length == 0 && !s.within {
			return 0, 0, chunkEnd
		} else if n != s.number {
			return 0, 0, chunkBad
		}
	}
	if Checksum(c[6:header+length]) != sum {
		return 0, 0, chunkBad
	}
	return length, at + header + length, chunkGood
}

// IsZero reports whether all bytes of b are zero.
func IsZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Counter counts the complete records that are written to a log or a manifest. Each write that a Counter counts must
// consist of whole chunks, as Pebble's writes do.
type Counter struct {
	Bytes   int64
	Records int64
}

// Wrote records that the bytes p were written to the file, and counts the records in these bytes.
func (c *Counter) Wrote(p []byte) {
	for len(p) > 0 {
		room := chunkBlock - c.Bytes%chunkBlock
		step := min(room, int64(len(p)))
		if step >= plainHeader {
			length := int64(binary.LittleEndian.Uint16(p[4:]))
			if header, _, last := header(p[6]); header > 0 {
				if last && (length > 0 || binary.LittleEndian.Uint32(p) != 0) { // and not the end mark
					c.Records++
				}
				step = min(step, int64(header)+length)
			}
		}
		c.Bytes += step
		p = p[step:]
	}
}
