// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"crypto/rand"
	"fmt"
)

// NewUUID returns a random UUID of version 4.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// IsSpoiltUUID reports whether the parameter have is a damaged copy of the UUID in the parameter right, and not the
// UUID of another store. IsSpoiltUUID returns false if the parameter have is a well-formed UUID and the parameter right
// is not.
func IsSpoiltUUID(have, right string) bool {
	if !IsWellFormedUUID(have) {
		return true
	}
	alike := 0
	for i := range min(len(right), uuidLength) {
		if have[i] == right[i] {
			alike++
		}
	}
	return IsWellFormedUUID(right) && alike >= uuidAlike
}

// uuidLength is the length of a UUID in text. uuidAlike is a number of equal characters that two random UUIDs
// practically never reach.
const (
	uuidLength = 36
	uuidAlike  = 24
)

// IsWellFormedUUID reports whether text has the form of a UUID in lower case.
func IsWellFormedUUID(text string) bool {
	if len(text) != uuidLength {
		return false
	}
	for i := range uuidLength {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := text[i] >= '0' && text[i] <= '9' || text[i] >= 'a' && text[i] <= 'f'
		if dash != (text[i] == '-') || !dash && !hex {
			return false
		}
	}
	return true
}
