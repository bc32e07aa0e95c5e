// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"slices"
	"syscall"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

const (
	opParse = "parse safetensors header"
	// lengthSize is the size of the header length that opens the file.
	lengthSize = 8
	fixCopy    = "the file is probably truncated: download or copy it again"
)

// ParseFile opens the regular file at path and parses its header. If the file cannot be opened, the error has the
// kind NotFound or Permission. If the header is invalid, the error of ParseFile has the same kind as that of Parse.
func ParseFile(path string, mode Mode) (*format.File, error) {
	f, size, err := openRegular(opParse, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f, size, path, mode)
}

// openRegular opens a regular file and returns its size.
func openRegular(op, path string) (*os.File, int64, error) {
	// Without O_NONBLOCK opening a pipe waits for its writer for ever; regular
	// files do not notice.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, errs.Wrap(op, path, pathCause(err))
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, errs.Wrap(op, path, pathCause(err))
	}
	if !st.Mode().IsRegular() {
		f.Close()
		return nil, 0, errs.New(errs.Invalid, op, path, irregular(st.Mode()))
	}
	return f, st.Size(), nil
}

// irregular describes a file that is not a regular file.
func irregular(m os.FileMode) string {
	what := "not a regular file"
	switch {
	case m.IsDir():
		what = "a directory"
	case m&os.ModeDevice != 0:
		what = "a device"
	case m&os.ModeNamedPipe != 0:
		what = "a pipe"
	case m&os.ModeSocket != 0:
		what = "a socket"
	}
	return "it is " + what + ", expected a regular file"
}

// Parse reads and checks the header of a safetensors file; the parameter size is the file's size in bytes. The
// parameter path is used only in errors and in the result. Parse reads from r twice: first the header's length, then
// the header, if its length is within the file and MaxHeader.
//
// Parse returns the tensors in order of offset; empty tensors at one offset keep their header order. All offsets that
// Parse returns count from the start of the file. The tensors cover the file from DataStart to its end without a gap.
// Content that violates the format is an error of kind Corrupt, and a failed read an error of kind IO.
func Parse(r io.ReaderAt, size int64, path string, mode Mode) (*format.File, error) {
	header, err := ReadHeader(r, size, path)
	if err != nil {
		return nil, err
	}
	return ParseHeader(header, size, path, mode)
}

// ParseHeader checks the header of a safetensors file, which ReadHeader has read, as Parse does. ParseHeader changes
// the bytes of the header, and the result does not refer to them.
func ParseHeader(header []byte, size int64, path string, mode Mode) (*format.File, error) {
	dataStart := lengthSize + int64(len(header))
	h := headerScanner{
		scanner: scanner{src: header, base: lengthSize, op: opParse, path: path},
		mode:    mode,
		dtypes:  format.DTypes(),
	}
	if at := invalidUTF8(header); at >= 0 {
		return nil, h.fail(at, fmt.Sprintf("the header holds the byte 0x%02x that is not UTF-8", header[at]), "UTF-8 text")
	}
	if err := h.document(); err != nil {
		return nil, err
	}
	sortByOffset(h.tensors)
	if err := tile(h.tensors, dataStart, size, path); err != nil {
		return nil, err
	}
	return &format.File{Path: path, Size: size, DataStart: dataStart, Tensors: h.tensors, Metadata: h.metadata}, nil
}

// ReadHeader returns the JSON text of the header, unchecked; the parameter size is the file's size in bytes. Nothing is
// allocated before the length is known to fit the file and MaxHeader.
func ReadHeader(r io.ReaderAt, size int64, path string) ([]byte, error) {
	if size < lengthSize {
		return nil, errs.New(errs.Corrupt, opParse, path,
			fmt.Sprintf("the file has %d bytes, expected at least %d for the header length", size, lengthSize)).WithFix(fixCopy)
	}
	var length [lengthSize]byte
	if err := readFull(r, length[:], 0, path); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeader {
		return nil, errs.New(errs.Corrupt, opParse, path,
			fmt.Sprintf("the header length is %d bytes, expected at most %d", n,
				MaxHeader)).WithFix("check that this is a safetensors file")
	}
	if int64(n) > size-lengthSize {
		return nil, errs.New(errs.Corrupt, opParse, path,
			fmt.Sprintf("the header length is %d bytes, expected at most %d, what the file of %d bytes holds after it", n,
				size-lengthSize, size)).WithFix(fixCopy)
	}
	header := make([]byte, n)
	if err := readFull(r, header, lengthSize, path); err != nil {
		return nil, err
	}
	return header, nil
}

// readFull reads all of dst at off. A read that ends early is an I/O error: the file has changed or is shorter than
// its size.
func readFull(r io.ReaderAt, dst []byte, off int64, path string) error {
	if len(dst) == 0 {
		return nil
	}
	n, err := r.ReadAt(dst, off)
	if n == len(dst) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &errs.Error{Kind: errs.IO, Op: opParse, Name: path,
		Msg: fmt.Sprintf("read %d bytes at offset %d, expected %d", n, off, len(dst)), Err: pathCause(err)}
}

// pathCause removes the path from a file-system error, because our errors name it.
func pathCause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// invalidUTF8 returns the position of the first byte that is not UTF-8, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// sortByOffset sorts tensors by begin and end, and in header order if both are equal. Most files are already sorted,
// so that is checked first.
func sortByOffset(ts []format.Tensor) {
	byRange := func(a, b format.Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
	}
	if slices.IsSortedFunc(ts, byRange) {
		return
	}
	// Sorting small keys and moving each tensor once beats a stable sort of
	// the tensors by far when there are a million of them.
	type key struct {
		begin, size int64
		at          int32
	}
	keys := make([]key, len(ts))
	for i, t := range ts {
		keys[i] = key{t.Offset, t.Size, int32(i)}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.size, b.size), cmp.Compare(a.at, b.at))
	})
	// Each cycle of the permutation is moved with one tensor held aside.
	for i := range keys {
		if keys[i].at < 0 {
			continue
		}
		held, to := ts[i], i
		for {
			from := int(keys[to].at)
			keys[to].at = -1
			if from == i {
				ts[to] = held
				break
			}
			ts[to] = ts[from]
			to = from
		}
	}
}

// tile checks that the sorted tensors cover the data without a gap up to the end of the file, and makes their offsets
// absolute.
func tile(ts []format.Tensor, dataStart, size int64, path string) error {
	bad := func(msg string) *errs.Error { return errs.New(errs.Corrupt, opParse, path, msg) }
	end := int64(0)
	for i := range ts {
		t := &ts[i]
		if t.Offset != end {
			after := "the start of the data"
			if i > 0 {
				after = "the end of tensor " + quote(ts[i-1].Name)
			}
			why := fmt.Sprintf("%d bytes before it belong to no tensor", t.Offset-end)
			if t.Offset < end {
				why = fmt.Sprintf("it overlaps %d bytes that another tensor holds", end-t.Offset)
			}
			return bad(fmt.Sprintf("tensor %s: data_offsets begin at %d, expected %d, %s (%s)", quote(t.Name), t.Offset, end,
				after, why))
		}
		end += t.Size
		t.Offset += dataStart
	}
	switch have := size - dataStart; {
	case end > have:
		last := ts[len(ts)-1]
		return bad(fmt.Sprintf("tensor %s: data_offsets end at %d, expected at most %d, the bytes after the header (%d "+
			"are missing)",
			quote(last.Name), end, have, end-have)).WithFix(fixCopy)
	case end < have:
		return bad(fmt.Sprintf("the tensors end at byte %d of the file, expected %d, the file size (%d trailing bytes "+
			"belong to no tensor)",
			dataStart+end, size, have-end)).WithFix("cut the trailing bytes off or write the file again")
	}
	return nil
}

// dataSize returns the length of a tensor in bytes. If the length is invalid, got describes the problem and want the
// expectation; otherwise want is empty.
func dataSize(d format.DType, shape []int64) (size uint64, got, want string) {
	n := uint64(1)
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 {
			return 0, "shape " + shapeText(shape) + " overflows 64 bits", "fewer than 2^64 elements"
		}
		n = lo
	}
	hi, width := bits.Mul64(n, uint64(d.Bits()))
	if hi != 0 {
		return 0, fmt.Sprintf("shape %s of %s overflows 64 bits", shapeText(shape), d), "fewer than 2^64 bits"
	}
	if width%8 != 0 {
		return 0, fmt.Sprintf("shape %s of %s has %d bits", shapeText(shape), d, width), "a multiple of 8, whole bytes"
	}
	return width / 8, "", ""
}

// shapeText writes a shape as the header does: [2,3].
func shapeText(shape []int64) string { return string(appendShape(nil, shape)) }
