// SPDX-License-Identifier: Apache-2.0

package tokens

import "unicode/utf8"

// levelRunes returns the character that stands for each byte in byte-level vocabularies. Printable characters of
// Latin-1 stand for themselves; the other bytes have the characters from U+0100 on.
func levelRunes() [256]rune {
	var runes [256]rune
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			runes[b] = b
		} else {
			runes[b] = next
			next++
		}
	}
	return runes
}

// levelByte returns the byte that a character stands for, or false.
func levelByte(r rune) (byte, bool) {
	switch {
	case r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE && r <= 0xFF:
		return byte(r), true
	case r >= 0x100 && r <= 0x120:
		return byte(r - 0x100), true
	case r >= 0x121 && r <= 0x142:
		return byte(r - 0x121 + 0x7F), true
	case r == 0x143:
		return 0xAD, true
	}
	return 0, false
}

// levelDecode returns the bytes that a token of a byte-level vocabulary stands for, or false if it has characters that
// stand for no byte.
func levelDecode(token string) (string, bool) {
	raw := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := levelByte(r)
		if !ok {
			return "", false
		}
		raw = append(raw, b)
	}
	return string(raw), true
}

// levelEncode appends the characters that stand for the bytes of text.
func levelEncode(out, text []byte, runes *[256]rune) []byte {
	for _, b := range text {
		out = utf8.AppendRune(out, runes[b])
	}
	return out
}
