// SPDX-License-Identifier: Apache-2.0

package npy

import (
	"regexp"

	"github.com/nebulaio/nebulaio/internal/format"
)

// descr is how a header calls a data type.
type descr struct {
	name  string // such as "f4"
	dtype format.DType
}

// descrs returns the data types that a .npy file can have and that we read, without the byte order.
func descrs() []descr {
	return []descr{{"b1", format.Bool}, {"u1", format.U8}, {"i1", format.I8}, {"u2", format.U16}, {"i2", format.I16},
		{"f2", format.F16}, {"u4", format.U32}, {"i4", format.I32}, {"f4", format.F32}, {"u8", format.U64},
		{"i8", format.I64}, {"f8", format.F64}, {"c8", format.C64}}
}

// descrOf returns the text for a data type in a header, or "" if NumPy has no such type.
func descrOf(d format.DType) string {
	for _, known := range descrs() {
		if known.dtype == d && d.Bits() == 8 {
			return "|" + known.name
		}
		if known.dtype == d {
			return "<" + known.name
		}
	}
	return ""
}

// anyDescr matches the text of all data types in NumPy that are no structures: byte order, kind, size, and the unit of
// times.
var anyDescr = regexp.MustCompile(`^[<>=|]?` +
	`([?]|b1|[iu][1248]|f(2|4|8|12|16)|c(8|16|24|32)|[mM]8(\[[0-9a-zA-Z/]+\])?|[SUVa][0-9]*|O[48]?)$`)

// dtype returns the data type of a header's value "descr".
func (p parser) dtype(v value) (format.DType, error) {
	if v.kind == kindList || v.kind == kindTuple {
		return "", p.unsupported("save each field as an array of its own", "the elements are structures")
	}
	if v.kind != kindString {
		return "", p.corrupt("descr is %s, expected a string such as '<f4'", v.kind)
	}
	if !anyDescr.MatchString(v.text) {
		return "", p.corrupt("descr is %.60q, expected a data type such as '<f4'", v.text)
	}
	order, name := v.text[0], v.text[1:]
	if order != '<' && order != '>' && order != '|' && order != '=' {
		order, name = '=', v.text
	}
	if name == "?" {
		name = "b1"
	}
	for _, known := range descrs() {
		switch {
		case known.name != name:
		case known.dtype.Bits() == 8 || order == '<':
			return known.dtype, nil
		case order == '>':
			return "", p.unsupported("save a.astype(a.dtype.newbyteorder('<'))",
				"the data type is %q, which is big-endian", v.text)
		default:
			return "", p.unsupported("save the array again with numpy.save", "the data type is %q, which has no byte order, "+
				"expected '<%s'", v.text, name)
		}
	}
	return "", p.unsupported(fixOf(name[0]), "the data type is %q, expected a number of 1 to 8 bytes", v.text)
}

// fixOf returns how to save an array with elements of an unsupported kind.
func fixOf(kind byte) string {
	switch kind {
	case 'O':
		return "the array has Python objects: save it with a numeric dtype, such as a.astype('<f4')"
	case 'S', 'U', 'a':
		return "the array has text: save its bytes, such as a.view('u1').reshape(len(a), -1)"
	case 'm', 'M':
		return "the array has times: save a.view('<i8')"
	case 'c':
		return "save the parts as numbers: a.view('<f8')"
	case 'V':
		return "the array has raw bytes: save them as numbers, such as a.view('<u2') for bfloat16"
	}
	return "save the array with another dtype, such as a.astype('<f4')"
}
