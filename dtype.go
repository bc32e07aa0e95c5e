// SPDX-License-Identifier: Apache-2.0

package nebulaio

import "github.com/nebulaio/nebulaio/internal/format"

// DType is the element type of a tensor, as named in the safetensors format.
type DType string

// Element types of the safetensors format.
const (
	Bool       DType = "BOOL"
	F4         DType = "F4"
	F6E2M3     DType = "F6_E2M3"
	F6E3M2     DType = "F6_E3M2"
	U8         DType = "U8"
	I8         DType = "I8"
	F8E5M2     DType = "F8_E5M2"
	F8E4M3     DType = "F8_E4M3"
	F8E8M0     DType = "F8_E8M0"
	F8E4M3FNUZ DType = "F8_E4M3FNUZ"
	F8E5M2FNUZ DType = "F8_E5M2FNUZ"
	I16        DType = "I16"
	U16        DType = "U16"
	F16        DType = "F16"
	BF16       DType = "BF16"
	I32        DType = "I32"
	U32        DType = "U32"
	F32        DType = "F32"
	C64        DType = "C64"
	F64        DType = "F64"
	I64        DType = "I64"
	U64        DType = "U64"
)

// DTypes returns all element types, sorted by increasing alignment.
func DTypes() []DType {
	return convert(format.DTypes(), func(d format.DType) DType { return DType(d) })
}

// Bits returns the width of one element in bits, or 0 for an unknown element type.
func (d DType) Bits() int { return format.DType(d).Bits() }
