// SPDX-License-Identifier: Apache-2.0

package sample

import "io"

// LargePiece is the most bytes that a Window reads at once.
const LargePiece = 1 << 20

// Sizes of other pieces that a Window reads.
const (
	smallPiece = 4 << 10
	firstPiece = 64 << 10
)

// Window reads a file in pieces from its beginning to its end, and can skip parts of the file. Where little is skipped,
// the pieces become larger; where only the beginnings of long parts are read, they become smaller.
type Window struct {
	r     io.ReaderAt
	size  int64  // of the file
	op    string // the operation, for errors
	name  string // of the file, for errors
	piece int64  // size of the next piece, from smallPiece to LargePiece
	start int64  // offset of buf in the file
	buf   []byte // the last piece
}

// NewWindow returns a Window over a file of `size` bytes. The operation op and the path or URL `name` are for errors.
func NewWindow(r io.ReaderAt, size int64, op, name string) *Window {
	return &Window{r: r, size: size, op: op, name: name, piece: firstPiece}
}

// ReadAll makes the pieces large from the start, for a caller that skips nothing. The result is the same Window.
func (w *Window) ReadAll() *Window {
	w.piece = LargePiece
	return w
}

// Bytes returns n bytes at offset at. The range must lie inside of the file. The result is valid until the next call.
func (w *Window) Bytes(at int64, n int) ([]byte, error) {
	end := w.start + int64(len(w.buf))
	if at < w.start || at+int64(n) > end {
		if len(w.buf) > 0 { // the first piece has none before it
			if at-end <= w.piece {
				w.piece = min(2*w.piece, LargePiece)
			} else {
				w.piece = max(w.piece/2, smallPiece)
			}
		}
		want := min(max(w.piece, int64(n)), w.size-at)
		if int64(cap(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		w.start, w.buf = at, w.buf[:want]
		if err := ReadFull(w.r, w.buf, at, w.op, w.name); err != nil {
			w.buf = w.buf[:0] // it has no bytes of the file
			return nil, err
		}
	}
	return w.buf[at-w.start:][:n], nil
}

// Ready returns how many bytes from offset at on are best asked for at once: those of the last piece, or a whole piece
// if there are none.
func (w *Window) Ready(at int64) int64 {
	if n := w.start + int64(len(w.buf)) - at; at >= w.start && n > 0 {
		return n
	}
	return LargePiece
}
