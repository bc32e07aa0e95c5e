// SPDX-License-Identifier: Apache-2.0

package mds

import (
	"strconv"
	"strings"
)

// EncodingSize returns the size in bytes of every value of an encoding, or 0 if each value has its own size.
// EncodingSize returns false for an encoding that mosaicml-streaming 0.13 does not have.
func EncodingSize(encoding string) (size int64, known bool) {
	name, shape, has := strings.Cut(encoding, ":")
	if has {
		if name != "ndarray" {
			return 0, false
		}
		return arraySize(shape)
	}
	switch name {
	case "bytes", "str", "str_int", "str_float", "str_decimal", "ndarray", "pil", "jpeg", "jpeg_array", "jpegarray",
		"png", "list[pil]", "list[jpeg]", "list[png]", "pkl", "json":
		return 0, true
	case "int":
		return 8, true
	}
	return scalarSize(name)
}

// scalarSize returns the size of a number by its type.
func scalarSize(name string) (size int64, known bool) {
	switch name {
	case "uint8", "int8":
		return 1, true
	case "uint16", "int16", "float16":
		return 2, true
	case "uint32", "int32", "float32":
		return 4, true
	case "uint64", "int64", "float64":
		return 8, true
	}
	return 0, false
}

// arraySize returns the size of an array by what follows "ndarray:": a type, or a type and a shape such as
// "float32:2,3". An array without a shape has a variable size.
func arraySize(text string) (size int64, known bool) {
	kind, shape, has := strings.Cut(text, ":")
	size, known = scalarSize(kind)
	if !known || !has {
		return 0, known
	}
	for _, dim := range strings.Split(shape, ",") {
		n, err := strconv.ParseInt(dim, 10, 64)
		if err != nil || n < 1 || n > (1<<32)/size {
			return 0, false
		}
		size *= n
	}
	return size, true
}
