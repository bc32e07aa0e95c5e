// SPDX-License-Identifier: Apache-2.0

// Package sample describes the samples of packed training data: which bytes of a file belong to which sample.
package sample

import (
	"fmt"
	"math"
	"slices"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// MaxPart is the most bytes that one part of a sample can have. All packed formats with random access have this limit
// or a lower one, and a Table needs only four bytes for each size.
const MaxPart = math.MaxUint32

// Extent is a range of bytes in a file.
type Extent struct {
	Offset int64 // of the first byte in the file
	Size   int64 // in bytes, 0 for an empty part
}

// Table lists the samples of one file. Each sample has a part in one or more columns; a column is what the sample calls
// that part, such as "jpg". Build a Table with NewTable and Add. After the last Add, several goroutines can read it.
//
// A Table needs 12 bytes of memory for each part, and the keys.
type Table struct {
	file    string
	size    int64
	columns []string
	offsets []int64  // by sample, then by column; -1 if the sample has no such part
	sizes   []uint32 // likewise
	keys    []byte   // the keys of all samples, one after the other
	ends    []uint64 // where each key ends in keys; nil if no sample has a key
}

// NewTable returns an empty table for a file of `size` bytes. The names of columns must differ. Room is the expected
// number of samples, 0 if it is not known. The caller must have compared room with the size of the file, because
// NewTable allocates memory for that many samples.
func NewTable(file string, size int64, columns []string, room int) *Table {
	return &Table{file: file, size: size, columns: slices.Clone(columns),
		offsets: make([]int64, 0, room*len(columns)), sizes: make([]uint32, 0, room*len(columns))}
}

// Absent returns the extent of a column that a sample does not have.
func Absent() Extent { return Extent{Offset: -1} }

// Add appends a sample with one extent for each column, and Absent() where the sample has no such part. An extent
// outside of the file or above MaxPart is an error of kind Corrupt, and the table stays as it was. Either all samples
// have a key or none has.
func (t *Table) Add(key string, parts ...Extent) error {
	if len(parts) != len(t.columns) {
		return errs.New(errs.Other, "list samples", t.file,
			fmt.Sprintf("sample %d has %d parts, and there are %d columns", t.Len(), len(parts), len(t.columns)))
	}
	for i, p := range parts {
		if p == Absent() {
			continue
		}
		if why := t.wrong(p); why != "" {
			e := errs.New(errs.Corrupt, "list samples", t.file,
				fmt.Sprintf("sample %s, part %q: %s", t.name(key), t.columns[i], why))
			e.Fix = "the file is damaged or truncated: copy it again, or pack it again"
			return e
		}
	}
	if n := t.Len(); (key != "") != (t.ends != nil) && n > 0 {
		return errs.New(errs.Other, "list samples", t.file,
			fmt.Sprintf("sample %s: only some samples have keys", t.name(key)))
	}
	for _, p := range parts {
		t.offsets = append(t.offsets, p.Offset)
		t.sizes = append(t.sizes, uint32(p.Size))
	}
	if key != "" {
		t.keys = append(t.keys, key...)
		t.ends = append(t.ends, uint64(len(t.keys)))
	}
	return nil
}

// Without returns a table that leaves out the samples with these numbers.
func (t *Table) Without(drop map[int]bool) *Table {
	out := &Table{file: t.file, size: t.size, columns: t.columns}
	for i := range t.Len() {
		if drop[i] {
			continue
		}
		from, to := i*len(t.columns), (i+1)*len(t.columns)
		out.offsets = append(out.offsets, t.offsets[from:to]...)
		out.sizes = append(out.sizes, t.sizes[from:to]...)
		if t.ends != nil {
			out.keys = append(out.keys, t.Key(i)...)
			out.ends = append(out.ends, uint64(len(out.keys)))
		}
	}
	return out
}

// wrong returns why an extent cannot be a part of a sample in this file, or "".
func (t *Table) wrong(p Extent) string {
	switch {
	case p.Offset < 0 || p.Size < 0:
		return fmt.Sprintf("%d bytes at offset %d are no range", p.Size, p.Offset)
	case p.Size > MaxPart:
		return fmt.Sprintf("it has %d bytes, at most %d are possible", p.Size, int64(MaxPart))
	case p.Offset > t.size || p.Size > t.size-p.Offset:
		return fmt.Sprintf("%d bytes at offset %d end after the file, which has %d bytes", p.Size, p.Offset, t.size)
	}
	return ""
}

// name returns how messages call the next sample.
func (t *Table) name(key string) string {
	if key == "" {
		return fmt.Sprint(t.Len())
	}
	return fmt.Sprintf("%d (%.200q)", t.Len(), key)
}

// File returns the path or URL of the file.
func (t *Table) File() string { return t.file }

// Size returns the size of the file in bytes.
func (t *Table) Size() int64 { return t.size }

// Len returns the number of samples.
func (t *Table) Len() int { return len(t.offsets) / max(len(t.columns), 1) }

// Columns returns the names of the columns. The caller must not change them.
func (t *Table) Columns() []string { return t.columns }

// Column returns the position of a column by its name, or -1 if there is no such column.
func (t *Table) Column(name string) int { return slices.Index(t.columns, name) }

// Part returns the extent of one column of sample i, and false if the sample has no such part. Part panics if
// there is no such sample or column.
func (t *Table) Part(i, column int) (Extent, bool) {
	if column < 0 || column >= len(t.columns) {
		panic(fmt.Sprintf("column %d of %d", column, len(t.columns)))
	}
	at := i*len(t.columns) + column
	return Extent{t.offsets[at], int64(t.sizes[at])}, t.offsets[at] >= 0
}

// Key returns the key of sample i, or "" if the samples have no keys.
func (t *Table) Key(i int) string {
	if t.ends == nil {
		return ""
	}
	start := uint64(0)
	if i > 0 {
		start = t.ends[i-1]
	}
	return string(t.keys[start:t.ends[i]])
}
