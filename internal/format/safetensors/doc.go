// SPDX-License-Identifier: Apache-2.0

// Package safetensors reads, writes and checks safetensors headers and the
// index files of sharded models; it moves no tensor data.
//
// A file is 8 bytes of little-endian header length N, N bytes of JSON, and the
// data up to the end of the file. The reader proves, before it returns, that
// the tensors tile the data exactly: no hole, no overlap, no shared range, no
// trailing byte, and each range as long as its dtype and shape say. A caller
// may therefore read any returned range without further checks.
//
// The format's documents disagree in places. The decisions here are:
//
//   - Start and padding: Strict wants '{' as the first byte and only spaces
//     (0x20) after the object; Lenient takes JSON whitespace at both ends.
//     Whitespace between JSON tokens is legal in both.
//   - Unknown fields of a tensor object: Strict rejects them, Lenient ignores
//     them once they are proven to be well-formed.
//   - Duplicate keys are rejected at every level, compared after unescaping.
//   - Numbers are plain integers from 0 to 2^48-1: no sign, fraction, exponent
//     or leading zero.
//   - Names are any JSON string, the empty one included, without NUL and
//     without unpaired surrogates. "__metadata__" is never a tensor.
//   - "__metadata__" is a map of strings; null reads as absent.
//   - A shape's product is checked for overflow from left to right in 64 bits,
//     as the reference does, so an overflow before a zero dimension is an error.
package safetensors

// Limits of what the reader accepts and the writer makes. They bound memory
// and time against hostile headers; MaxHeader is the format's own.
const (
	// MaxHeader is the largest JSON header in bytes, padding included.
	MaxHeader = 100_000_000
	// MaxInt is the largest integer in a header: 48 bits, as the schema says.
	MaxInt = 1<<48 - 1
	// MaxTensors is the largest number of tensors in one file or index: ten
	// times what the largest published mixture-of-experts models hold in all
	// their shards together.
	MaxTensors = 1_000_000
	// MaxRank is the largest number of dimensions, the limit of torch and numpy.
	MaxRank = 64
	// MaxName is the longest tensor name in bytes, after unescaping.
	MaxName = 4096
	// MaxMetadata is the largest number of entries of "__metadata__".
	MaxMetadata = 65_536
	// MaxIndex is the largest index file in bytes.
	MaxIndex = 256 << 20
	// MaxShards is the largest number of files an index may name.
	MaxShards = 65_536
)

// Mode chooses how much of what other readers tolerate Parse accepts. No mode
// relaxes a check on where tensors lie.
type Mode uint8

const (
	// Strict accepts what the format's README and schema allow, and is the default.
	Strict Mode = iota
	// Lenient also accepts JSON whitespace before and after the header object
	// and ignores unknown fields in tensor objects.
	Lenient
)

// String returns the mode's stable, lower-case name.
func (m Mode) String() string {
	if m == Lenient {
		return "lenient"
	}
	return "strict"
}

// metadataKey is the one header key that is not a tensor.
const metadataKey = "__metadata__"
