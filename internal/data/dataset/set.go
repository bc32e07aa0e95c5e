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

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Opened is an open file of a data set.
type Opened struct {
	File *vfs.File
	// Sums has the checksums of the whole file, or is nil. If a batch has all bytes of the file, its transfer compares
	// them with Sums.
	Sums *checksum.Sums
}

// MaxColumns is the most columns of a data set. Files with thousands of columns are not training data.
const MaxColumns = 1024

// Set is a data set: the samples of all its files, numbered from 0 in the order of the files. A Set does not change,
// and several goroutines may use it.
type Set struct {
	groups  []group
	first   []int64 // number of each group's first sample
	files   []int   // number of each group's first file
	count   int     // number of files
	total   int64
	columns []string
	in      [][]int // by group, then by column of the set: the column of the group, or -1
}

// group is a list of samples and of the files that have them.
type group interface {
	samples() int
	count() int                 // number of files
	file(i int) (string, int64) // name and size of a file
	named() []string            // columns
	part(i, column int) (file int, e sample.Extent, ok bool)
	key(i int) string
}

// New returns the data set of packed files, which must not change afterwards. The columns of the set are those of all
// files, in the order of their first appearance. No file, no sample and too many columns are errors of kind Invalid.
func New(files []*sample.Table) (*Set, error) {
	groups := make([]group, len(files))
	for i, f := range files {
		groups[i] = packed{f}
	}
	return join(groups)
}

// NewOfFiles returns the data set of samples that have whole files as their parts. The errors are those of New.
func NewOfFiles(l *Loose) (*Set, error) { return join([]group{l}) }

func join(groups []group) (*Set, error) {
	s := &Set{groups: groups}
	seen := map[string]bool{}
	for _, g := range groups {
		s.first, s.files = append(s.first, s.total), append(s.files, s.count)
		s.total += int64(g.samples())
		s.count += g.count()
		for _, c := range g.named() {
			if seen[c] {
				continue
			}
			if len(s.columns) == MaxColumns { // here, because a hostile file has millions
				name, _ := g.file(0)
				return nil, errs.New(errs.Invalid, "open data set", name,
					fmt.Sprintf("the files have more than %d columns, the last is %.100q", MaxColumns, c))
			}
			seen[c], s.columns = true, append(s.columns, c)
		}
	}
	if s.total == 0 {
		e := errs.New(errs.Invalid, "open data set", "", fmt.Sprintf("%d files have no samples", s.count))
		if s.count > 0 {
			e.Name, _ = s.File(0)
		}
		return nil, e
	}
	for _, g := range groups {
		has := make([]int, len(s.columns))
		for i, c := range s.columns {
			has[i] = slices.Index(g.named(), c)
		}
		s.in = append(s.in, has)
	}
	return s, nil
}

// Len returns the number of samples.
func (s *Set) Len() int64 { return s.total }

// Files returns the number of files.
func (s *Set) Files() int { return s.count }

// File returns the name and the size in bytes of file i. File panics if there is no file i.
func (s *Set) File(i int) (name string, size int64) {
	g := sort.Search(len(s.files), func(g int) bool { return s.files[g] > i }) - 1
	for s.groups[g].count() == 0 {
		g--
	}
	return s.groups[g].file(i - s.files[g])
}

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

// locate returns the group of sample n and the sample's number in the group. It panics if there is no sample n.
func (s *Set) locate(n int64) (g, i int) {
	if n < 0 || n >= s.total {
		panic(fmt.Sprintf("sample %d of %d", n, s.total))
	}
	g = sort.Search(len(s.first), func(i int) bool { return s.first[i] > n }) - 1
	return g, int(n - s.first[g])
}

// Part returns the file and the bytes of one column of sample n, and false if the sample has no such part.
func (s *Set) Part(n int64, column int) (file int, e sample.Extent, ok bool) {
	g, i := s.locate(n)
	if c := s.in[g][column]; c >= 0 {
		file, e, ok = s.groups[g].part(i, c)
	}
	return s.files[g] + file, e, ok
}

// Key returns the key of sample n, or "" if the sample has none.
func (s *Set) Key(n int64) string {
	g, i := s.locate(n)
	return s.groups[g].key(i)
}

// Name returns how messages call sample n: its number, its key if it has one, and its file.
func (s *Set) Name(n int64) string {
	g, i := s.locate(n)
	key := s.groups[g].key(i)
	if _, loose := s.groups[g].(*Loose); loose {
		return fmt.Sprintf("sample %d (%.200q)", n, key)
	}
	file, _ := s.groups[g].file(0)
	if key != "" {
		return fmt.Sprintf("sample %d (%.200q, number %d of %s)", n, key, i, file)
	}
	return fmt.Sprintf("sample %d (number %d of %s)", n, i, file)
}

// Fingerprint returns a short text that is equal for equal data sets: the same names of files without their
// directories, the same sizes, keys, columns and places of samples. A data set that was copied elsewhere keeps its
// fingerprint. Content that was changed in place, at the same size, is not noticed.
func (s *Set) Fingerprint() string {
	h := sha256.New()
	var b []byte
	text := func(t string) { b = append(binary.AppendUvarint(b, uint64(len(t))), t...) }
	for _, g := range s.groups {
		if p, ok := g.(packed); ok { // the names of loose files are in their keys
			text(path.Base(p.File()))
			b = binary.AppendVarint(b, p.Size())
		}
		b = binary.AppendVarint(b, int64(g.samples()))
		b = binary.AppendVarint(b, int64(len(g.named())))
		for _, c := range g.named() {
			text(c)
		}
		for i := range g.samples() {
			text(g.key(i))
			for c := range g.named() {
				_, e, ok := g.part(i, c)
				if !ok {
					e = sample.Absent()
				}
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
