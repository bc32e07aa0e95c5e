// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Piece is a range of a file and its place in a batch.
type Piece struct {
	File int // number of the file, for Set.File
	sample.Extent
	At int64 // offset of the first byte in the batch
}

// Batch lists the file ranges whose bytes, put one after the other, are one column of a batch of samples.
type Batch struct {
	Size   int64   // bytes of all samples together
	Pieces []Piece // in the order of the batch; empty samples have none
	Ends   []int64 // where each sample ends in the batch
}

// Same returns the size in bytes of one sample, and true, if all samples have the same size. Otherwise Same returns
// false.
func (b *Batch) Same() (int64, bool) {
	if len(b.Ends) == 0 {
		return 0, false
	}
	each := b.Ends[0]
	for i, end := range b.Ends {
		if end != each*int64(i+1) {
			return 0, false
		}
	}
	return each, true
}

// Gather makes a batch of one column of samples. If a sample has no such column, the error is of kind NotFound; if all
// samples together have more than limit bytes, the error is of kind Invalid. After an error the batch is empty. Gather
// uses the memory of into again; into can be the zero Batch.
//
// Samples that follow each other in a file and in the batch become one piece.
func (s *Set) Gather(samples []int64, column int, limit int64, into *Batch) error {
	*into = Batch{Pieces: into.Pieces[:0], Ends: into.Ends[:0]}
	for _, n := range samples {
		file, e, ok := s.Part(n, column)
		if !ok {
			return s.refuse(into, errs.NotFound, n, fmt.Sprintf("has no part %q", s.columns[column]))
		}
		if e.Size > limit-into.Size {
			return s.refuse(into, errs.Invalid, n, fmt.Sprintf(
				"and the samples before it have %d bytes, and a batch can have %d", into.Size+e.Size, limit))
		}
		if e.Size > 0 && !into.extend(file, e) {
			into.Pieces = append(into.Pieces, Piece{File: file, Extent: e, At: into.Size})
		}
		into.Size += e.Size
		into.Ends = append(into.Ends, into.Size)
	}
	return nil
}

// refuse empties a batch and returns an error about sample n.
func (s *Set) refuse(b *Batch, kind errs.Kind, n int64, why string) error {
	*b = Batch{Pieces: b.Pieces[:0], Ends: b.Ends[:0]}
	e := errs.New(kind, "gather batch", s.Name(n), why)
	if kind == errs.Invalid {
		e.Fix = "use smaller batches, or allow more bytes"
	} else {
		e.Fix = "choose a column that all samples have, or leave the sample out"
	}
	return e
}

// extend adds the bytes to the last piece if they follow it in its file.
func (b *Batch) extend(file int, e sample.Extent) bool {
	if len(b.Pieces) == 0 {
		return false
	}
	last := &b.Pieces[len(b.Pieces)-1]
	if last.File != file || last.Offset+last.Size != e.Offset {
		return false
	}
	last.Size += e.Size
	return true
}
