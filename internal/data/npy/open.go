// SPDX-License-Identifier: Apache-2.0

// Package npy reads and writes the .npy files of NumPy, with a sample in each row of the array.
package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

const (
	opOpen = "read .npy header"
	magic  = "\x93NUMPY"
	// maxHeader is the most bytes that the description of an array can have. Only structured arrays need more.
	maxHeader = 64 << 10
	// maxDimensions is the most dimensions of an array in NumPy 2.
	maxDimensions = 64
	// maxRows is the most rows of an array. Their table has 3 GiB, and a sample of one number is rarely meant.
	maxRows = 1 << 28
	// firstRead is the number of bytes that Open reads at once. Nearly all headers have 128 bytes.
	firstRead = 4 << 10

	fixCopy = "the file is damaged or truncated: copy it again, or save the array again"
)

// Column is the name of the only column of an array: a row.
const Column = "row"

// Array is a parsed .npy file.
type Array struct {
	// Table lists the rows of the array, along dimension 0, in its column "row".
	Table *sample.Table
	// DType is the type of an element. All types are little-endian.
	DType format.DType
	// Shape has the size of each dimension. An array has at least one dimension.
	Shape []int64
	// DataOffset is the offset of the first element in the file.
	DataOffset int64
}

// Open reads the header of a .npy file of `size` bytes, version 1.0, 2.0 or 3.0. The path or URL `name` is for messages
// and the table. The size of the file must be exactly that of the header and the elements.
//
// A damaged file is an error of kind Corrupt. Open returns an error of kind Unsupported for arrays that have no rows of
// plain numbers. Examples are Python objects, structures, text, big-endian numbers, a single number, and columns first
// (Fortran order). More than 2^28 rows are Unsupported, too, because their table would need too much memory.
func Open(r io.ReaderAt, size int64, name string) (*Array, error) {
	d, err := Describe(r, size, name)
	if err != nil {
		return nil, err
	}
	a := &Array{DType: d.DType, Shape: d.Shape, DataOffset: d.DataOffset}
	return a, parser{name: name}.rows(a, d.Fortran, size, size-d.DataOffset)
}

// Description is what the header of a .npy file says.
type Description struct {
	DType      format.DType // of an element; all types are little-endian
	Shape      []int64      // the size of each dimension; empty for a single number
	Fortran    bool         // the columns of the array are stored one after the other
	DataOffset int64        // of the first element in the file
}

// Describe reads the header of a .npy file, as Open does, and does not list the rows. So Describe needs little memory
// for arrays of any shape.
func Describe(r io.ReaderAt, size int64, name string) (*Description, error) {
	p := parser{name: name}
	text, major, dataOffset, err := p.read(r, size)
	if err != nil {
		return nil, err
	}
	d, err := p.dict(text, major < 3)
	if err != nil {
		return nil, err
	}
	out := &Description{Shape: d.shape, Fortran: d.fortran, DataOffset: dataOffset}
	if out.DType, err = p.dtype(d.descr); err != nil {
		return nil, err
	}
	total, ok := elements(d.shape, int64(out.DType.Bits()/8))
	if !ok || total != size-dataOffset {
		return nil, p.corrupt("the file has %d bytes after its header, expected %s for shape %v of %s", size-dataOffset,
			bytesText(total, ok), d.shape, out.DType)
	}
	return out, nil
}

// elements returns the bytes of an array, and false if the number is above all sizes of files.
func elements(shape []int64, item int64) (int64, bool) {
	total, ok := item, true
	for _, n := range shape {
		if n == 0 {
			return 0, true
		}
		if ok = ok && total <= math.MaxInt64/n; ok {
			total *= n
		}
	}
	return total, ok
}

// bytesText returns a number of bytes as text.
func bytesText(n int64, ok bool) string {
	if !ok {
		return "more than 2^63"
	}
	return fmt.Sprint(n)
}

// rows lists the rows of an array with `total` bytes.
func (p parser) rows(a *Array, fortran bool, size, total int64) error {
	switch {
	case len(a.Shape) == 0:
		return p.unsupported("save it as numpy.reshape(a, 1)", "the array is a single number, expected rows")
	case fortran && len(a.Shape) > 1:
		return p.unsupported("save numpy.ascontiguousarray(a)",
			"the array of shape %v is in Fortran order, and its rows are not contiguous", a.Shape)
	case total == 0 && a.Shape[0] > 0:
		return p.unsupported("save an array that has elements", "the rows of shape %v have no elements", a.Shape)
	}
	n := a.Shape[0]
	if n > maxRows {
		return p.unsupported("save the array with longer rows, such as numpy.reshape(a, (-1, 1024)), or in several files",
			"the array has %d rows, expected at most %d", n, maxRows)
	}
	row := total / max(n, 1)
	if row > sample.MaxPart {
		return p.unsupported("save the array with smaller rows, such as numpy.reshape(a, (-1, 1024))",
			"a row has %d bytes, expected at most %d", row, int64(sample.MaxPart))
	}
	a.Table = sample.NewTable(p.name, size, []string{Column}, int(n))
	for i := range n {
		if err := a.Table.Add("", sample.Extent{Offset: a.DataOffset + i*row, Size: row}); err != nil {
			return err
		}
	}
	return nil
}

// parser reads the header of a .npy file.
type parser struct{ name string }

// corrupt returns an error about a damaged file.
func (p parser) corrupt(msg string, args ...any) error {
	return errs.New(errs.Corrupt, opOpen, p.name, fmt.Sprintf(msg, args...)).WithFix(fixCopy)
}

// unsupported returns an error about an array that has no rows which we can read.
func (p parser) unsupported(fix, msg string, args ...any) error {
	return errs.New(errs.Unsupported, opOpen, p.name, fmt.Sprintf(msg, args...)).WithFix(fix)
}

// read returns the text that describes the array, the version of the file, and the offset of the first element.
func (p parser) read(r io.ReaderAt, size int64) (text string, major byte, dataOffset int64, err error) {
	const before = len(magic) + 2 // the magic and the version
	if size < int64(before)+2 {
		return "", 0, 0, p.corrupt("the file has %d bytes, expected at least %d", size, before+2)
	}
	b := make([]byte, min(size, firstRead))
	if err := sample.ReadFull(r, b, 0, opOpen, p.name); err != nil {
		return "", 0, 0, err
	}
	if got := string(b[:len(magic)]); got != magic {
		msg := fmt.Sprintf("the file begins with %q, expected %q", got, magic)
		return "", 0, 0, errs.New(errs.Corrupt, opOpen, p.name, msg).
			WithFix("check that this is a .npy file: a .npz file is an archive of them")
	}
	major, minor := b[len(magic)], b[len(magic)+1]
	var length, start int64
	switch {
	case minor != 0 || major < 1 || major > 3:
		return "", 0, 0, p.unsupported("save the array again with numpy.save",
			"the file has version %d.%d, expected 1.0, 2.0 or 3.0", major, minor)
	case major == 1:
		start = int64(before) + 2
		length = int64(binary.LittleEndian.Uint16(b[before:]))
	case size < int64(before)+4:
		return "", 0, 0, p.corrupt("the file has %d bytes, expected at least %d", size, before+4)
	default:
		start = int64(before) + 4
		length = int64(binary.LittleEndian.Uint32(b[before:]))
	}
	if length > size-start {
		return "", 0, 0, p.corrupt("the header has %d bytes, expected at most %d before the end of the file", length,
			size-start)
	}
	if length > maxHeader {
		return "", 0, 0, p.unsupported("save each field of a structured array as an array of its own",
			"the header has %d bytes, expected at most %d", length, maxHeader)
	}
	if have := int64(len(b)); start+length > have {
		b = append(b, make([]byte, start+length-have)...)
		if err := sample.ReadFull(r, b[have:], have, opOpen, p.name); err != nil {
			return "", 0, 0, err
		}
	}
	text = string(b[start : start+length])
	if major == 3 && !utf8.ValidString(text) {
		return "", 0, 0, p.corrupt("the header %.60q is not UTF-8", text)
	}
	return text, major, start + length, nil
}
