// SPDX-License-Identifier: Apache-2.0

package charset_test

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/tokens/charset"
)

// TestSets compares sets with a plain list of their members.
func TestSets(t *testing.T) {
	a := charset.NewSet(charset.Range{Lo: 'a', Hi: 'z'}, charset.Range{Lo: 0x100, Hi: 0x2FF})
	b := charset.NewSet(charset.Range{Lo: 'm', Hi: 0x1FF}, charset.Range{Lo: 0x10FFFF, Hi: 0x10FFFF + 5})
	both, either, not := a.Intersect(b), a.Union(b), a.Negate()
	for r := rune(-2); r <= utf8.MaxRune+2; r++ {
		inA := r >= 'a' && r <= 'z' || r >= 0x100 && r <= 0x2FF
		inB := r >= 'm' && r <= 0x1FF || r == utf8.MaxRune
		valid := r >= 0 && r <= utf8.MaxRune
		if a.Has(r) != inA || b.Has(r) != inB || both.Has(r) != (inA && inB) || either.Has(r) != (inA || inB) ||
			not.Has(r) != (valid && !inA) {
			t.Fatalf("%#x is in the wrong sets", r)
		}
	}
}

// TestTables compares the classes with those of Go, which has an older or newer Unicode version, for letters that are
// in every version.
func TestTables(t *testing.T) {
	for name, table := range map[string]*unicode.RangeTable{"L": unicode.L, "Lu": unicode.Lu, "N": unicode.N,
		"M": unicode.M,
		"P": unicode.P, "S": unicode.S, "Zs": unicode.Zs, "Han": unicode.Han} {
		set, ok := charset.Property(name)
		if !ok {
			t.Fatalf("no property %s", name)
		}
		for r := rune(0); r < 0x800; r++ {
			if set.Has(r) != unicode.Is(table, r) {
				t.Errorf("%s: %#x", name, r)
			}
		}
	}
	for _, name := range []string{"", "C", "word", "upper", "Emoji", "l", "Lx"} {
		if _, ok := charset.Property(name); ok {
			t.Errorf("there is a property %q", name)
		}
	}
	space := charset.Space()
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if space.Has(r) != unicode.IsSpace(r) || charset.IsSpace(r) != unicode.IsSpace(r) {
			t.Errorf("space: %#x", r)
		}
	}
	if got := string(charset.AppendLower(charset.AppendLower(charset.AppendLower(nil, 'Ä'), 0x130),
		'Z')); got != "äi\u0307z" {
		t.Errorf("lower case: %q", got)
	}
	for r, in := range map[rune]bool{'a': true, '_': true, '-': false, 'é': true, 0x301: true} {
		if charset.Word().Has(r) != in || charset.PlainWord().Has(r) != in {
			t.Errorf("word: %#x", r)
		}
	}
	for _, c := range []struct {
		set *charset.Set
		in  rune
		out rune
	}{{charset.Numeric(), '½', 'a'}, {charset.Punctuation(), '$', 'a'}, {charset.Control(), 0xFFFD, '\n'},
		{charset.Nonspacing(), 0x301, 'a'}, {charset.Combining(), 0x903, 'a'}} {
		if !c.set.Has(c.in) || c.set.Has(c.out) {
			t.Errorf("%#x or %#x is in the wrong set", c.in, c.out)
		}
	}
}
