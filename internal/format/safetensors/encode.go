// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

const opEncode = "encode safetensors header"

// AlignDefault, AlignPage and AlignMax are alignments in bytes of the first data byte, for EncodeHeader.
const (
	// AlignDefault is the alignment that the reference writer uses, which suits every data type.
	AlignDefault = 8
	// AlignPage lets direct I/O read the data without a copy. Every safetensors reader accepts a file that is aligned
	// to AlignPage.
	AlignPage = 4096
	// AlignMax is the largest alignment that EncodeHeader accepts, which bounds the padding.
	AlignMax = 16 << 20
)

// EncodeHeader returns the bytes of a file before its data: the length, the JSON and the padding.
//
// The padding of the header ends at a multiple of align, which is a multiple of 8 up to AlignMax; 0 means
// AlignDefault. In the file, the tensors follow each other in the given order, with sizes from their dtype and shape.
// EncodeHeader ignores the fields Offset and Size of the given tensors. If metadata is nil, the header has no
// "__metadata__". Keys of metadata are sorted, unlike in the reference writer, so equal arguments give equal bytes.
// If Parse would reject the header in Strict mode, EncodeHeader returns an error of kind Invalid.
func EncodeHeader(tensors []format.Tensor, metadata map[string]string, align int64) ([]byte, error) {
	bad := func(msg string) error { return errs.New(errs.Invalid, opEncode, "", msg) }
	if align == 0 {
		align = AlignDefault
	}
	if align < 0 || align%8 != 0 || align > AlignMax {
		return nil, bad(fmt.Sprintf("the alignment is %d, expected a multiple of 8 from 8 to %d", align, AlignMax))
	}
	if len(tensors) > MaxTensors {
		return nil, bad(fmt.Sprintf("there are %d tensors, expected at most %d", len(tensors), MaxTensors))
	}
	if len(metadata) > MaxMetadata {
		return nil, bad(fmt.Sprintf("there are %d metadata entries, expected at most %d", len(metadata), MaxMetadata))
	}
	b := make([]byte, lengthSize, lengthSize+128*(len(tensors)+1))
	b = append(b, '{')
	if metadata != nil {
		b = append(b, `"__metadata__":{`...)
		for i, k := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(k) || !utf8.ValidString(metadata[k]) {
				return nil, bad(fmt.Sprintf("metadata key %s or its value is not UTF-8, expected UTF-8 text", quote(k)))
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, k)
			b = append(b, ':')
			b = appendString(b, metadata[k])
		}
		b = append(b, '}')
	}
	names := make(map[string]struct{}, len(tensors))
	begin := int64(0)
	for i := range tensors {
		t := &tensors[i]
		if msg := checkName(t.Name); msg != "" {
			return nil, bad(msg)
		}
		if _, dup := names[t.Name]; dup {
			return nil, bad("tensor name " + quote(t.Name) + " is a duplicate, expected each name once")
		}
		names[t.Name] = struct{}{}
		size, msg := sizeOf(t.DType, t.Shape)
		if msg != "" {
			return nil, bad("tensor " + quote(t.Name) + ": " + msg)
		}
		if size > MaxInt-begin {
			return nil, bad(fmt.Sprintf("tensor %s: its %d bytes at offset %d end past %d, expected offsets of 48 bits",
				quote(t.Name), size, begin, int64(MaxInt)))
		}
		if len(b) > lengthSize+1 {
			b = append(b, ',')
		}
		b = appendTensor(b, t, begin, begin+size)
		begin += size
		if len(b) > lengthSize+MaxHeader {
			break
		}
	}
	b = append(b, '}')
	pad := (align - int64(len(b))%align) % align
	if n := int64(len(b)) + pad - lengthSize; n > MaxHeader {
		return nil, bad(fmt.Sprintf("the header has at least %d bytes, expected at most %d", n, MaxHeader))
	}
	b = append(b, strings.Repeat(" ", int(pad))...)
	binary.LittleEndian.PutUint64(b, uint64(len(b)-lengthSize))
	return b, nil
}

// SizeOf returns the number of bytes of a tensor with this dtype and shape. SizeOf returns an error of kind Invalid
// for an unknown dtype, a shape out of limits, a fraction of a byte, or a size above MaxInt.
func SizeOf(d format.DType, shape []int64) (int64, error) {
	size, msg := sizeOf(d, shape)
	if msg != "" {
		return 0, errs.New(errs.Invalid, "size tensor", "", msg)
	}
	return size, nil
}

// sizeOf is SizeOf with the error as text, or "".
func sizeOf(d format.DType, shape []int64) (int64, string) {
	if d.Bits() == 0 {
		return 0, "dtype is " + quote(string(d)) + ", expected one of " + dtypeList(format.DTypes())
	}
	if len(shape) > MaxRank {
		return 0, fmt.Sprintf("shape has %d dimensions, expected at most %d", len(shape), MaxRank)
	}
	for i, dim := range shape {
		if dim < 0 || dim > MaxInt {
			return 0, fmt.Sprintf("shape[%d] is %d, expected 0 to %d", i, dim, int64(MaxInt))
		}
	}
	size, got, want := dataSize(d, shape)
	if want != "" {
		return 0, got + ", expected " + want
	}
	if size > MaxInt {
		return 0, fmt.Sprintf("shape %s of %s takes %d bytes, expected at most %d", shapeText(shape), d, size, int64(MaxInt))
	}
	return int64(size), ""
}

// SortReference sorts tensors in the order of the reference writer: by decreasing alignment of the dtype, then by
// name. If the data starts aligned, the order of SortReference aligns every tensor to its dtype.
func SortReference(tensors []format.Tensor) {
	rank := make(map[format.DType]int)
	for i, d := range format.DTypes() {
		rank[d] = i
	}
	slices.SortStableFunc(tensors, func(a, b format.Tensor) int {
		return cmp.Or(cmp.Compare(rank[b.DType], rank[a.DType]), strings.Compare(a.Name, b.Name))
	})
}

// checkName returns what is wrong with a tensor name, or "".
func checkName(name string) string {
	switch {
	case name == metadataKey:
		return "tensor name " + quote(name) + " is reserved, expected another"
	case len(name) > MaxName:
		return "tensor name " + quote(name) + " is too long, expected at most " + strconv.Itoa(MaxName) + " bytes"
	case !utf8.ValidString(name):
		return "tensor name " + quote(name) + " is not UTF-8, expected UTF-8 text"
	case strings.IndexByte(name, 0) >= 0:
		return "tensor name " + quote(name) + " holds NUL, expected a name without it"
	}
	return ""
}

func appendTensor(b []byte, t *format.Tensor, begin, end int64) []byte {
	b = appendString(b, t.Name)
	b = append(b, `:{"dtype":"`...)
	b = append(b, t.DType...)
	b = append(b, `","shape":`...)
	b = appendShape(b, t.Shape)
	b = append(b, `,"data_offsets":`...)
	b = appendShape(b, []int64{begin, end})
	return append(b, '}')
}

// appendShape appends integers as a JSON array without spaces.
func appendShape(b []byte, shape []int64) []byte {
	b = append(b, '[')
	for i, dim := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, dim, 10)
	}
	return append(b, ']')
}

// appendString appends a JSON string with the escapes of the reference writer.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= 0x20:
			b = append(b, c)
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(b, '"')
}
