// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/nebulaio/nebulaio/internal/plain"

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

// columns returns the columns that a terminal needs for a text without controls.
func columns(s string) int { return plain.Columns(s) }

// cut shortens a text to width columns. If it cuts, the last column is an ellipsis.
func cut(s string, width int) string { return plain.Cut(s, width) }

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
