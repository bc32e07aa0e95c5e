// SPDX-License-Identifier: Apache-2.0

// Package wds reads and writes WebDataset shards: tar archives whose adjacent members form samples.
//
// A member "DIR/STEM.EXT" belongs to the sample with the key "DIR/STEM". The extension EXT, in lower case, is the name
// of the column. The stem ends at the first dot after the last slash. Adjacent members with the same key form a sample.
// The package follows the webdataset package for Python: links, directories, names without an extension and names such
// as "__x__" are skipped. Unlike Python's tarfile, Open never takes a damaged header for the end of the archive. Bytes
// after the first block of zeros are not read.
//
// An index beside the archive saves the scan. The index of FILE is FILE.nbx. All fixed numbers are little-endian,
// and a uvarint is a number in the encoding of package encoding/binary:
//
//	offset  bytes
//	0       8      magic "NIOWDSIX"
//	8       4      version, 1
//	12      4      number of columns
//	16      8      number of samples
//	24      8      size of the archive
//	32      8      fingerprint of the archive
//	40      …      uvarints: the four counts of Skipped, in order
//	…       …      for each column: uvarint length, and the name
//	…       …      for each sample: its key, then its parts by column
//	end-8   8      CRC-64/NVME of everything before
//
// A key begins with one byte: the length of the prefix that it shares with the key before, at most 63. The uvarint
// length of the rest and the rest follow. A part is the uvarint 0 if the sample has no such part. Otherwise a part is
// two uvarints: 1 + the zigzag of its distance, and its size in bytes. The distance is counted in blocks of 512 bytes,
// from the end of the part before to the start of this part. The first part counts from the start of the file.
//
// The fingerprint is the CRC-64/NVME of the first and the last 64 KiB of the archive, or of all its bytes if there are
// fewer. Together with the size, the fingerprint recognizes another shard, a truncated or extended archive, and an
// archive that was packed again with other sizes. The fingerprint does not notice changes that keep the size of
// the archive and its first and last 64 KiB, nor does it replace checksums of the data.
package wds

import (
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// Suffix is appended to the name of an archive to form the name of its index.
	Suffix = ".nbx"

	// edge is the number of bytes at each end of the archive that its fingerprint covers.
	edge = 64 << 10

	opOpen = "open WebDataset tar"
	damage = "the file is damaged or truncated: copy it again, or pack it again"
)

// Shard describes one WebDataset archive.
type Shard struct {
	Table *sample.Table // the samples, with one column for each extension in order of first appearance
	// Skipped counts the members that belong to no sample.
	Skipped Skipped
	// Fingerprint identifies the archive, see the package comment.
	Fingerprint uint64
}

// Skipped counts the members of an archive that belong to no sample, by reason. Extended headers are no members.
type Skipped struct {
	NotRegular  uint64 // links, directories, devices and other members that are no regular files
	NoExtension uint64 // regular files whose name has no key or no dot after the key
	Metadata    uint64 // regular files in or with a top-level name such as "__x__"
	Bad         uint64 // members of samples with a non-empty part "__bad__", which webdataset drops
}

// Check compares an archive with the shard. If the size or the fingerprint differs, the error is of kind Corrupt.
// Check reads at most 128 KiB. The parameter size is the size of the archive in bytes.
func (s *Shard) Check(r io.ReaderAt, size int64) error {
	why := ""
	if size != s.Table.Size() {
		why = fmt.Sprintf("the index is for an archive of %d bytes, and this archive has %d", s.Table.Size(), size)
	} else {
		got, err := fingerprint(r, size, s.Table.File())
		if err != nil {
			return err
		}
		if got != s.Fingerprint {
			why = fmt.Sprintf("the index is for another archive: its fingerprint is %016x, and this archive has %016x",
				s.Fingerprint, got)
		}
	}
	if why == "" {
		return nil
	}
	e := errs.New(errs.Corrupt, "check index", s.Table.File(), why)
	e.Fix = "remove the index, and make it again from this archive"
	return e
}

// fingerprint computes the fingerprint of the archive.
func fingerprint(r io.ReaderAt, size int64, name string) (uint64, error) {
	head := min(size, edge)
	tail := min(size-head, edge)
	b := make([]byte, head+tail)
	if err := sample.ReadFull(r, b[:head], 0, opOpen, name); err != nil {
		return 0, err
	}
	if err := sample.ReadFull(r, b[head:], size-tail, opOpen, name); err != nil {
		return 0, err
	}
	return checksum.Of(b), nil
}

// edges collects the bytes of a fingerprint while an archive is written.
type edges struct {
	head, tail []byte
}

// add takes the next bytes of the archive.
func (e *edges) add(p []byte) {
	if n := min(edge-len(e.head), len(p)); n > 0 {
		e.head = append(e.head, p[:n]...)
		p = p[n:]
	}
	p = p[max(0, len(p)-edge):]
	if len(e.tail)+len(p) > 4*edge {
		keep := copy(e.tail, e.tail[len(e.tail)-edge:])
		e.tail = e.tail[:keep]
	}
	e.tail = append(e.tail, p...)
}

// sum returns the fingerprint of the bytes so far.
func (e *edges) sum() uint64 {
	tail := e.tail[max(0, len(e.tail)-edge):]
	return checksum.Of(append(e.head[:len(e.head):len(e.head)], tail...))
}
