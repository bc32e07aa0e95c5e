// SPDX-License-Identifier: Apache-2.0

package tfrecord

import (
	"io"

	"github.com/nebulaio/nebulaio/internal/data/sample"
)

// Sizes of the pieces that a window reads. Short records are read in large pieces. Of long records, only the beginnings
// are read, in small pieces.
const (
	smallPiece = 4 << 10
	firstPiece = 64 << 10
	largePiece = 1 << 20
)

// window reads a file in pieces from its beginning to its end, and can skip parts of the file.
type window struct {
	r     io.ReaderAt
	size  int64  // of the file
	op    string // the operation, for errors
	name  string // of the file, for errors
	piece int64  // size of the next piece, from smallPiece to largePiece
	start int64  // offset of buf in the file
	buf   []byte // the last piece
}

// bytes returns n bytes at offset at, which the caller has compared with the size of the file. N is at most largePiece.
// The bytes are valid until the next call.
func (w *window) bytes(at int64, n int) ([]byte, error) {
	end := w.start + int64(len(w.buf))
	if at < w.start || at+int64(n) > end {
		if len(w.buf) > 0 { // the first piece has none before it
			if at-end <= w.piece {
				w.piece = min(2*w.piece, largePiece)
			} else {
				w.piece = max(w.piece/2, smallPiece)
			}
		}
		want := min(max(w.piece, int64(n)), w.size-at)
		if int64(cap(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		w.start, w.buf = at, w.buf[:want]
		if err := sample.ReadFull(w.r, w.buf, at, w.op, w.name); err != nil {
			return nil, err
		}
	}
	return w.buf[at-w.start:][:n], nil
}

// ready returns how many bytes from offset at on are best asked for at once: those of the last piece, or a whole piece
// if there are none.
func (w *window) ready(at int64) int64 {
	if n := w.start + int64(len(w.buf)) - at; at >= w.start && n > 0 {
		return n
	}
	return largePiece
}
