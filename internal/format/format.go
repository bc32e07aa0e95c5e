// SPDX-License-Identifier: Apache-2.0

// Package format defines data types, tensors and the positions of tensors in files.
//
// Package format does no I/O. Subpackages of format parse tensor files of one format each.
package format

// DType is the element type of a tensor, by its safetensors name.
type DType string

// Bool to U64 are the data types of safetensors 0.8.
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

// DTypes returns all data types in order of increasing alignment, as the reference implementation orders them.
func DTypes() []DType {
	return []DType{Bool, F4, F6E2M3, F6E3M2, U8, I8, F8E5M2, F8E4M3, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ,
		I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64}
}

// Bits returns the width of one element in bits, or 0 for an unknown data type.
func (d DType) Bits() int {
	switch d {
	case F4:
		return 4
	case F6E2M3, F6E3M2:
		return 6
	case Bool, U8, I8, F8E5M2, F8E4M3, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ:
		return 8
	case I16, U16, F16, BF16:
		return 16
	case I32, U32, F32:
		return 32
	case C64, F64, I64, U64:
		return 64
	}
	return 0
}

// Align returns the alignment in bytes that an address of an element needs: the element's size, or 1 for types
// narrower than a byte.
func (d DType) Align() int64 {
	if b := d.Bits(); b >= 8 {
		return int64(b / 8)
	}
	return 1
}

// Tensor is one named array in a file.
type Tensor struct {
	Name   string  `json:"name"`
	DType  DType   `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Offset int64   `json:"offset"` // bytes from the start of the file to the tensor's first byte
	Size   int64   `json:"size"`   // length of the data in bytes
}

// File is a parsed tensor file, with its tensors in order of offset.
type File struct {
	Path      string            `json:"path"`
	Size      int64             `json:"size"`       // size of the whole file in bytes
	DataStart int64             `json:"data_start"` // offset of the first data byte, just after the header
	Tensors   []Tensor          `json:"tensors"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}
