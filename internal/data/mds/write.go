// SPDX-License-Identifier: Apache-2.0

package mds

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/chunk"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// DefaultSizeLimit is the limit of a shard that mosaicml-streaming uses by default.
const DefaultSizeLimit = 1 << 26

// Options change how a Writer works.
type Options struct {
	// SizeLimit is the number of bytes from which a sample goes to the next shard, or 0 for no limit. A shard has at
	// most 4 GiB in any case.
	SizeLimit int64
	// Hashes lists the algorithms of the hashes in the index: none, "sha1", "sha256" or both.
	Hashes []string
}

// Writer collects the samples of one shard after the other. A Writer holds a shard in memory, because the
// table of offsets stands before the samples. A Writer is for one goroutine.
type Writer struct {
	shard   Shard // what all shards have in common
	order   []int // of the caller's columns, by name
	config  []byte
	offsets []uint32 // where each sample ends in samples
	samples []byte
}

// NewWriter returns a Writer for samples with these columns. The values of a column come encoded already. A column of a
// known encoding must have the size that EncodingSize returns. The order of columns is free: the shards have the
// columns in the order of their names, as mosaicml-streaming writes them.
func NewWriter(columns []Column, options Options) (*Writer, error) {
	fail := func(fix, format string, args ...any) error {
		return errs.New(errs.Invalid, "write MDS shard", "", fmt.Sprintf(format, args...)).WithFix(fix)
	}
	if len(columns) == 0 {
		return nil, fail("name at least one column", "there are no columns")
	}
	if twice := duplicate(columns); twice != "" {
		return nil, fail("rename one of the columns", "%s", twice)
	}
	for _, c := range columns {
		if !utf8.ValidString(c.Name) || !utf8.ValidString(c.Encoding) {
			return nil, fail("use names in UTF-8", "column %.100q with encoding %.100q is not UTF-8", c.Name, c.Encoding)
		}
		if size, known := EncodingSize(c.Encoding); known && size != c.Size {
			return nil, fail(fmt.Sprintf("use size %d", size), "column %.100q with encoding %.100q has size %d, expected %d",
				c.Name, c.Encoding, c.Size, size)
		}
		if c.Size < 0 || c.Size > math.MaxUint32 {
			return nil, fail("use 0 for a variable size", "column %.100q has size %d, expected 0 to %d", c.Name, c.Size,
				uint32(math.MaxUint32))
		}
	}
	if options.SizeLimit < 0 || options.SizeLimit > math.MaxUint32 {
		return nil, fail("use 0 for no limit", "the size limit is %d bytes, expected 0 to %d", options.SizeLimit,
			uint32(math.MaxUint32))
	}
	hashes := slices.Clone(options.Hashes)
	slices.Sort(hashes)
	for i, name := range hashes {
		if NewHash(name) == nil || i > 0 && hashes[i-1] == name {
			return nil, fail(`use "sha1", "sha256" or none`, "hash %.100q is unknown, or is there twice", name)
		}
	}

	w := &Writer{shard: Shard{Hashes: hashes, SizeLimit: options.SizeLimit}}
	for i := range columns {
		w.order = append(w.order, i)
	}
	slices.SortFunc(w.order, func(a, b int) int { return cmp.Compare(columns[a].Name, columns[b].Name) })
	for _, i := range w.order {
		w.shard.Columns = append(w.shard.Columns, columns[i])
	}
	w.config = configText(&w.shard)
	return w, nil
}

// NewHash returns a hash function by the name that mosaicml-streaming gives it, or nil.
func NewHash(name string) hash.Hash {
	switch name {
	case "sha1":
		return sha1.New()
	case "sha256":
		return sha256.New()
	}
	return nil
}

// Len returns the number of samples since the last Flush.
func (w *Writer) Len() int { return len(w.offsets) }

// Size returns the size in bytes of the shard that Flush would write now.
func (w *Writer) Size() int64 {
	return chunk.Start(len(w.offsets)) + int64(len(w.config)) + int64(len(w.samples))
}

// Fits reports whether the shard stays within the size limit with this sample. If Fits returns false and the shard has
// samples, call Flush before Add. The first sample of a shard can be larger than the limit.
func (w *Writer) Fits(parts ...[]byte) bool {
	return w.shard.SizeLimit == 0 || w.with(parts) <= w.shard.SizeLimit
}

// with returns the size of the shard with one more sample.
func (w *Writer) with(parts [][]byte) int64 {
	size := w.Size() + 4
	for i, p := range parts {
		size += int64(len(p))
		if i < len(w.order) && w.shard.Columns[i].Size == 0 { // the number of variable columns counts, not which
			size += 4
		}
	}
	return size
}

// Add appends a sample with one encoded value for each column, in the order of the columns of NewWriter. After an
// error, the shard is as it was before. Add copies the values.
func (w *Writer) Add(parts ...[]byte) error {
	fail := func(fix, format string, args ...any) error {
		why := fmt.Sprintf("sample %d: ", w.Len()) + fmt.Sprintf(format, args...)
		return errs.New(errs.Invalid, "write MDS shard", "", why).WithFix(fix)
	}
	if len(parts) != len(w.order) {
		return fail("give one value for each column", "%d values, expected %d", len(parts), len(w.order))
	}
	for i, from := range w.order {
		if c := w.shard.Columns[i]; c.Size > 0 && int64(len(parts[from])) != c.Size {
			return fail("encode the value as the column says", "column %.100q with encoding %.100q has %d bytes, expected %d",
				c.Name, c.Encoding, len(parts[from]), c.Size)
		}
	}
	if size := w.with(parts); size > math.MaxUint32 {
		return fail("flush the shard before", "the shard would have %d bytes, at most %d are possible", size,
			uint32(math.MaxUint32))
	}
	for i, from := range w.order {
		if w.shard.Columns[i].Size == 0 {
			w.samples = binary.LittleEndian.AppendUint32(w.samples, uint32(len(parts[from])))
		}
	}
	for _, from := range w.order {
		w.samples = append(w.samples, parts[from]...)
	}
	w.offsets = append(w.offsets, uint32(len(w.samples)))
	return nil
}

// Flush writes the shard to `out` and returns its entry for the index. After that, the Writer has no samples and starts
// the next shard. The parameter basename is the name of the file relative to the directory of the index; ShardName
// returns the usual names. A shard without samples is an error of kind Invalid.
//
// If writing fails, the Writer keeps its samples, and Flush can be called again with another file.
func (w *Writer) Flush(out io.Writer, basename string) (Shard, error) {
	fail := func(fix, why string) (Shard, error) {
		return Shard{}, errs.New(errs.Invalid, "write MDS shard", basename, why).WithFix(fix)
	}
	if w.Len() == 0 {
		return fail("add a sample before", "the shard has no samples")
	}
	if why := outside(basename); why != "" {
		return fail("use a name such as "+ShardName(0), why)
	}

	start := chunk.Start(w.Len()) + int64(len(w.config))
	head := make([]byte, 0, start)
	head = binary.LittleEndian.AppendUint32(head, uint32(w.Len()))
	head = binary.LittleEndian.AppendUint32(head, uint32(start))
	for _, end := range w.offsets {
		head = binary.LittleEndian.AppendUint32(head, uint32(start)+end)
	}
	head = append(head, w.config...)
	for _, part := range [][]byte{head, w.samples} {
		if _, err := out.Write(part); err != nil {
			return Shard{}, errs.Wrap("write MDS shard", basename, err)
		}
	}

	shard := w.shard
	shard.Columns, shard.Hashes = slices.Clone(shard.Columns), slices.Clone(shard.Hashes)
	shard.Samples = int64(w.Len())
	shard.Raw = File{Basename: basename, Bytes: w.Size(), Hashes: map[string]string{}}
	for _, name := range shard.Hashes {
		h := NewHash(name)
		h.Write(head)
		h.Write(w.samples)
		shard.Raw.Hashes[name] = hex.EncodeToString(h.Sum(nil))
	}
	w.offsets, w.samples = w.offsets[:0], w.samples[:0]
	return shard, nil
}

// ShardName returns the name that mosaicml-streaming gives shard i, such as "shard.00000.mds".
func ShardName(i int) string { return fmt.Sprintf("shard.%05d.mds", i) }

// WriteIndex writes index.json for these shards in this order. The bytes are those that mosaicml-streaming writes.
func WriteIndex(out io.Writer, shards []Shard) error {
	var b bytes.Buffer
	b.WriteString(`{"shards": [`)
	for i := range shards {
		if why := wrong(&shards[i]); why != "" {
			return errs.New(errs.Invalid, "write MDS index", IndexName, fmt.Sprintf("shard %d: %s", i, why)).WithFix(
				"use the entry that Flush or ParseIndex returned")
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.Write(recordText(&shards[i]))
	}
	fmt.Fprintf(&b, `], "version": %d}`, version)
	if _, err := out.Write(b.Bytes()); err != nil {
		return errs.Wrap("write MDS index", IndexName, err)
	}
	return nil
}

// wrong returns why an entry cannot be in an index, or "".
func wrong(s *Shard) string {
	if len(s.Columns) == 0 {
		return "it has no columns, expected at least one"
	}
	files := []File{s.Raw}
	if s.Zip != nil {
		files = append(files, *s.Zip)
	}
	for _, f := range files {
		if why := outside(f.Basename); why != "" {
			return why
		}
	}
	if s.Samples < 0 || s.Samples > math.MaxUint32 {
		return fmt.Sprintf("it has %d samples, expected 0 to %d", s.Samples, uint32(math.MaxUint32))
	}
	return duplicate(s.Columns)
}
