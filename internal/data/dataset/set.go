// SPDX-License-Identifier: Apache-2.0

// Package dataset joins files of training data to one data set, and says which bytes make a batch of its samples.
package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"sort"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// MaxColumns is the most columns of a data set. Files with thousands of columns are not training data.
const MaxColumns = 1024

// Set is a data set: the samples of all its files, numbered from 0 in the order of the files. A Set does not change,
// and several goroutines may use it.
type Set struct {
	files   []*sample.Table
	first   []int64 // number of each file's first sample
	total   int64
	columns []string
	in      [][]int // by file, then by column of the set: the column of the file, or -1
}

// New returns the data set of files, which must not change afterwards. The columns of the set are those of all files,
// in the order of their first appearance. No file, no sample and too many columns are errors of kind Invalid.
func New(files []*sample.Table) (*Set, error) {
	s := &Set{files: slices.Clone(files), first: make([]int64, len(files)), in: make([][]int, len(files))}
	for i, f := range files {
		s.first[i] = s.total
		s.total += int64(f.Len())
		for _, c := range f.Columns() {
			if slices.Contains(s.columns, c) {
				continue
			}
			if len(s.columns) == MaxColumns { // here, because a hostile file has millions
				return nil, errs.New(errs.Invalid, "open data set", f.File(),
					fmt.Sprintf("the files have more than %d columns, the last is %.100q", MaxColumns, c))
			}
			s.columns = append(s.columns, c)
		}
	}
	if s.total == 0 {
		e := errs.New(errs.Invalid, "open data set", "", fmt.Sprintf("%d files have no samples", len(files)))
		if len(files) > 0 {
			e.Name = files[0].File()
		}
		return nil, e
	}
	for i, f := range files {
		for _, c := range s.columns {
			s.in[i] = append(s.in[i], f.Column(c))
		}
	}
	return s, nil
}

// Len returns the number of samples.
func (s *Set) Len() int64 { return s.total }

// Files returns the tables of the files. The caller must not change the list.
func (s *Set) Files() []*sample.Table { return s.files }

// Columns returns the names of the columns. The caller must not change the list.
func (s *Set) Columns() []string { return s.columns }

// Column returns the position of a column by its name, or an error of kind NotFound that lists the columns.
func (s *Set) Column(name string) (int, error) {
	if i := slices.Index(s.columns, name); i >= 0 {
		return i, nil
	}
	shown, more := s.columns, ""
	if len(shown) > 20 {
		shown, more = shown[:20], fmt.Sprintf(" and %d more", len(shown)-20)
	}
	return -1, errs.New(errs.NotFound, "choose column", name,
		fmt.Sprintf("the samples have the columns %q%s", shown, more))
}

// Locate returns the file of sample n and the sample's number in that file. Locate panics if there is no sample n.
func (s *Set) Locate(n int64) (file, i int) {
	if n < 0 || n >= s.total {
		panic(fmt.Sprintf("sample %d of %d", n, s.total))
	}
	file = sort.Search(len(s.first), func(i int) bool { return s.first[i] > n }) - 1
	return file, int(n - s.first[file])
}

// Part returns the file and the bytes of one column of sample n, and false if the sample has no such part.
func (s *Set) Part(n int64, column int) (file int, e sample.Extent, ok bool) {
	file, i := s.Locate(n)
	if c := s.in[file][column]; c >= 0 {
		e, ok = s.files[file].Part(i, c)
	}
	return file, e, ok
}

// Name returns how messages call sample n: its number, its key if it has one, and its file.
func (s *Set) Name(n int64) string {
	file, i := s.Locate(n)
	t := s.files[file]
	if key := t.Key(i); key != "" {
		return fmt.Sprintf("sample %d (%.200q, number %d of %s)", n, key, i, t.File())
	}
	return fmt.Sprintf("sample %d (number %d of %s)", n, i, t.File())
}

// Fingerprint returns a short text that is equal for equal data sets: the same names of files without their
// directories, the same sizes, keys, columns and places of samples. A data set that was copied elsewhere keeps its
// fingerprint. Content that was changed in place, at the same size, is not noticed.
func (s *Set) Fingerprint() string {
	h := sha256.New()
	var b []byte
	text := func(t string) { b = append(binary.AppendUvarint(b, uint64(len(t))), t...) }
	for _, f := range s.files {
		text(path.Base(f.File()))
		b = binary.AppendVarint(b, f.Size())
		b = binary.AppendVarint(b, int64(f.Len()))
		b = binary.AppendVarint(b, int64(len(f.Columns())))
		for _, c := range f.Columns() {
			text(c)
		}
		for i := range f.Len() {
			text(f.Key(i))
			for c := range f.Columns() {
				e, _ := f.Part(i, c)
				b = binary.AppendVarint(binary.AppendVarint(b, e.Offset), e.Size)
			}
			if len(b) > 1<<16 {
				h.Write(b)
				b = b[:0]
			}
		}
	}
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
