// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/nebulaio/nebulaio/internal/data/npy"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// maxLine is the most bytes of a line of a .jsonl file.
const maxLine = 256 << 20

// prepare makes the documents of a unit.
func (s *binShape) prepare(ctx context.Context, r Reader, one *loaded) {
	if len(one.parts) == 0 {
		s.lines(ctx, r, one)
		return
	}
	part := &one.parts[0]
	if part.large {
		return // add calls prepare again when the part was read
	}
	switch part.ext {
	case "txt":
		one.err = s.text(one, part.data)
	case "npy":
		one.err = s.array(one, part)
	default:
		one.err = s.convert(one, s.token.dtype, part.data)
	}
}

// text encodes one document.
func (s *binShape) text(one *loaded, text []byte) error {
	ids, err := s.o.Encoder.Encode(text)
	if err != nil {
		return fmt.Errorf("the tokenizer refuses the text: %w", err)
	}
	tokens := make([]byte, 0, (len(ids)+1)*s.token.dtype.Bits()/8)
	for _, id := range ids {
		if int64(id) > s.token.high {
			return fmt.Errorf("token %d is above %d, the last of the type %s", id, s.token.high, s.token.dtype)
		}
		tokens = appendToken(tokens, s.token.dtype, int64(id))
	}
	s.document(one, tokens)
	return nil
}

// document adds a document of tokens. Documents without tokens are counted and left out, as Megatron does.
func (s *binShape) document(one *loaded, tokens []byte) {
	if len(tokens) == 0 {
		one.empty++
		return
	}
	if s.o.HasEOD {
		tokens = appendToken(tokens, s.token.dtype, int64(s.o.EOD))
	}
	one.documents = append(one.documents, tokens)
}

// appendToken appends a little-endian token.
func appendToken(b []byte, t format.DType, v int64) []byte {
	switch t.Bits() {
	case 8:
		return append(b, byte(v))
	case 16:
		return binary.LittleEndian.AppendUint16(b, uint16(v))
	case 32:
		return binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(b, uint64(v))
}

// array makes a document of an array, or one of each row of an array with two dimensions.
func (s *binShape) array(one *loaded, part *loadedPart) error {
	h, err := npy.Describe(bytes.NewReader(part.data), int64(len(part.data)), s.show(part.entry.Name))
	if err != nil {
		return err
	}
	if len(h.Shape) == 0 || len(h.Shape) > 2 || h.Fortran && len(h.Shape) == 2 {
		return fmt.Errorf("the array has the shape %v, expected tokens in one dimension, or documents by row", h.Shape)
	}
	data := part.data[h.DataOffset:]
	if len(h.Shape) == 1 {
		return s.convert(one, h.DType, data)
	}
	row := int(h.Shape[1]) * h.DType.Bits() / 8
	for range h.Shape[0] {
		if err := s.convert(one, h.DType, data[:row]); err != nil {
			return err
		}
		data = data[row:]
	}
	return nil
}

// convert makes a document of little-endian tokens of another type.
func (s *binShape) convert(one *loaded, from format.DType, data []byte) error {
	item := from.Bits() / 8
	if item == 0 || len(data)%item != 0 {
		return fmt.Errorf("it has %d bytes, which are no whole tokens of %d bytes", len(data), item)
	}
	tokens := make([]byte, 0, (len(data)/item+1)*s.token.dtype.Bits()/8)
	for i := 0; i < len(data); i += item {
		v, ok := tokenAt(data[i:], from)
		if !ok {
			return fmt.Errorf("the type of its numbers is %s, expected integers", from)
		}
		if v < s.token.low || v > s.token.high {
			return fmt.Errorf("number %d is %d, expected a token of the type %s from %d to %d", i/item, v, s.token.dtype,
				s.token.low, s.token.high)
		}
		tokens = appendToken(tokens, s.token.dtype, v)
	}
	s.document(one, tokens)
	return nil
}

// tokenAt returns the first number of b. The result ok is false if the type has no integers. Numbers above int64 are
// returned as the largest int64, which no token has.
func tokenAt(b []byte, t format.DType) (v int64, ok bool) {
	switch t {
	case format.U8:
		return int64(b[0]), true
	case format.I8:
		return int64(int8(b[0])), true
	case format.U16:
		return int64(binary.LittleEndian.Uint16(b)), true
	case format.I16:
		return int64(int16(binary.LittleEndian.Uint16(b))), true
	case format.U32:
		return int64(binary.LittleEndian.Uint32(b)), true
	case format.I32:
		return int64(int32(binary.LittleEndian.Uint32(b))), true
	case format.U64:
		return int64(min(binary.LittleEndian.Uint64(b), math.MaxInt64)), true
	case format.I64:
		return int64(binary.LittleEndian.Uint64(b)), true
	}
	return 0, false
}

// lines encodes the lines that begin in the piece of a .jsonl file. A line that begins before the piece belongs to the
// piece before, and the last line can end after the piece.
func (s *binShape) lines(ctx context.Context, r Reader, one *loaded) {
	u := one.unit
	e := one.first.Entry
	text, skipped, err := readLines(ctx, r, e, u.from, u.size, s.show)
	if err != nil {
		one.err = err
		return
	}
	at := u.from + skipped
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		if err := s.line(one, bytes.TrimSpace(line)); err != nil {
			one.bad = append(one.bad, Bad{e.Name, fmt.Sprintf("the line at byte %d: %s", at, err)})
		}
		at += int64(len(text) - len(rest))
		text = rest
	}
}

// line encodes one line.
func (s *binShape) line(one *loaded, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return fmt.Errorf("it is no JSON object: %w", err)
	}
	var text *string
	if err := json.Unmarshal(fields[s.o.TextField], &text); err != nil || text == nil {
		return fmt.Errorf("it has no text in the field %.100q", s.o.TextField)
	}
	return s.text(one, []byte(*text))
}

// readLines returns the lines that begin from offset `from` on, before from+size, and the number of bytes before them.
func readLines(ctx context.Context, r Reader, e Entry, from, size int64,
	show func(string) string) ([]byte, int64, error) {
	begin := max(from-1, 0) // the byte before tells whether a line begins at from
	b := make([]byte, from+size-begin)
	n, err := r.ReadAt(ctx, e, b, begin)
	if err != nil {
		return nil, 0, err
	}
	if n < len(b) {
		return nil, 0, changed(show(e.Name), e.Size, begin+int64(n))
	}
	skipped := int64(0)
	if from > 0 {
		first := bytes.IndexByte(b, '\n')
		if first < 0 || begin+int64(first)+1 >= from+size {
			return nil, 0, nil // all of it belongs to a line that began before
		}
		skipped = int64(first)
		b = b[first+1:]
	}
	for at := from + size; at < e.Size && b[len(b)-1] != '\n'; {
		if len(b) > maxLine {
			return nil, 0, errs.New(errs.Unsupported, "read", show(e.Name),
				fmt.Sprintf("a line has more than %d bytes", maxLine))
		}
		more := make([]byte, min(64<<10, e.Size-at))
		n, err := r.ReadAt(ctx, e, more, at)
		if err != nil {
			return nil, 0, err
		}
		if n < len(more) {
			return nil, 0, changed(show(e.Name), e.Size, at+int64(n))
		}
		at += int64(n)
		end := bytes.IndexByte(more, '\n')
		if end >= 0 {
			more = more[:end+1]
		}
		b = append(b, more...)
	}
	return b, skipped, nil
}
