// SPDX-License-Identifier: Apache-2.0

package plain_test

import (
	"testing"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/plain"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                  "",
		"naïve 文件 – ok":     "naïve 文件 – ok",
		"\x1b[31mred":       `\x1b[31mred`,
		"a\nb\tc":           `a\nb\tc`,
		"rtl\u202eexe":      `rtl\u202eexe`,
		"bad \xff\xfe":      `bad \xff\xfe`,
		"kept \ufffd there": "kept \ufffd there",
	} {
		if got := plain.Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("\x1b]0;title\x07 \xff")
	f.Fuzz(func(t *testing.T, s string) {
		out := plain.Text(s)
		if !utf8.ValidString(out) || plain.Text(out) != out {
			t.Errorf("%q becomes %q", s, out)
		}
	})
}
