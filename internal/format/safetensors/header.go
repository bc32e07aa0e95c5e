// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/format"
)

// minEntry is a lower bound of the length of a tensor entry, "":{"dtype":"U8","shape":[],"data_offsets":[0,1]}. It
// bounds the allocation that a count of braces can cause.
const minEntry = 48

// headerScanner parses the grammar of a header: an object of tensor objects and one map of strings.
type headerScanner struct {
	scanner
	mode     Mode
	dtypes   []format.DType
	tensors  []format.Tensor // offsets are relative to the data
	metadata map[string]string
	names    map[string]struct{}
	dims     []int64 // block that shapes are cut from
	sawMeta  bool
}

// document scans the whole header.
func (h *headerScanner) document() error {
	if h.mode == Lenient {
		h.space()
	}
	if h.peek() != '{' {
		return h.fail(h.pos, "the first byte of the header is "+h.token(), "{")
	}
	guess := min(bytes.Count(h.src, []byte{'{'}), len(h.src)/minEntry+1, MaxTensors)
	h.tensors = make([]format.Tensor, 0, guess)
	h.names = make(map[string]struct{}, guess)
	for again := h.open('}'); again; {
		err := h.member()
		if err != nil {
			return err
		}
		if again, err = h.more('}', "the header"); err != nil {
			return err
		}
	}
	return h.padding()
}

// padding checks what follows the header object.
func (h *headerScanner) padding() error {
	if h.mode == Lenient {
		h.space()
	}
	for h.pos < len(h.src) && h.src[h.pos] == ' ' {
		h.pos++
	}
	if h.pos == len(h.src) {
		return nil
	}
	want := "only spaces (0x20)"
	if h.mode == Lenient {
		want = "only JSON whitespace"
	}
	return h.fail(h.pos, fmt.Sprintf("the padding after the header object holds the byte 0x%02x", h.src[h.pos]), want)
}

// member scans one key of the header and its value.
func (h *headerScanner) member() error {
	at := h.pos
	key, err := h.str("a tensor name")
	if err != nil {
		return err
	}
	h.space()
	if string(key) == metadataKey {
		if h.sawMeta {
			return h.fail(at, "key "+quote(metadataKey)+" is a duplicate", "each key once")
		}
		h.sawMeta = true
		if err := h.expect(':', "after key "+quote(metadataKey)); err != nil {
			return err
		}
		h.space()
		return h.metadataMap()
	}
	if len(key) > MaxName {
		return h.fail(at, "tensor name "+quote(string(key))+" is too long", "at most "+strconv.Itoa(MaxName)+" bytes")
	}
	name := string(key)
	if strings.IndexByte(name, 0) >= 0 {
		return h.fail(at, "tensor name "+quote(name)+" holds NUL", "a name without NUL")
	}
	if _, dup := h.names[name]; dup {
		return h.fail(at, "tensor name "+quote(name)+" is a duplicate", "each name once")
	}
	if len(h.tensors) == MaxTensors {
		return h.fail(at, "tensor "+quote(name)+" is one too many", "at most "+strconv.Itoa(MaxTensors)+" tensors")
	}
	h.names[name] = struct{}{}
	h.kind, h.name = "tensor", name
	if err := h.expect(':', "after the name"); err != nil {
		return err
	}
	h.space()
	if err := h.tensor(name); err != nil {
		return err
	}
	h.kind = ""
	return nil
}

// tensor scans a tensor object and appends the tensor.
func (h *headerScanner) tensor(name string) error {
	start := h.pos
	if h.peek() != '{' {
		return h.fail(h.pos, "its value is "+h.token(), "an object with dtype, shape and data_offsets")
	}
	t := format.Tensor{Name: name}
	var hasShape, hasOffsets bool
	var begin, end int64
	h.keys = h.keys[:0]
	for again := h.open('}'); again; {
		at := h.pos
		key, err := h.str("a field name")
		if err != nil {
			return err
		}
		var seen bool
		switch string(key) {
		case "dtype":
			seen = t.DType != ""
		case "shape":
			seen, hasShape = hasShape, true
		case "data_offsets":
			seen, hasOffsets = hasOffsets, true
		default:
			if h.mode == Strict {
				return h.fail(at, "field "+quote(string(key))+" is unknown", "only dtype, shape and data_offsets")
			}
			if err := h.once(0, at, key); err != nil {
				return err
			}
		}
		if seen {
			return h.fail(at, "field "+quote(string(key))+" is a duplicate", "each field once")
		}
		h.space()
		if err := h.expect(':', "after a field name"); err != nil {
			return err
		}
		h.space()
		switch string(key) {
		case "dtype":
			t.DType, err = h.dtype()
		case "shape":
			t.Shape, err = h.shape()
		case "data_offsets":
			begin, end, err = h.offsets()
		default:
			err = h.skip("an unknown field", 1)
		}
		if err != nil {
			return err
		}
		if again, err = h.more('}', "the tensor object"); err != nil {
			return err
		}
	}
	for _, field := range []struct {
		name string
		has  bool
	}{{"dtype", t.DType != ""}, {"shape", hasShape}, {"data_offsets", hasOffsets}} {
		if !field.has {
			return h.fail(start, "field "+quote(field.name)+" is missing", "dtype, shape and data_offsets")
		}
	}
	if end < begin {
		return h.fail(start, fmt.Sprintf("data_offsets are [%d,%d]", begin, end), "an end not before the begin")
	}
	size, got, want := dataSize(t.DType, t.Shape)
	if want != "" {
		return h.fail(start, got, want)
	}
	if size != uint64(end-begin) {
		return h.fail(start, fmt.Sprintf("data_offsets [%d,%d] span %d bytes", begin, end, end-begin),
			fmt.Sprintf("%d, what shape %s of %s needs", size, shapeText(t.Shape), t.DType))
	}
	t.Offset, t.Size = begin, end-begin
	h.tensors = append(h.tensors, t)
	return nil
}

func (h *headerScanner) dtype() (format.DType, error) {
	at := h.pos
	v, err := h.str("dtype")
	if err != nil {
		return "", err
	}
	for _, d := range h.dtypes {
		if string(v) == string(d) {
			return d, nil
		}
	}
	return "", h.fail(at, "dtype is "+quote(string(v)), "one of "+dtypeList(h.dtypes))
}

// dtypeList joins the names of dtypes for a message.
func dtypeList(ds []format.DType) string {
	names := make([]string, len(ds))
	for i, d := range ds {
		names[i] = string(d)
	}
	return strings.Join(names, ", ")
}

// shape scans an array of dimensions. Shapes are slices of shared blocks, so that hundreds of tensors need one
// allocation.
func (h *headerScanner) shape() ([]int64, error) {
	if h.peek() != '[' {
		return nil, h.fail(h.pos, "shape is "+h.token(), "an array of integers")
	}
	var dims [MaxRank]int64
	rank := 0
	label := func() string { return "shape[" + strconv.Itoa(rank) + "]" }
	for again := h.open(']'); again; {
		if rank == MaxRank {
			return nil, h.fail(h.pos, "shape has more dimensions", "at most "+strconv.Itoa(MaxRank))
		}
		v, err := h.integer(label)
		if err != nil {
			return nil, err
		}
		dims[rank] = v
		rank++
		if again, err = h.more(']', "shape"); err != nil {
			return nil, err
		}
	}
	if rank == 0 {
		return []int64{}, nil
	}
	if cap(h.dims)-len(h.dims) < rank {
		h.dims = make([]int64, 0, max(rank, min(4096, 2*cap(h.tensors))))
	}
	from := len(h.dims)
	h.dims = append(h.dims, dims[:rank]...)
	return h.dims[from:len(h.dims):len(h.dims)], nil
}

// offsets scans the pair of data offsets.
func (h *headerScanner) offsets() (begin, end int64, err error) {
	const want = "an array of exactly two integers"
	if h.peek() != '[' {
		return 0, 0, h.fail(h.pos, "data_offsets is "+h.token(), want)
	}
	start := h.pos
	var v [2]int64
	n := 0
	label := func() string { return "data_offsets[" + strconv.Itoa(n) + "]" }
	for again := h.open(']'); again; n++ {
		if n == 2 {
			return 0, 0, h.fail(start, "data_offsets holds more than two values", want)
		}
		if v[n], err = h.integer(label); err != nil {
			return 0, 0, err
		}
		if again, err = h.more(']', "data_offsets"); err != nil {
			return 0, 0, err
		}
	}
	if n != 2 {
		return 0, 0, h.fail(start, fmt.Sprintf("data_offsets holds %d values", n), want)
	}
	return v[0], v[1], nil
}

// metadataMap scans the value of "__metadata__".
func (h *headerScanner) metadataMap() error {
	if h.word("null") {
		return nil
	}
	if h.peek() != '{' {
		return h.fail(h.pos, metadataKey+" is "+h.token(), "an object of strings or null")
	}
	h.metadata = map[string]string{}
	for again := h.open('}'); again; {
		at := h.pos
		raw, err := h.str("a " + metadataKey + " key")
		if err != nil {
			return err
		}
		key := string(raw)
		if _, dup := h.metadata[key]; dup {
			return h.fail(at, metadataKey+" key "+quote(key)+" is a duplicate", "each key once")
		}
		if len(h.metadata) == MaxMetadata {
			return h.fail(at, metadataKey+" key "+quote(key)+" is one too many", "at most "+strconv.Itoa(MaxMetadata)+" entries")
		}
		h.kind, h.name = metadataKey+" key", key
		h.space()
		if err := h.expect(':', "after the key"); err != nil {
			return err
		}
		h.space()
		value, err := h.str("its value")
		if err != nil {
			return err
		}
		h.kind = ""
		h.metadata[key] = string(value)
		if again, err = h.more('}', metadataKey); err != nil {
			return err
		}
	}
	return nil
}
