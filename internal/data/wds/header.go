// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"bytes"
	"fmt"
	"math"
)

const block = 512 // bytes of a header, and the unit of a tar archive

// Kinds of members, as the type flag of a header has them.
const (
	kindRegular    = '0'
	kindOldRegular = 0
	kindDirectory  = '5'
	kindContiguous = '7'
	kindPAX        = 'x'
	kindSolarisPAX = 'X'
	kindGlobalPAX  = 'g'
	kindLongName   = 'L'
	kindLongLink   = 'K'
	kindSparse     = 'S'
)

// header is what a reader needs to know of a member.
type header struct {
	name string
	size int64 // bytes that follow the header, without padding
	kind byte
}

// parseHeader parses a block of 512 bytes that is not all zero. The result `why` is the reason why the block is no
// header, or "".
func parseHeader(b []byte) (h header, why string) {
	want, ok := number(b[148:156])
	unsigned, signed := sums(b)
	if !ok || want != unsigned && want != signed {
		return h, fmt.Sprintf("the checksum field is %q, and the sum of the header is %06o", b[148:156], unsigned)
	}
	h = header{name: text(b[:100]), kind: b[156]}
	if h.kind == kindOldRegular && len(h.name) > 0 && h.name[len(h.name)-1] == '/' {
		h.kind = kindDirectory
	}
	// Only headers with the magic of POSIX have a prefix. GNU tar keeps other fields in this place.
	if string(b[257:263]) == "ustar\x00" {
		prefix := text(b[345:500])
		if string(b[508:512]) == "tar\x00" { // the format of star has a shorter prefix
			prefix = text(b[345:476])
		}
		if prefix != "" {
			h.name = prefix + "/" + h.name
		}
	}
	if h.size, ok = number(b[124:136]); !ok {
		return h, fmt.Sprintf("the size field of the member %.200q is %q, expected an octal number", h.name, b[124:136])
	}
	if !h.hasData() {
		h.size = 0
	}
	return h, ""
}

// isRegular reports whether the member is a regular file.
func (h header) isRegular() bool {
	return h.kind == kindRegular || h.kind == kindOldRegular || h.kind == kindContiguous
}

// hasData reports whether data can follow the header. Links, devices, directories and pipes have none.
func (h header) hasData() bool { return h.kind < '1' || h.kind > '6' }

// sums returns the sum of a header with its checksum field as spaces. Old programs summed signed bytes.
func sums(b []byte) (unsigned, signed int64) {
	high := int64(0) // bytes with the highest bit, which are 256 less as signed bytes
	for _, c := range b {
		unsigned += int64(c)
		high += int64(c >> 7)
	}
	for _, c := range b[148:156] {
		unsigned += ' ' - int64(c)
		high -= int64(c >> 7)
	}
	return unsigned, unsigned - 256*high
}

// text returns the bytes of a field before its first NUL.
func text(field []byte) string { return string(untilNUL(field)) }

// untilNUL returns the part of a field before its first NUL.
func untilNUL(field []byte) []byte {
	if i := bytes.IndexByte(field, 0); i >= 0 {
		return field[:i]
	}
	return field
}

// number parses a field with an octal number, or with the base-256 number of GNU tar. A base-256 number that int64
// does not hold is returned as the largest int64, so that every size check refuses it.
func number(field []byte) (n int64, ok bool) {
	if field[0] == 0x80 {
		for _, c := range field[1:] {
			if n > math.MaxInt64>>8 {
				return math.MaxInt64, true
			}
			n = n<<8 | int64(c)
		}
		return n, true
	}
	for _, c := range bytes.Trim(untilNUL(field), " ") {
		if c < '0' || c > '7' {
			return 0, false
		}
		n = n<<3 | int64(c-'0') // at most 12 digits, so there is no overflow
	}
	return n, true
}

// padded returns a size with its padding to whole blocks.
func padded(size int64) int64 { return (size + block - 1) / block * block }

// isZero reports whether all bytes are zero.
func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
