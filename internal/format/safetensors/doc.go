// SPDX-License-Identifier: Apache-2.0

// Package safetensors reads, writes and checks the headers of safetensors files
// and the index files of sharded models. Package safetensors moves no tensor data.
//
// A safetensors file is 8 bytes of little-endian header length N, N bytes of JSON, and the data up to the end of the
// file. Before Parse returns, it proves that the tensors cover the data exactly: no hole, no overlap, no shared range
// and no trailing byte. The byte range of each tensor is exactly as long as its dtype and shape require. Callers may
// therefore read any byte range that Parse returns without further checks.
//
// The README, the schema and the reference implementation of safetensors disagree in places. Package safetensors
// decides:
//
//   - Start and padding: Strict requires '{' as the first byte and only spaces
//     (0x20) after the object. Lenient accepts JSON whitespace at both ends.
//     Whitespace between JSON tokens is legal in both modes.
//   - Strict rejects unknown fields of a tensor object. Lenient ignores unknown
//     fields if they are well-formed.
//   - Duplicate keys are rejected at every level, compared after unescaping.
//   - Numbers are plain integers from 0 to 2^48-1: no sign, fraction, exponent
//     or leading zero.
//   - A tensor name is any JSON string without NUL and without unpaired
//     surrogates. It may be empty. "__metadata__" is never a tensor.
//   - "__metadata__" is a map of strings. The value null counts as absent.
//   - The product of a shape is checked for overflow from left to right in 64 bits,
//     as in the reference. An overflow before a zero dimension is thus an error.
package safetensors

// MaxHeader to MaxShards limit the files that the parser accepts and EncodeHeader writes. The safetensors format
// defines the value of MaxHeader. The limits other than MaxHeader bound the memory and time that a hostile header can
// cost.
const (
	// MaxHeader is the largest JSON header in bytes, including padding.
	MaxHeader = 100_000_000
	// MaxInt is the largest integer in a header: 48 bits, as in the format's schema.
	MaxInt = 1<<48 - 1
	// MaxTensors is the largest number of tensors in one file or index. The largest published mixture-of-experts
	// models have a tenth of MaxTensors in all shards together.
	MaxTensors = 1_000_000
	// MaxRank is the largest number of dimensions of a tensor, as in torch and numpy.
	MaxRank = 64
	// MaxName is the longest tensor name in bytes, after unescaping.
	MaxName = 4096
	// MaxMetadata is the largest number of entries in "__metadata__".
	MaxMetadata = 65_536
	// MaxIndex is the largest index file in bytes.
	MaxIndex = 256 << 20
	// MaxShards is the largest number of files that an index may name.
	MaxShards = 65_536
)

// Mode selects how strictly Parse checks a header. In every Mode, Parse checks that the tensors cover the data
// exactly.
type Mode uint8

const (
	// Strict accepts only what the format's README and schema allow. Strict is the default.
	Strict Mode = iota
	// Lenient also accepts JSON whitespace before and after the header object, and ignores unknown fields in tensor
	// objects.
	Lenient
)

// String returns the mode's lower-case name, which never changes.
func (m Mode) String() string {
	if m == Lenient {
		return "lenient"
	}
	return "strict"
}

// metadataKey is the one header key that is not a tensor.
const metadataKey = "__metadata__"
