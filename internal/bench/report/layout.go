// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const columns = 80 // columns of a terminal; longer words are never cut

// sheet lays out text. Its buffer keeps the first write error, which is returned at the end.
type sheet struct{ w *bufio.Writer }

func newSheet(w io.Writer) *sheet { return &sheet{bufio.NewWriter(w)} }

func (s *sheet) line(text string) { fmt.Fprintln(s.w, text) }

// field writes a named line. Further lines are indented to the start of the text. Without text nothing is written.
func (s *sheet) field(indent, name, text string) {
	if text == "" {
		return
	}
	head := indent + fmt.Sprintf("%-10s", name)
	if !strings.HasSuffix(head, " ") {
		head += " "
	}
	s.wrap(head, strings.Repeat(" ", utf8.RuneCountInString(head)), text)
}

// wrap writes text after head, and its further lines after under.
func (s *sheet) wrap(head, under, text string) {
	line, used := head, utf8.RuneCountInString(head)
	empty := true
	for _, word := range words80(text) {
		n := utf8.RuneCountInString(word)
		if !empty && used+1+n > columns {
			s.line(line)
			line, used, empty = under, utf8.RuneCountInString(under), true
		}
		if !empty {
			line, used = line+" ", used+1
		}
		line, used, empty = line+word, used+n, false
	}
	s.line(strings.TrimRight(line, " "))
}

// words80 splits text at the places where a line may end: not between a number and its unit.
func words80(text string) []string {
	var out []string
	for word := range strings.FieldsSeq(text) {
		if n := len(out); n > 0 && isUnit(word) && strings.IndexByte("0123456789", out[n-1][len(out[n-1])-1]) >= 0 {
			out[n-1] += " " + word
		} else {
			out = append(out, word)
		}
	}
	return out
}

func isUnit(word string) bool {
	switch strings.TrimRight(word, ".,;:)") {
	case "B", "KiB", "MiB", "GiB", "TiB", "MB/s", "GB/s", "MiB/s", "GiB/s", "%", "x", "µs", "ms", "s", "min", "h", "IOPS",
		"samples/s":
		return true
	}
	return false
}

// grid lays out text in columns. Cells are never cut.
type grid struct {
	right []bool
	rows  [][]string
}

// newGrid returns an empty table. A heading that starts with '>' marks a column of numbers.
func newGrid(heads ...string) *grid {
	g := &grid{}
	row := make([]string, len(heads))
	for i, h := range heads {
		name, right := strings.CutPrefix(h, ">")
		g.right, row[i] = append(g.right, right), name
	}
	g.rows = append(g.rows, row)
	return g
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

func (s *sheet) grid(indent string, g *grid) {
	width := make([]int, len(g.right))
	for _, r := range g.rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range g.rows {
		line := indent
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if g.right[i] {
				line += pad + c + "  "
			} else {
				line += c + pad + "  "
			}
		}
		s.line(strings.TrimRight(line, " "))
	}
}
