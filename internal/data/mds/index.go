// SPDX-License-Identifier: Apache-2.0

// Package mds reads and writes MDS, the packed form of training data of MosaicML Streaming.
package mds

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/nebulaio/nebulaio/internal/data/chunk"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// IndexName is the name of the index in the directory of a dataset.
const IndexName = "index.json"

const (
	format  = "mds"
	version = 2
)

// Index lists the shards of a dataset, as index.json has them.
type Index struct {
	Shards []Shard
}

// Shard describes one shard of a dataset.
type Shard struct {
	Columns     []Column
	Compression string   // such as "zstd:7", or "" for a shard that is not compressed
	Hashes      []string // the hash algorithms of the files, sorted
	Samples     int64    // number of samples
	SizeLimit   int64    // most bytes of a shard; 0 if there is no limit, or if the index has the limit as text
	Raw         File     // the shard without compression
	Zip         *File    // the compressed shard, or nil
}

// Column is a part that each sample has.
type Column struct {
	Name     string
	Encoding string // such as "bytes", "str", "int" or "ndarray:float32:2,3"
	Size     int64  // of every value in bytes, or 0 if each sample has its own size
}

// File is a file of a shard.
type File struct {
	Basename string            // relative to the directory of the index, and never outside of it
	Bytes    int64             // size of the file
	Hashes   map[string]string // by algorithm, in hexadecimal digits
}

// Compressed reports whether the dataset holds this shard as a compressed file. Open does not read such a file.
func (s *Shard) Compressed() bool { return s.Compression != "" || s.Zip != nil }

// document is index.json, and record is one of its shards.
type document struct {
	Shards  []record `json:"shards"`
	Version int64    `json:"version"`
}

type record struct {
	layout
	RawData *fileRecord `json:"raw_data"`
	Samples *int64      `json:"samples"`
	ZipData *fileRecord `json:"zip_data"`
}

// layout is the part of a record that stands in the shard itself, too.
type layout struct {
	ColumnEncodings []string        `json:"column_encodings"`
	ColumnNames     []string        `json:"column_names"`
	ColumnSizes     []*int64        `json:"column_sizes"`
	Compression     *string         `json:"compression"`
	Format          string          `json:"format"`
	Hashes          []string        `json:"hashes"`
	SizeLimit       json.RawMessage `json:"size_limit"`
	Version         int64           `json:"version"`
}

type fileRecord struct {
	Basename string            `json:"basename"`
	Bytes    *int64            `json:"bytes"`
	Hashes   map[string]string `json:"hashes"`
}

// ParseIndex parses the bytes of index.json. The parameter `name` is its path or URL for messages.
func ParseIndex(data []byte, name string) (*Index, error) {
	fail := func(kind errs.Kind, fix, format string, args ...any) error {
		return errs.New(kind, "read MDS index", name, fmt.Sprintf(format, args...)).WithFix(fix)
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fail(errs.Corrupt, "copy the index again, or write it again", "it is not an index in JSON: %v", err)
	}
	if d.Version != version {
		return nil, fail(errs.Unsupported, "write the dataset again with mosaicml-streaming",
			"version %d, expected version %d", d.Version, version)
	}
	x := &Index{Shards: make([]Shard, 0, len(d.Shards))}
	for i := range d.Shards {
		s, kind, why := d.Shards[i].shard()
		if kind == errs.Unsupported {
			return nil, fail(kind, "write the dataset again with MDSWriter of mosaicml-streaming", "shard %d: %s", i, why)
		}
		if why != "" {
			return nil, fail(errs.Corrupt, "copy the index again, or write it again", "shard %d: %s", i, why)
		}
		x.Shards = append(x.Shards, s)
	}
	return x, nil
}

// shard checks a record of the index. If the record is wrong, shard returns the kind of the error and the reason.
func (r *record) shard() (s Shard, kind errs.Kind, why string) {
	s, kind, why = r.shape()
	switch {
	case why != "":
		return s, kind, why
	case r.Samples == nil || *r.Samples < 0 || *r.Samples > math.MaxUint32:
		return s, errs.Corrupt, fmt.Sprintf("samples is %s, expected 0 to %d", number(r.Samples), uint32(math.MaxUint32))
	case r.RawData == nil:
		return s, errs.Corrupt, "it has no raw_data, expected the file of the shard"
	}
	s.Samples = *r.Samples
	if s.Raw, why = r.RawData.file(); why != "" {
		return s, errs.Corrupt, "raw_data: " + why
	}
	if r.ZipData != nil {
		zip, why := r.ZipData.file()
		if why != "" {
			return s, errs.Corrupt, "zip_data: " + why
		}
		s.Zip = &zip
	}
	return s, 0, ""
}

// shape checks the columns and the version, and returns a shard without its files and samples.
func (l *layout) shape() (s Shard, kind errs.Kind, why string) {
	n := len(l.ColumnNames)
	switch {
	case l.Version != version:
		return s, errs.Unsupported, fmt.Sprintf("version %d, expected version %d", l.Version, version)
	case l.Format != format:
		return s, errs.Unsupported, fmt.Sprintf("format %.100q, expected %q", l.Format, format)
	case n == 0:
		return s, errs.Corrupt, "it has no columns, expected at least one"
	case len(l.ColumnEncodings) != n || len(l.ColumnSizes) != n:
		return s, errs.Corrupt, fmt.Sprintf("it has %d column names, %d encodings and %d sizes, expected equal numbers",
			n, len(l.ColumnEncodings), len(l.ColumnSizes))
	}
	if l.Compression != nil {
		s.Compression = *l.Compression
	}
	s.Hashes = l.Hashes
	if json.Unmarshal(l.SizeLimit, &s.SizeLimit) != nil || s.SizeLimit < 0 {
		s.SizeLimit = 0
	}
	s.Columns = make([]Column, 0, n)
	for i, name := range l.ColumnNames {
		size := int64(0)
		if p := l.ColumnSizes[i]; p != nil {
			if size = *p; size < 1 || size > math.MaxUint32 {
				return s, errs.Corrupt, fmt.Sprintf("column %.100q has size %d, expected 1 to %d or null", name, size,
					uint32(math.MaxUint32))
			}
		}
		s.Columns = append(s.Columns, Column{Name: name, Encoding: l.ColumnEncodings[i], Size: size})
	}
	if twice := duplicate(s.Columns); twice != "" {
		return s, errs.Corrupt, twice
	}
	return s, 0, ""
}

// duplicate returns why columns do not have different names, or "".
func duplicate(columns []Column) string {
	seen := make(map[string]struct{}, len(columns))
	for _, c := range columns {
		if _, again := seen[c.Name]; again {
			return fmt.Sprintf("column %.100q is there twice, expected different names", c.Name)
		}
		seen[c.Name] = struct{}{}
	}
	return ""
}

// file checks a file of the index, and returns why it is wrong.
func (r *fileRecord) file() (f File, why string) {
	if why := outside(r.Basename); why != "" {
		return f, why
	}
	if r.Bytes == nil || *r.Bytes < 0 {
		return f, fmt.Sprintf("file %.200q: bytes is %s, expected 0 or more", r.Basename, number(r.Bytes))
	}
	return File{Basename: r.Basename, Bytes: *r.Bytes, Hashes: r.Hashes}, ""
}

// outside returns why a name cannot be a file below the directory of the index, or "". Names of files in subdirectories
// are valid, because merge_index of mosaicml-streaming makes such names.
func outside(basename string) string {
	if chunk.IsBelow(basename) {
		return ""
	}
	return fmt.Sprintf("basename %.200q, expected a file in the directory of the index", basename)
}

// number returns how messages show a number that can be missing.
func number(p *int64) string {
	if p == nil {
		return "missing"
	}
	return fmt.Sprint(*p)
}
