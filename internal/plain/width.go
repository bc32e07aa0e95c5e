// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"strings"
	"unicode"
)

// wide lists the ranges of characters that take two columns: East Asian scripts,
// full-width forms and emoji.
var wide = [...][2]rune{
	{0x1100, 0x115f},
	{0x231a, 0x231b},
	{0x23e9, 0x23ec},
	{0x2e80, 0x303e},
	{0x3041, 0x33ff},
	{0x3400, 0x4dbf},
	{0x4e00, 0x9fff},
	{
		0xa000,
		0xa4cf,
	},
	{0xa960, 0xa97f},
	{0xac00, 0xd7a3},
	{0xf900, 0xfaff},
	{0xfe30, 0xfe6f},
	{0xff00, 0xff60},
	{0xffe0, 0xffe6},
	{0x1f300, 0x1f64f},
	{0x1f680, 0x1f6ff},
	{0x1f900, 0x1faff},
	{0x20000, 0x3fffd},
}

// columnsOf returns the columns that a terminal needs for a character.
func columnsOf(r rune) int {
	if r < 0x300 {
		return 1 // the common case first
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0 // combined with the character before
	}
	for _, w := range wide {
		if r >= w[0] && r <= w[1] {
			return 2
		}
	}
	return 1
}

// Columns returns the columns that a terminal needs for a text without controls.
func Columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// Cut shortens a text to width columns. If it cuts, the last column is an ellipsis.
func Cut(s string, width int) string {
	if Columns(s) <= width {
		return s
	}
	if width <= 0 {
		return ""
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n+columnsOf(r) > width-1 {
			break
		}
		n += columnsOf(r)
		b.WriteRune(r)
	}
	return b.String() + "…"
}
