// SPDX-License-Identifier: Apache-2.0

package pattern_test

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/tokens/pattern"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// matches returns the matches of p in text, each between bars, and the text between them.
func matches(t *testing.T, p *pattern.Pattern, text string) string {
	t.Helper()
	var m pattern.Matcher
	m.Reset(p, []byte(text))
	var out strings.Builder
	for at := 0; ; {
		start, end, err := m.Next(at)
		if err != nil {
			t.Fatal(err)
		}
		if start < 0 {
			return out.String() + text[at:]
		}
		out.WriteString(text[at:start] + "|" + text[start:end] + "|")
		at = end
	}
}

// TestMatches has matches that Oniguruma finds, through the Python package tokenizers 0.23.3.
func TestMatches(t *testing.T) {
	for _, c := range []struct{ pattern, text, want string }{
		{`\s+(?!\S)|\s+`, "a   b \n", "a|  || |b| \n|"},
		{`(?i:'s|'re)`, "a'S'ſ'rE", "a|'S||'ſ||'rE|"},
		{`\p{N}{1,3}`, "12345 ½٣", "|123||45| |½٣|"},
		{`[^(\s|[.,!?…])]+`, "a(b|c. d", "|a|(|b|||c|. |d|"},
		{`[\p{L}&&[^a-f]]+`, "abcxyzß", "abc|xyzß|"},
		{`a|ab`, "ab", "|a|b"},
		{`(?:ab|a)(?:c|bcd)`, "abcd", "|abc|d"},
		{`a+?b?`, "aab", "|a||ab|"},
		{`(?:ab){2,}c?`, "ababab abc", "|ababab| abc"},
		{`x(?:ab)??c`, "xabc xc", "|xabc| |xc|"},
		{`a++a|b`, "aaab", "aaa|b|"},
		{`(?:a|ab)++b`, "aab abb", "|aab| |ab|b"},
		{`\s+$`, "a \nb  ", "a| |\nb|  |"},
		{`.\x{301}|\u00e9`, "e\u0301é\n", "|e\u0301||é|\n"},
		{`\P{L}\p{^Lu}\d\W`, "1a2-", "|1a2-|"},
		{`[a\-z][-x]`, "a- zx -b", "|a-| |zx| -b"},
	} {
		p, err := pattern.Compile(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if got := matches(t, p, c.text); got != c.want {
			t.Errorf("%s in %q: %q, expected %q", c.pattern, c.text, got, c.want)
		}
	}
	literal, err := pattern.Literal(`a.b[`)
	if err != nil {
		t.Fatal(err)
	}
	if got := matches(t, literal, "axb[a.b["); got != "axb[|a.b[|" {
		t.Error(got)
	}
}

func TestOtherSyntaxIsRefused(t *testing.T) {
	for _, text := range []string{``, `a*`, `a|`, `(a`, `a)`, `[a`, `[]a]`, `[b-a]`, `[a-\s]`, `[\s-a]`, `[a&&]`,
		`[[:alpha:]]`,
		`(?<=a)b`, `(?<n>a)`, `(?#x)a`, `(?m:a)`, `a**`, `a{2}+`, `a{2}?`, `a{3,2}`, `a{1001}`, `a{,2}`, `*a`, `^a`, `a\b`,
		`(a)\1`, `\h`, `\p{Emoji}`, `\pL`, `\p{L`, `\xff`, `\x{110000}`, `\ud800`, `a\`, `(?i:\p{L})`, `(?i:ss)`, `(?i:é)`,
		`(?=a)*b`, `(?:a?)+b`, "\xff", strings.Repeat("(", 40) + "a" + strings.Repeat(")", 40),
		strings.Repeat("a", 600), `(?:(?:ab){100}){100}`} {
		p, err := pattern.Compile(text)
		if p != nil || !errs.Is(err, errs.Unsupported) || errs.FixOf(err) == "" {
			t.Errorf("%.60q: %v, expected a refusal with a fix", text, err)
		}
	}
}

// FuzzCompile compiles hostile patterns, and runs those that are accepted.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{`(?i:'s|'t)|[^\r\n\p{L}]?\p{L}+|\s+(?!\S)`, `[a-c&&[^b]]++x{2,3}|(?:ab|c)*?d$`,
		`\x{41}.\u0042`} {
		f.Add(seed, "it's a  bc ABd")
	}
	f.Fuzz(func(t *testing.T, text, in string) {
		if len(text) > 200 || len(in) > 100 {
			return
		}
		p, err := pattern.Compile(text)
		if err != nil {
			return
		}
		var m pattern.Matcher
		m.Reset(p, []byte(in))
		for at := 0; at < len(in); {
			start, end, err := m.Next(at)
			if err != nil || start < 0 {
				return
			}
			if start < at || end <= start || end > len(in) {
				t.Fatalf("%q in %q: match from %d to %d after %d", text, in, start, end, at)
			}
			at = end
		}
	})
}
