// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"errors"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	windowSize = 1 << 20  // bytes that a scan reads at once
	shortRead  = 16 << 10 // bytes that a scan reads after a member that is larger than the window
)

// window reads a file in large pieces. Scans go forward, so the window keeps only the last piece.
type window struct {
	r     io.ReaderAt
	name  string
	size  int64
	start int64 // offset of buf in the file
	buf   []byte
}

// at returns n bytes at an offset. The bytes are valid until the next call. The range must lie inside of the file, and
// n must not exceed windowSize.
func (w *window) at(pos int64, n int) ([]byte, error) {
	if from := pos - w.start; from >= 0 && from+int64(n) <= int64(len(w.buf)) {
		return w.buf[from:][:n], nil
	}
	want := int64(windowSize)
	if w.start+int64(len(w.buf))+windowSize < pos {
		want = shortRead
	}
	want = min(max(want, int64(n)), w.size-pos)
	if int64(cap(w.buf)) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.start = w.buf[:want], pos
	if err := readFull(w.r, w.buf, pos, w.name); err != nil {
		return nil, err
	}
	return w.buf[:n], nil
}

// readFull fills p with the bytes at an offset.
func readFull(r io.ReaderAt, p []byte, pos int64, name string) error {
	if len(p) == 0 {
		return nil
	}
	n, err := r.ReadAt(p, pos)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		e := errs.New(errs.IO, "read", name,
			fmt.Sprintf("a read of %d bytes at offset %d returned only %d", len(p), pos, n))
		e.Fix = "check whether the file was truncated while it was read, and try again"
		return e
	}
	return errs.Wrap("read", name, err)
}
