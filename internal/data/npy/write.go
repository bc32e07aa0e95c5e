// SPDX-License-Identifier: Apache-2.0

package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

const (
	opWrite = "write .npy file"
	// align is the alignment of the first element in the file.
	align = 64
	// growth is the number of digits that the header keeps free for the number of rows.
	growth = 21
)

// Header returns the header of version 1.0 for an array, byte by byte as numpy.save writes it. An error of kind Invalid
// says that NumPy has no such data type, or that Open would refuse the shape.
func Header(dtype format.DType, shape []int64) ([]byte, error) { return header(dtype, shape, "") }

// header is Header for the file with this name.
func header(dtype format.DType, shape []int64, file string) ([]byte, error) {
	invalid := func(fix, msg string, args ...any) error {
		return errs.New(errs.Invalid, opWrite, file, fmt.Sprintf(msg, args...)).WithFix(fix)
	}
	name := descrOf(dtype)
	if name == "" {
		return nil, invalid("write the elements as integers of the same size",
			"the dtype is %q, expected a type of NumPy", dtype)
	}
	if len(shape) == 0 || len(shape) > maxDimensions || slices.Min(shape) < 0 {
		return nil, invalid("pass the size of each dimension",
			"the shape is %v, expected 1 to %d dimensions from 0 on", shape, maxDimensions)
	}
	total, ok := elements(shape, int64(dtype.Bits()/8))
	if !ok {
		return nil, invalid("write several files", "an array of shape %v has more than 2^63 bytes", shape)
	}
	if total == 0 && shape[0] > 0 {
		return nil, invalid("write rows with at least one element", "the rows of shape %v have no elements", shape)
	}
	text := "{'descr': '" + name + "', 'fortran_order': False, 'shape': " + tuple(shape) + ", }"
	text += strings.Repeat(" ", growth-len(strconv.FormatInt(shape[0], 10)))
	before := len(magic) + 2 + 2
	// NumPy writes 64 spaces, not none, if the header is already aligned.
	text += strings.Repeat(" ", align-(before+len(text)+1)%align) + "\n"
	b := append([]byte(magic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...), nil
}

// tuple returns a shape as a Python tuple.
func tuple(shape []int64) string {
	if len(shape) == 1 {
		return fmt.Sprintf("(%d,)", shape[0])
	}
	return "(" + strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]") + ")"
}

// Writer writes a .npy file row by row. The memory of a Writer does not depend on the size of the array. Several
// goroutines must not use one Writer at the same time.
type Writer struct {
	w    io.Writer
	name string
	row  int64 // bytes of a row
	rows int64 // of the array
	done int64 // rows written so far
	err  error // of the first write that failed
}

// NewWriter writes the header of an array and returns a Writer of its rows. The path or URL `name` is for messages. See
// Header for the errors about dtype and shape. Each Add writes once, so a caller with short rows should pass a buffered
// writer.
func NewWriter(w io.Writer, name string, dtype format.DType, shape []int64) (*Writer, error) {
	b, err := header(dtype, shape, name)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, errs.Wrap(opWrite, name, errs.WithoutPath(err))
	}
	row, _ := elements(shape[1:], int64(dtype.Bits()/8))
	return &Writer{w: w, name: name, row: row, rows: shape[0]}, nil
}

// Add appends a row of little-endian elements. After a failed write, Add and Finish return the same error.
func (w *Writer) Add(row []byte) error {
	switch {
	case w.err != nil:
		return w.err
	case w.done == w.rows:
		return errs.New(errs.Invalid, opWrite, w.name, fmt.Sprintf("the array has %d rows, and this is one more", w.rows)).
			WithFix("pass the number of rows to NewWriter")
	case int64(len(row)) != w.row:
		msg := fmt.Sprintf("row %d has %d bytes, expected %d", w.done, len(row), w.row)
		return errs.New(errs.Invalid, opWrite, w.name, msg).WithFix("pass whole rows of the dtype")
	}
	if _, err := w.w.Write(row); err != nil {
		w.err = errs.Wrap(opWrite, w.name, errs.WithoutPath(err))
		return w.err
	}
	w.done++
	return nil
}

// Finish reports whether the file is whole. Missing rows are an error of kind Invalid.
func (w *Writer) Finish() error {
	if w.err == nil && w.done != w.rows {
		return errs.New(errs.Invalid, opWrite, w.name, fmt.Sprintf("%d rows were added, expected %d", w.done, w.rows)).
			WithFix("add the missing rows, or pass their number to NewWriter")
	}
	return w.err
}
