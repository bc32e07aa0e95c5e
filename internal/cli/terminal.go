// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"unicode"
)

// usualWidth is the width of a terminal that does not report its own, and of
// output that is not a terminal.
const usualWidth = 80

// width returns the current width in columns of the terminal behind stderr. It
// is queried for each line, because a window can be resized at any time.
func (a *app) width() int {
	if a.TerminalWidth == nil {
		return usualWidth
	}
	if n := a.TerminalWidth(); n > 0 {
		return n
	}
	return usualWidth
}

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

// columns returns the columns that a terminal needs for a text without controls.
func columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// cut shortens a text to width columns. If it cuts, the last column is an ellipsis.
func cut(s string, width int) string {
	if columns(s) <= width {
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

// leastName is the number of columns of a name that stay before the rest of the line is cut.
const leastName = 12

// fit joins a name and the rest of a line. If both do not fit into width, it
// cuts the name first and then the end.
func fit(name, rest string, width int) string {
	if rest == "" {
		return cut(name, width)
	}
	if name == "" {
		return cut(rest, width)
	}
	const gap = "  "
	room := max(width-columns(rest)-len(gap), min(leastName, columns(name)))
	return cut(cut(name, room)+gap+rest, width)
}
