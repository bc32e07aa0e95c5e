// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"unicode"
)

// usualWidth is the width of a terminal that does not tell its own, and of text
// that is no terminal's.
const usualWidth = 80

// width is how many columns the terminal behind stderr has now. It is asked for
// with each line, since a window can be resized at any time.
func (a *app) width() int {
	if a.TerminalWidth == nil {
		return usualWidth
	}
	if n := a.TerminalWidth(); n > 0 {
		return n
	}
	return usualWidth
}

// wide are the ranges of characters that take two columns: the scripts of East
// Asia, full-width forms and pictures.
var wide = [...][2]rune{{0x1100, 0x115f}, {0x231a, 0x231b}, {0x23e9, 0x23ec}, {0x2e80, 0x303e}, {0x3041, 0x33ff}, {0x3400, 0x4dbf}, {0x4e00, 0x9fff},
	{0xa000, 0xa4cf}, {0xa960, 0xa97f}, {0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6},
	{0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff}, {0x20000, 0x3fffd}}

// columnsOf is how many columns a terminal needs for a character.
func columnsOf(r rune) int {
	if r < 0x300 {
		return 1 // the usual ones, first
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0 // it is put on the one before
	}
	for _, w := range wide {
		if r >= w[0] && r <= w[1] {
			return 2
		}
	}
	return 1
}

// columns is how many columns a terminal needs for a text without controls.
func columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// cut shortens a text to so many columns. The last of them then shows that
// something is missing.
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

// leastName is how much of a name is shown before the rest of a line is cut.
const leastName = 12

// fit makes one line of a name and what is to be said of it. Where both do not
// fit, the name is cut first, and then the end.
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
