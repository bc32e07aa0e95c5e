// SPDX-License-Identifier: Apache-2.0

// Package megatron reads and writes the indexed datasets of Megatron: tokens in a .bin file and their index in an .idx
// file.
package megatron

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

const (
	opOpen = "read Megatron index"
	// magic begins each .idx file.
	magic      = "MMIDIDX\x00\x00"
	version    = 1
	headerSize = len(magic) + 8 + 1 + 8 + 8
	// chunk is the number of sequences that Open reads in one piece: 1 MiB of pointers.
	chunk = 128 << 10

	fixCopy = "the index is damaged, truncated, or of another .bin file: copy both files again, or pack them again"
)

// Column is the name of the only column of an index: the tokens of a sequence.
const Column = "tokens"

// Options changes how Open reads an index. The zero value is the default.
type Options struct {
	// AllowFloat accepts the dtype codes 6 and 7, as float64 and float32 of Megatron-core. Forks of Megatron give the
	// two codes other meanings, so Open refuses both codes by default.
	AllowFloat bool
}

// Index is a parsed .idx file.
type Index struct {
	// Table lists the sequences of the .bin file in its column "tokens".
	Table *sample.Table
	// DType is the type of one token.
	DType format.DType
	// Documents has one entry more than there are documents. The first sequence of document i is
	// Documents[i], and its last is Documents[i+1]-1. A document without sequences has two equal entries.
	Documents []int64
	// Modes has the mode of each sequence of a multimodal dataset, and is nil for all others.
	Modes []int8
	// Contiguous reports whether the sequences follow each other in the .bin file without a gap, from its first byte to
	// its last. Megatron writes such files. Writers that remove duplicates write others.
	Contiguous bool
}

// codes returns the data types by their codes in an .idx file.
func codes() [9]format.DType {
	return [9]format.DType{1: format.U8, 2: format.I8, 3: format.I16, 4: format.I32, 5: format.I64, 6: format.F64,
		7: format.F32, 8: format.U16}
}

// Open reads an .idx file of `size` bytes from r. The paths or URLs `name` of the .idx file and bin of the .bin file
// are for messages and for the table. Open does not read the .bin file and needs only its size, binSize.
//
// Open accepts sequences at any position inside the .bin file, see Index.Contiguous. If the sequences follow each
// other, the last one must end at the end of the .bin file. A damaged index is an error of kind Corrupt. Open returns
// an error of kind Unsupported for other versions, for the dtype codes 6 and 7, and for sequences of 4 GiB or more.
func Open(r io.ReaderAt, size int64, name, bin string, binSize int64, o Options) (*Index, error) {
	p := parser{r: r, size: size, name: name}
	x, n, docs, err := p.header(o)
	if err != nil {
		return nil, err
	}
	x.Table = sample.NewTable(bin, binSize, []string{Column}, int(n))
	if err := p.sequences(x, n, binSize); err != nil {
		return nil, err
	}
	if err := p.documents(x, n, docs); err != nil {
		return nil, err
	}
	return x, p.modes(x, n, docs)
}

// parser reads the parts of an .idx file.
type parser struct {
	r    io.ReaderAt
	size int64
	name string
}

// fail returns an error about the .idx file.
func (p parser) fail(k errs.Kind, fix, msg string, args ...any) error {
	return errs.New(k, opOpen, p.name, fmt.Sprintf(msg, args...)).WithFix(fix)
}

// corrupt returns an error about a damaged .idx file.
func (p parser) corrupt(msg string, args ...any) error {
	return p.fail(errs.Corrupt, fixCopy, msg, args...)
}

// header reads the dtype, the number of sequences and the number of document indices. The result of header allows
// allocations: the file has room for all entries.
func (p parser) header(o Options) (x *Index, sequences, documents int64, err error) {
	if p.size < int64(headerSize) {
		return nil, 0, 0, p.corrupt("the index has %d bytes, expected at least %d", p.size, headerSize)
	}
	var h [headerSize]byte
	if err := sample.ReadFull(p.r, h[:], 0, opOpen, p.name); err != nil {
		return nil, 0, 0, err
	}
	if got := string(h[:len(magic)]); got != magic {
		return nil, 0, 0, p.fail(errs.Corrupt, "check that this is the .idx file of a Megatron dataset",
			"the index begins with %q, expected %q", got, magic)
	}
	if v := binary.LittleEndian.Uint64(h[9:]); v != version {
		return nil, 0, 0, p.fail(errs.Unsupported, "pack the dataset again with Megatron-core",
			"the index has version %d, expected %d", v, version)
	}
	x = &Index{}
	if x.DType, err = p.dtype(h[17], o); err != nil {
		return nil, 0, 0, err
	}
	n, d := binary.LittleEndian.Uint64(h[18:]), binary.LittleEndian.Uint64(h[26:])
	room := uint64(p.size) - uint64(headerSize)
	if n > room/12 || d > room/8 {
		return nil, 0, 0, p.corrupt("the index of %d bytes has no room for %d sequences and %d document indices",
			p.size, n, d)
	}
	if d == 0 {
		return nil, 0, 0, p.corrupt("the index has no document indices, expected at least one")
	}
	if rest := room - 12*n - 8*d; rest != 0 && rest != n {
		whole := uint64(headerSize) + 12*n + 8*d
		return nil, 0, 0, p.corrupt("the index has %d bytes, expected %d for %d sequences and %d document indices, "+
			"or %d with modes", p.size, whole, n, d, whole+n)
	}
	return x, int64(n), int64(d), nil
}

// dtype returns the data type of a code.
func (p parser) dtype(code byte, o Options) (format.DType, error) {
	known := codes()
	switch {
	case code == 0 || int(code) >= len(known):
		return "", p.corrupt("the dtype code is %d, expected 1 to 8", code)
	case (code == 6 || code == 7) && !o.AllowFloat:
		return "", p.fail(errs.Unsupported,
			"allow floats if Megatron-core wrote the dataset, or pack it again with an integer dtype",
			"the dtype code is %d, which is %s in Megatron-core and another type in forks of Megatron", code, known[code])
	}
	return known[code], nil
}

// sequences reads the lengths and the pointers of n sequences.
func (p parser) sequences(x *Index, n, binSize int64) error {
	item := int64(x.DType.Bits() / 8)
	room := min(n, chunk)
	lengths, pointers := make([]byte, 4*room), make([]byte, 8*room)
	end := int64(0) // of the sequences so far, if they follow each other
	x.Contiguous = true
	for first := int64(0); first < n; first += chunk {
		count := min(chunk, n-first)
		lengths, pointers = lengths[:4*count], pointers[:8*count]
		if err := sample.ReadFull(p.r, lengths, int64(headerSize)+4*first, opOpen, p.name); err != nil {
			return err
		}
		if err := sample.ReadFull(p.r, pointers, int64(headerSize)+4*n+8*first, opOpen, p.name); err != nil {
			return err
		}
		for i := range count {
			length := int64(int32(binary.LittleEndian.Uint32(lengths[4*i:])))
			at := int64(binary.LittleEndian.Uint64(pointers[8*i:]))
			if length < 0 {
				return p.corrupt("sequence %d has %d tokens, expected 0 to %d", first+i, length, math.MaxInt32)
			}
			bytes := length * item
			if at < 0 || at > binSize || bytes > binSize-at {
				return p.corrupt("sequence %d has %d bytes at offset %d of %s, which has %d bytes", first+i, bytes, at,
					x.Table.File(), binSize)
			}
			if bytes > sample.MaxPart {
				return p.fail(errs.Unsupported, "pack the dataset again in shorter sequences",
					"sequence %d has %d bytes, expected at most %d", first+i, bytes, int64(sample.MaxPart))
			}
			if err := x.Table.Add("", sample.Extent{Offset: at, Size: bytes}); err != nil {
				return err
			}
			x.Contiguous = x.Contiguous && at == end
			end = at + bytes
		}
	}
	if x.Contiguous && end != binSize {
		return p.corrupt("the last sequence ends at offset %d of %s, expected its end at %d", end, x.Table.File(), binSize)
	}
	return nil
}

// documents reads the document indices.
func (p parser) documents(x *Index, n, count int64) error {
	x.Documents = make([]int64, 0, count)
	b := make([]byte, 8*min(count, chunk))
	last := int64(0)
	for first := int64(0); first < count; first += chunk {
		b = b[:8*min(chunk, count-first)]
		if err := sample.ReadFull(p.r, b, int64(headerSize)+12*n+8*first, opOpen, p.name); err != nil {
			return err
		}
		for i := range len(b) / 8 {
			d := int64(binary.LittleEndian.Uint64(b[8*i:]))
			at := first + int64(i)
			if at == 0 && d != 0 {
				return p.corrupt("document index 0 is %d, expected 0", d)
			}
			if d < last || d > n {
				return p.corrupt("document index %d is %d, expected %d to %d", at, d, last, n)
			}
			x.Documents = append(x.Documents, d)
			last = d
		}
	}
	if last != n {
		return p.corrupt("the last document index is %d, expected %d, the number of sequences", last, n)
	}
	return nil
}

// modes reads the modes, if the file has some.
func (p parser) modes(x *Index, n, documents int64) error {
	at := int64(headerSize) + 12*n + 8*documents
	if p.size == at {
		return nil
	}
	x.Modes = make([]int8, 0, n)
	b := make([]byte, min(n, 8*chunk))
	for ; at < p.size; at += int64(len(b)) {
		b = b[:min(int64(len(b)), p.size-at)]
		if err := sample.ReadFull(p.r, b, at, opOpen, p.name); err != nil {
			return err
		}
		for _, mode := range b {
			x.Modes = append(x.Modes, int8(mode))
		}
	}
	return nil
}
