// SPDX-License-Identifier: Apache-2.0

// Package chunk reads the layout that MDS shards and litData chunks share: a count, a table of offsets, and samples.
//
// All numbers are 32-bit and little-endian. The file starts with the number of samples n, followed by n+1 offsets from
// the start of the file. Each sample starts with its head: the sizes of the parts of variable size. The parts follow.
package chunk

import (
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const damaged = "the file is damaged or truncated: copy it again, or pack it again"

// File is a shard or chunk to read.
type File struct {
	R    io.ReaderAt
	Size int64  // of the whole file in bytes
	Name string // path or URL, for messages
	Op   string // what the caller does, for messages
}

// Start returns the position after the table of offsets of n samples.
func Start(n int) int64 { return 4 + 4*(int64(n)+1) }

// IsBelow reports whether a name in an index is the name of a file below the directory of the index. IsBelow accepts
// relative names with slashes, and refuses names with elements "..", backslashes or colons.
func IsBelow(name string) bool {
	return name != "" && name != "." && name == path.Clean(name) && !path.IsAbs(name) && name != ".." &&
		!strings.HasPrefix(name, "../") && !strings.ContainsAny(name, "\\:\x00")
}

// Corrupt returns an error of kind Corrupt about this file.
func (f File) Corrupt(format string, args ...any) error {
	e := errs.New(errs.Corrupt, f.Op, f.Name, fmt.Sprintf(format, args...))
	e.Fix = damaged
	return e
}

// Read fills p from position `at`, which the caller has compared with the size of the file.
func (f File) Read(p []byte, at int64) error { return sample.ReadFull(f.R, p, at, f.Op, f.Name) }

// Offsets reads the table of offsets. The result has one entry more than there are samples, and at least one. All
// offsets are inside of the file, after the table, and none is below the one before it.
func (f File) Offsets() ([]uint32, error) {
	if f.Size < Start(0) {
		return nil, f.Corrupt("it has %d bytes, expected at least %d", f.Size, Start(0))
	}
	first := make([]byte, 4)
	if err := f.Read(first, 0); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(first))
	if most := (f.Size - Start(0)) / 4; n > most {
		return nil, f.Corrupt("it says that it has %d samples, but its %d bytes have room for at most %d offsets",
			n, f.Size, most)
	}

	offsets := make([]uint32, 0, n+1)
	buf := make([]byte, min(sample.LargePiece, 4*(n+1)))
	last := Start(int(n)) // the first sample starts after the table
	for at := int64(4); len(offsets) < cap(offsets); {
		part := buf[:min(int64(len(buf)), Start(int(n))-at)]
		if err := f.Read(part, at); err != nil {
			return nil, err
		}
		for ; len(part) > 0; part = part[4:] {
			offset := binary.LittleEndian.Uint32(part)
			if int64(offset) < last {
				return nil, f.Corrupt("offset %d of the table is %d, expected at least %d", len(offsets), offset, last)
			}
			offsets, last = append(offsets, offset), int64(offset)
			at += 4
		}
	}
	if last > f.Size {
		return nil, f.Corrupt("its samples end at offset %d, but the file has %d bytes", last, f.Size)
	}
	return offsets, nil
}

// Room returns the number of samples if the file is large enough for that many samples with these parts, and otherwise
// 0. Use Room as the expected number of samples for a table, so that a hostile count allocates nothing.
func Room(offsets []uint32, fixed []int64) int {
	n := int64(len(offsets) - 1)
	space := int64(offsets[n] - offsets[0])
	for _, size := range fixed {
		if size == 0 {
			size = 4 // at least its size in the head
		}
		if space -= min(size, space+1) * n; space < 0 {
			return 0
		}
	}
	return int(n)
}

// Samples reads the head of each sample and calls `each` with the position of the first part and the sizes of all
// parts. The parameter fixed has one size for each part, or 0 for a part of variable size. The sizes of a sample add up
// to the size of that sample exactly. The slice `sizes` is only valid during the call.
func (f File) Samples(offsets []uint32, fixed []int64, each func(at int64, sizes []uint32) error) error {
	head, body := int64(0), int64(0)
	for i, size := range fixed {
		if size < 0 || size > 1<<32 {
			return f.Corrupt("part %d of each sample has %d bytes, expected at most %d", i, size, int64(1)<<32)
		}
		body += size
		if size == 0 {
			head += 4
		}
	}
	w := sample.NewWindow(f.R, int64(offsets[len(offsets)-1]), f.Op, f.Name)
	sizes := make([]uint32, len(fixed))
	for i, start := range offsets[:len(offsets)-1] {
		size := int64(offsets[i+1] - start)
		if size < head+body {
			return f.Corrupt("sample %d at offset %d has %d bytes, expected at least %d", i, start, size, head+body)
		}
		var words []byte
		if head > 0 {
			var err error
			if words, err = w.Bytes(int64(start), int(head)); err != nil {
				return err
			}
		}
		sum := head + body
		for j, known := range fixed {
			if sizes[j] = uint32(known); known == 0 {
				sizes[j] = binary.LittleEndian.Uint32(words)
				sum += int64(sizes[j])
				words = words[4:]
			}
		}
		if sum != size {
			return f.Corrupt("sample %d at offset %d has %d bytes, but the sizes in its head add up to %d bytes",
				i, start, size, sum)
		}
		if err := each(int64(start)+head, sizes); err != nil {
			return err
		}
	}
	return nil
}

// Table reads the heads of all samples and lists their parts. Names and fixed have one entry for each part: its column,
// and its size or 0, as for Samples.
func (f File) Table(offsets []uint32, names []string, fixed []int64) (*sample.Table, error) {
	table := sample.NewTable(f.Name, f.Size, names, Room(offsets, fixed))
	parts := make([]sample.Extent, len(names))
	err := f.Samples(offsets, fixed, func(at int64, sizes []uint32) error {
		for i, size := range sizes {
			parts[i] = sample.Extent{Offset: at, Size: int64(size)}
			at += int64(size)
		}
		return table.Add("", parts...)
	})
	if err != nil {
		return nil, err
	}
	return table, nil
}
