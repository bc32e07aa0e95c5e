// SPDX-License-Identifier: Apache-2.0

package megatron

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

const opWrite = "write Megatron dataset"

// Writer writes a dataset: first the tokens of all sequences, then the index. The memory of a Writer is 4 bytes for
// each sequence, 8 for each document, and 1 for each mode. Several goroutines must not use one Writer at the same time.
type Writer struct {
	bin        io.Writer
	name       string
	code       byte
	item       int64
	multimodal bool
	lengths    []int32
	documents  []int64
	modes      []int8
	err        error // of the first write that failed
}

// NewWriter returns a Writer of tokens to the file bin with the path or URL `name`. The dtype is U8, I8, I16, I32, I64
// or U16: readers agree about no other type. A multimodal dataset has a mode for each sequence.
//
// Each Add writes once, so a caller with short sequences should pass a buffered writer.
func NewWriter(bin io.Writer, name string, dtype format.DType, multimodal bool) (*Writer, error) {
	for code, d := range codes() {
		if d == dtype && d != "" && code != 6 && code != 7 {
			return &Writer{bin: bin, name: name, code: byte(code), item: int64(d.Bits() / 8), multimodal: multimodal,
				documents: []int64{0}}, nil
		}
	}
	return nil, errs.New(errs.Invalid, opWrite, name,
		fmt.Sprintf("the dtype is %q, expected U8, I8, I16, I32, I64 or U16", dtype)).
		WithFix("use U16 for fewer than 65,500 different tokens, and I32 for more")
}

// Add appends a sequence of little-endian tokens to the current document. A sequence can be empty. The mode must be 0
// if the dataset is not multimodal. After a failed write, Add and WriteIndex return the same error.
func (w *Writer) Add(tokens []byte, mode int8) error {
	if w.err != nil {
		return w.err
	}
	invalid := func(fix, msg string, args ...any) error {
		text := fmt.Sprintf("sequence %d: ", len(w.lengths)) + fmt.Sprintf(msg, args...)
		return errs.New(errs.Invalid, opWrite, w.name, text).WithFix(fix)
	}
	size := int64(len(tokens))
	switch {
	case size%w.item != 0:
		return invalid("pass whole tokens of the dtype", "it has %d bytes, expected a multiple of %d", size, w.item)
	case size > sample.MaxPart || size/w.item > math.MaxInt32:
		return invalid("split the sequence", "it has %d bytes, expected at most %d and at most %d tokens", size,
			int64(sample.MaxPart), math.MaxInt32)
	case mode != 0 && !w.multimodal:
		return invalid("make a multimodal writer", "its mode is %d, expected 0 in a dataset without modes", mode)
	}
	if _, err := w.bin.Write(tokens); err != nil {
		w.err = errs.Wrap(opWrite, w.name, errs.WithoutPath(err))
		return w.err
	}
	w.lengths = append(w.lengths, int32(size/w.item))
	if w.multimodal {
		w.modes = append(w.modes, mode)
	}
	return nil
}

// EndDocument ends the current document, which can be empty. The next sequence begins another document.
func (w *Writer) EndDocument() { w.documents = append(w.documents, int64(len(w.lengths))) }

// WriteIndex writes the index to the .idx file with the path or URL `name`. If sequences follow the last end of a
// document, WriteIndex writes nothing and returns an error of kind Invalid.
func (w *Writer) WriteIndex(idx io.Writer, name string) error {
	if w.err != nil {
		return w.err
	}
	if last := w.documents[len(w.documents)-1]; last != int64(len(w.lengths)) {
		return errs.New(errs.Invalid, opWrite, name,
			fmt.Sprintf("the last document ends before sequence %d, expected %d", last, len(w.lengths))).
			WithFix("call EndDocument after the last sequence of each document")
	}
	out := bufio.NewWriterSize(idx, 64<<10)
	var b []byte
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, version)
	b = append(b, w.code)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.lengths)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.documents)))
	_, _ = out.Write(b) // Flush returns the first error
	for _, n := range w.lengths {
		_, _ = out.Write(binary.LittleEndian.AppendUint32(out.AvailableBuffer(), uint32(n)))
	}
	at := uint64(0)
	for _, n := range w.lengths {
		_, _ = out.Write(binary.LittleEndian.AppendUint64(out.AvailableBuffer(), at))
		at += uint64(n) * uint64(w.item)
	}
	for _, d := range w.documents {
		_, _ = out.Write(binary.LittleEndian.AppendUint64(out.AvailableBuffer(), uint64(d)))
	}
	for _, m := range w.modes {
		_ = out.WriteByte(byte(m))
	}
	return errs.Wrap(opWrite, name, errs.WithoutPath(out.Flush()))
}
