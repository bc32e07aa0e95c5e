// SPDX-License-Identifier: Apache-2.0

package tfrecord

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const opWrite = "write TFRecord file"

// Writer writes a TFRecord file and, if the caller wants one, its text index. Several goroutines must not use one
// Writer at the same time.
type Writer struct {
	out     *bufio.Writer
	index   *bufio.Writer // nil without an index
	name    string
	at      int64 // size of the file so far
	records int64
	err     error // of the first write that failed
}

// NewWriter returns a Writer to the file w with the path or URL `name`. If index is not nil, the Writer writes the text
// index of the file to index. The memory of a Writer does not depend on the number of records.
func NewWriter(w, index io.Writer, name string) *Writer {
	out := &Writer{out: bufio.NewWriterSize(w, 64<<10), name: name}
	if index != nil {
		out.index = bufio.NewWriterSize(index, 64<<10)
	}
	return out
}

// Add appends a record, which can be empty. After a failed write, Add and Flush return the same error.
func (w *Writer) Add(data []byte) error {
	if w.err != nil {
		return w.err
	}
	if int64(len(data)) > sample.MaxPart {
		return errs.New(errs.Invalid, opWrite, w.name, fmt.Sprintf("record %d has %d bytes, expected at most %d", w.records,
			len(data), int64(sample.MaxPart))).WithFix("split the record")
	}
	head := binary.LittleEndian.AppendUint64(make([]byte, 0, before), uint64(len(data)))
	head = binary.LittleEndian.AppendUint32(head, maskedSum(head))
	_, _ = w.out.Write(head) // after an error, all writes return it
	_, _ = w.out.Write(data)
	if _, err := w.out.Write(binary.LittleEndian.AppendUint32(nil, maskedSum(data))); err != nil {
		return w.fail(err)
	}
	if w.index != nil {
		writeLine(w.index, sample.Extent{Offset: w.at + before, Size: int64(len(data))})
	}
	w.at += before + int64(len(data)) + after
	w.records++
	return nil
}

// Flush writes what the Writer still has in memory. Call Flush after the last record.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	if err := w.out.Flush(); err != nil {
		return w.fail(err)
	}
	if w.index != nil {
		if err := w.index.Flush(); err != nil {
			return w.fail(fmt.Errorf("its index: %w", errs.WithoutPath(err)))
		}
	}
	return nil
}

// fail keeps the first error of a write.
func (w *Writer) fail(err error) error {
	w.err = errs.Wrap(opWrite, w.name, errs.WithoutPath(err))
	return w.err
}
