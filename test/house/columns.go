// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/scanner"
	"go/token"
	"strings"
	"unicode/utf8"
)

// MostColumns is the largest number of columns of a line of Go code. A tab counts as one column.
const MostColumns = 120

// textColumns is the number of columns of a text that excuses a wide line. Such a text cannot be broken well.
const textColumns = 60

// TooWide returns an error line for each line of a Go file that has more than MostColumns columns. Lines with a long
// text are left out.
func TooWide(path string, source []byte) (broken []string) {
	lines := strings.Split(string(source), "\n")
	excused := make([]bool, len(lines)+1)
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile(path, -1, len(source)), source, nil, scanner.ScanComments)
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			break
		}
		first := files.Position(pos).Line
		switch {
		case kind == token.STRING && (utf8.RuneCountInString(text) >= textColumns || strings.Contains(text, "\n")):
			for i := range strings.Count(text, "\n") + 1 {
				excused[first+i] = true
			}
		case kind == token.COMMENT && strings.HasPrefix(text, "//go:"):
			excused[first] = true
		}
	}
	for i, line := range lines {
		if n := utf8.RuneCountInString(line); n > MostColumns && !excused[i+1] {
			broken = append(broken, fmt.Sprintf("%s:%d has %d columns, at most %d may be", path, i+1, n, MostColumns))
		}
	}
	return broken
}
