// SPDX-License-Identifier: Apache-2.0

package mds

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/data/chunk"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostConfig is the most bytes of the configuration in a shard that Open reads.
const mostConfig = 16 << 20

// Open reads the table of offsets and the heads of all samples of a shard. The result has a column for each column of
// the dataset. The parameter size is the size of the file, and `name` is its path or URL for messages.
//
// The parameter shard is the entry of the index for this file. If shard is nil, Open takes the columns from the
// configuration in the shard.
//
// Open reads files without compression. If the index says that the shard is compressed, Open accepts only the file that
// decompressing gives: a file with the size of shard.Raw. A file of another size is an error of kind Unsupported.
func Open(r io.ReaderAt, size int64, name string, shard *Shard) (*sample.Table, error) {
	f := chunk.File{R: r, Size: size, Name: name, Op: "read MDS shard"}
	if shard != nil {
		if err := matches(f, shard); err != nil {
			return nil, err
		}
	}
	offsets, err := f.Offsets()
	if err != nil {
		return nil, err
	}
	n := len(offsets) - 1
	if last := int64(offsets[n]); last != size {
		return nil, f.Corrupt("its samples end at offset %d, but the file has %d bytes", last, size)
	}
	if shard != nil && shard.Samples != int64(n) {
		return nil, f.Corrupt("it has %d samples, but the index says %d", n, shard.Samples)
	}
	inside, err := config(f, n, int64(offsets[0]))
	if err != nil {
		return nil, err
	}
	columns, err := agree(f, shard, inside)
	if err != nil {
		return nil, err
	}

	names, fixed := make([]string, len(columns)), make([]int64, len(columns))
	for i, c := range columns {
		names[i], fixed[i] = c.Name, c.Size
	}
	return f.Table(offsets, names, fixed)
}

// matches compares the file with its entry in the index.
func matches(f chunk.File, shard *Shard) error {
	if f.Size == shard.Raw.Bytes {
		return nil
	}
	if !shard.Compressed() {
		return f.Corrupt("it has %d bytes, but the index says %d", f.Size, shard.Raw.Bytes)
	}
	fix := "write the dataset again without compression"
	if shard.Zip != nil {
		fix = fmt.Sprintf("decompress %q to %q, or %s", shard.Zip.Basename, shard.Raw.Basename, fix)
	}
	return errs.New(errs.Unsupported, f.Op, f.Name,
		fmt.Sprintf("the shard is compressed (%s)", shard.Compression)).WithFix(fix)
}

// config reads the configuration between the table of offsets and the first sample. The result is nil if the shard has
// no configuration.
func config(f chunk.File, n int, end int64) (*Shard, error) {
	start := chunk.Start(n)
	if start == end {
		return nil, nil
	}
	if end-start > mostConfig {
		return nil, f.Corrupt("its configuration has %d bytes, expected at most %d", end-start, mostConfig)
	}
	text := make([]byte, end-start)
	if err := f.Read(text, start); err != nil {
		return nil, err
	}
	var l layout
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, f.Corrupt("the configuration at offset %d is not JSON: %v", start, err)
	}
	shard, kind, why := l.shape()
	if why != "" {
		e := errs.New(kind, f.Op, f.Name, fmt.Sprintf("the configuration at offset %d: %s", start, why))
		return nil, e.WithFix("copy the shard again, or write it again with mosaicml-streaming")
	}
	return &shard, nil
}

// agree returns the columns of a shard. The sizes of columns must be the same in the index and in the shard, because
// the place of every byte follows from them.
func agree(f chunk.File, index, inside *Shard) ([]Column, error) {
	switch {
	case index == nil && inside == nil:
		e := errs.New(errs.Invalid, f.Op, f.Name, "the shard does not describe its columns")
		return nil, e.WithFix("open it with its entry of " + IndexName)
	case index == nil:
		return inside.Columns, nil
	case len(index.Columns) == 0:
		return nil, errs.New(errs.Invalid, f.Op, f.Name, "the entry of the index has no columns")
	case inside == nil:
		return index.Columns, nil
	case len(index.Columns) != len(inside.Columns):
		return nil, f.Corrupt("it has %d columns, but the index says %d", len(inside.Columns), len(index.Columns))
	}
	for i, c := range index.Columns {
		if has := inside.Columns[i]; has.Size != c.Size {
			return nil, f.Corrupt("column %.100q has size %d, but the index says that column %.100q has size %d (0 is variable)",
				has.Name, has.Size, c.Name, c.Size)
		}
	}
	return index.Columns, nil
}
