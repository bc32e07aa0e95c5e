// SPDX-License-Identifier: Apache-2.0

// Package plain makes text of others safe to show: names and messages come from
// files and libraries, and a terminal or a browser would obey some of them.
package plain

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text shows runes that would be obeyed instead of shown, such as escapes and
// changes of writing direction, as escapes, and invalid UTF-8 as its bytes.
func Text(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !shown(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if shown(r) && (r != utf8.RuneError || n > 1) {
			b.WriteString(s[i : i+n])
		} else {
			q := strconv.Quote(s[i : i+n])
			b.WriteString(q[1 : len(q)-1])
		}
		i += n
	}
	return b.String()
}

func shown(r rune) bool { return r == ' ' || unicode.IsPrint(r) }
