// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"fmt"
	"math"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Loose lists samples that have whole files as their parts, such as the files of a folder. Build a Loose with NewLoose,
// AddFile and AddSample. After the last AddSample, several goroutines can read it.
//
// A Loose needs 16 bytes of memory for each file, 8 bytes and 4 bytes for each column of a sample, and the names.
type Loose struct {
	columns []string
	names   []byte  // the names of all files, one after the other
	ends    []int64 // where each name ends in names
	sizes   []int64 // of the files in bytes
	files   []int32 // by sample, then by column: the file, or -1 if the sample has no such part
	keys    []span  // by sample: its key
}

// span is the range of a sample's key in the name of its first file.
type span struct{ from, to uint16 }

// NewLoose returns an empty list with the given columns.
func NewLoose(columns []string) *Loose { return &Loose{columns: columns} }

// AddFile appends a file and returns its number.
func (l *Loose) AddFile(name string, size int64) int {
	l.names = append(l.names, name...)
	l.ends = append(l.ends, int64(len(l.names)))
	l.sizes = append(l.sizes, size)
	return len(l.sizes) - 1
}

// AddSample appends a sample with one file for each column, or -1 where the sample has no such part. The key of the
// sample is the range from `from` to `to` of the name of its first file. A file above sample.MaxPart bytes is an error
// of kind Unsupported.
func (l *Loose) AddSample(from, to int, files ...int) error {
	if len(files) != len(l.columns) || from < 0 || from > to || to > math.MaxUint16 || len(l.sizes) > math.MaxInt32 {
		return errs.New(errs.Other, "list samples", "", fmt.Sprintf("%d files for %d columns, key from %d to %d",
			len(files), len(l.columns), from, to))
	}
	for _, f := range files {
		if f >= 0 && l.sizes[f] > sample.MaxPart {
			return errs.New(errs.Unsupported, "list samples", l.name(f), fmt.Sprintf(
				"has %d bytes, at most %d are possible", l.sizes[f], int64(sample.MaxPart)))
		}
	}
	for _, f := range files {
		l.files = append(l.files, int32(f))
	}
	l.keys = append(l.keys, span{uint16(from), uint16(to)})
	return nil
}

// name returns the name of file i.
func (l *Loose) name(i int) string {
	start := int64(0)
	if i > 0 {
		start = l.ends[i-1]
	}
	return string(l.names[start:l.ends[i]])
}

func (l *Loose) samples() int               { return len(l.keys) }
func (l *Loose) count() int                 { return len(l.sizes) }
func (l *Loose) file(i int) (string, int64) { return l.name(i), l.sizes[i] }
func (l *Loose) named() []string            { return l.columns }

func (l *Loose) part(i, column int) (file int, e sample.Extent, ok bool) {
	f := int(l.files[i*len(l.columns)+column])
	if f < 0 {
		return 0, sample.Extent{}, false
	}
	return f, sample.Extent{Size: l.sizes[f]}, true
}

func (l *Loose) key(i int) string {
	for _, f := range l.files[i*len(l.columns) : (i+1)*len(l.columns)] {
		if f >= 0 {
			return l.name(int(f))[l.keys[i].from:l.keys[i].to]
		}
	}
	return ""
}

// packed is a file with many samples.
type packed struct{ *sample.Table }

func (p packed) samples() int             { return p.Len() }
func (p packed) count() int               { return 1 }
func (p packed) file(int) (string, int64) { return p.File(), p.Size() }
func (p packed) named() []string          { return p.Columns() }
func (p packed) key(i int) string         { return p.Key(i) }

func (p packed) part(i, column int) (int, sample.Extent, bool) {
	e, ok := p.Part(i, column)
	return 0, e, ok
}
