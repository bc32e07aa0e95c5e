// SPDX-License-Identifier: Apache-2.0

// Package plain makes text from files and libraries safe to show in a terminal or a browser. Text from files and
// libraries can contain control characters that a terminal or a browser would interpret as commands.
package plain

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns the string s with every unprintable character and every byte of invalid UTF-8 replaced by a Go escape
// such as \x1b. Unprintable characters include terminal escapes and changes of the writing direction.
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
