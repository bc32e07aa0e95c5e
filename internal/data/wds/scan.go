// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// maxExtended is the most bytes of an extended header that a scan reads.
const maxExtended = sample.LargePiece

// Open scans the headers of a tar archive and groups its members into samples. The parameter size is the size of the
// archive in bytes, and messages show the archive as `name`. Open reads pieces of up to 1 MiB and skips the data of
// large members.
//
// A damaged or truncated archive is an error of kind Corrupt, as is a sample with two parts of the same extension. With
// an error of kind Corrupt, the result has the whole samples before the damage, or is nil if there are none.
// The error is of kind Unsupported for compressed archives, members with holes (GNU sparse), members above
// sample.MaxPart bytes, and global headers that set names or sizes.
func Open(r io.ReaderAt, size int64, name string) (*Shard, error) {
	s := scanner{file: name, size: size, in: sample.NewWindow(r, size, opOpen, name), next: extended{size: -1}}
	if err := s.run(); err != nil {
		if !errs.Is(err, errs.Corrupt) {
			return nil, err
		}
		s.found.abandon()
		t, failed := s.found.table(name, size)
		if failed != nil || t.Len() == 0 {
			return nil, err
		}
		return &Shard{Table: t, Skipped: s.found.skipped}, err
	}
	t, err := s.found.table(name, size)
	if err != nil {
		return nil, err
	}
	sum, err := fingerprint(r, size, name)
	if err != nil {
		return nil, err
	}
	return &Shard{Table: t, Skipped: s.found.skipped, Fingerprint: sum}, nil
}

// scanner walks over the headers of an archive.
type scanner struct {
	file  string
	size  int64
	in    *sample.Window
	pos   int64 // of the next header
	next  extended
	found group
}

// run scans the archive up to its first block of zeros, or to the end of the file.
func (s *scanner) run() error {
	if s.size <= 0 {
		return s.corrupt("the file is empty, expected a tar archive")
	}
	for s.pos < s.size {
		if left := s.size - s.pos; left < block {
			b, err := s.in.Bytes(s.pos, int(left))
			if err != nil {
				return err
			}
			if c := compression(b); c != "" && s.pos == 0 {
				return s.compressed(c)
			}
			return s.corrupt(fmt.Sprintf("the header at offset %d is truncated: %d bytes are left in the file, expected %d",
				s.pos, left, block))
		}
		b, err := s.in.Bytes(s.pos, block)
		if err != nil {
			return err
		}
		if isZero(b) {
			break
		}
		h, why := parseHeader(b)
		if why != "" {
			return s.noHeader(b, why)
		}
		if err := s.one(h); err != nil {
			return err
		}
	}
	if s.next.present {
		return s.corrupt("the archive ends after an extended header, expected the member that it describes")
	}
	return nil
}

// one handles a member or an extended header, and moves on to the next header.
func (s *scanner) one(h header) error {
	from := s.pos + block
	switch h.kind {
	case kindPAX, kindSolarisPAX, kindGlobalPAX, kindLongName, kindLongLink:
		if err := s.extend(h, from); err != nil {
			return err
		}
	default:
		s.override(&h)
		if s.next.sparse || h.kind == kindSparse {
			return s.unsupported(fmt.Sprintf("%s has holes (GNU sparse)", s.name(h)),
				"pack the files again without tar's option --sparse")
		}
		if err := s.fits(h, from); err != nil {
			s.found.endBefore(h.name)
			return err
		}
		if err := s.take(h, from); err != nil {
			return err
		}
		s.next = extended{size: -1}
	}
	s.pos = from + padded(h.size)
	return nil
}

// override applies the extended headers before a member to its header.
func (s *scanner) override(h *header) {
	if s.next.named {
		h.name = s.next.path
	}
	if s.next.size >= 0 && h.hasData() {
		h.size = s.next.size
	}
}

// take adds a member to its sample, or counts it as skipped.
func (s *scanner) take(h header, from int64) error {
	if !h.isRegular() {
		s.found.skipped.NotRegular++
		return nil
	}
	if h.size > sample.MaxPart {
		return s.unsupported(fmt.Sprintf("%s has %d bytes, at most %d are possible", s.name(h), h.size,
			int64(sample.MaxPart)), "split the member into parts of less than 4 GiB")
	}
	if why := s.found.add(h.name, sample.Extent{Offset: from, Size: h.size}); why != "" {
		e := errs.New(errs.Corrupt, opOpen, s.file, fmt.Sprintf("%s: %s", s.name(h), why))
		e.Fix = "pack the files again, so that each extension occurs once in a sample"
		return e
	}
	return nil
}

// extend reads an extended header. The headers before one member must not contradict each other.
func (s *scanner) extend(h header, from int64) error {
	if err := s.fits(h, from); err != nil {
		return err
	}
	if h.size > maxExtended {
		return s.unsupported(fmt.Sprintf("the extended header at offset %d has %d bytes, at most %d are possible", s.pos,
			h.size, maxExtended), "pack the files again with shorter names")
	}
	body, err := s.in.Bytes(from, int(h.size))
	if err != nil {
		return err
	}
	switch h.kind {
	case kindLongLink:
		s.next.present = true
		return nil
	case kindLongName:
		if s.next.named {
			return s.corrupt(fmt.Sprintf("the header at offset %d gives the next member a second name", s.pos))
		}
		s.next.present, s.next.named, s.next.path = true, true, text(body)
		return nil
	}
	x := extended{size: -1}
	why := x.parse(body)
	switch {
	case why != "":
		return s.corrupt(fmt.Sprintf("the header at offset %d: %s", s.pos, why))
	case h.kind == kindGlobalPAX && (x.named || x.size >= 0 || x.sparse):
		return s.unsupported(fmt.Sprintf("the global header at offset %d sets the name or the size of members", s.pos),
			"pack the files again without global headers")
	case h.kind == kindGlobalPAX:
		return nil
	case s.next.pax:
		return s.corrupt(fmt.Sprintf("the header at offset %d is the second PAX header before one member", s.pos))
	case s.next.named && x.named:
		return s.corrupt(fmt.Sprintf("the header at offset %d gives the next member a second name", s.pos))
	}
	if s.next.named {
		x.named, x.path = true, s.next.path
	}
	x.present, x.pax = true, true
	s.next = x
	return nil
}

// fits checks that the data of a member and its padding end inside of the file.
func (s *scanner) fits(h header, from int64) error {
	left := s.size - from
	switch {
	case h.size > left:
		return s.corrupt(fmt.Sprintf("%s has %d bytes, and the file ends after %d of them", s.name(h), h.size, left))
	case padded(h.size) > left:
		return s.corrupt(fmt.Sprintf("%s has no padding to %d bytes: the file ends before", s.name(h), block))
	}
	return nil
}

// name returns how messages call a member.
func (s *scanner) name(h header) string {
	return fmt.Sprintf("the member %.200q, with its header at offset %d,", h.name, s.pos)
}

// noHeader returns the error for a block that is no header.
func (s *scanner) noHeader(b []byte, why string) error {
	if s.pos > 0 {
		return s.corrupt(fmt.Sprintf("the header at offset %d is damaged: %s", s.pos, why))
	}
	if c := compression(b); c != "" {
		return s.compressed(c)
	}
	e := errs.New(errs.Corrupt, opOpen, s.file, "the file does not begin with a tar header: "+why)
	e.Fix = "check that the file is a tar archive; if it is, " +
		strings.TrimPrefix(damage, "the file is damaged or truncated: ")
	return e
}

// compression returns the name of the program that compressed a file with these first bytes, or "".
func compression(b []byte) string {
	for _, c := range []struct{ magic, name string }{
		{"\x1f\x8b", "gzip"}, {"BZh", "bzip2"}, {"\xfd7zXZ\x00", "xz"}, {"\x28\xb5\x2f\xfd", "zstd"},
	} {
		if bytes.HasPrefix(b, []byte(c.magic)) {
			return c.name
		}
	}
	return ""
}

// compressed returns the error for a compressed archive.
func (s *scanner) compressed(with string) error {
	return s.unsupported("the archive is compressed with "+with, "decompress the archive: samples in a compressed "+
		"archive have no fixed place")
}

// corrupt returns an error for damaged content.
func (s *scanner) corrupt(why string) error {
	e := errs.New(errs.Corrupt, opOpen, s.file, why)
	e.Fix = damage
	return e
}

// unsupported returns an error for valid content that the package does not read.
func (s *scanner) unsupported(why, fix string) error {
	e := errs.New(errs.Unsupported, opOpen, s.file, why)
	e.Fix = fix
	return e
}
