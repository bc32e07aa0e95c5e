// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/nebulaio/nebulaio/internal/data/tokens/charset"
)

// foreign lists the characters that the reference leaves alone, because its tables for normal forms are from an older
// Unicode version than those of x/text.
var foreign = sync.OnceValue(func() *charset.Set {
	return charset.NewSet([]charset.Range{{Lo: 0x7FD, Hi: 0x7FD}, {Lo: 0x898, Hi: 0x89F}, {Lo: 0x8CA, Hi: 0x8D3},
		{Lo: 0x9FE, Hi: 0x9FE}, {Lo: 0xC3C, Hi: 0xC3C}, {Lo: 0xD3B, Hi: 0xD3C}, {Lo: 0xEBA, Hi: 0xEBA},
		{Lo: 0x1715, Hi: 0x1715}, {Lo: 0x1ABF, Hi: 0x1ACE}, {Lo: 0x1DF6, Hi: 0x1DFA}, {Lo: 0x32FF, Hi: 0x32FF},
		{Lo: 0xA7F2, Hi: 0xA7F4}, {Lo: 0xA82C, Hi: 0xA82C}, {Lo: 0xAB69, Hi: 0xAB69}, {Lo: 0x10781, Hi: 0x10785},
		{Lo: 0x10787, Hi: 0x107B0}, {Lo: 0x107B2, Hi: 0x107BA}, {Lo: 0x10D24, Hi: 0x10D27}, {Lo: 0x10EAB, Hi: 0x10EAC},
		{Lo: 0x10EFD, Hi: 0x10EFF}, {Lo: 0x10F46, Hi: 0x10F50}, {Lo: 0x10F82, Hi: 0x10F85}, {Lo: 0x11070, Hi: 0x11070},
		{Lo: 0x1133B, Hi: 0x1133B}, {Lo: 0x1145E, Hi: 0x1145E}, {Lo: 0x11839, Hi: 0x1183A}, {Lo: 0x11930, Hi: 0x11930},
		{Lo: 0x11938, Hi: 0x11938}, {Lo: 0x1193D, Hi: 0x1193E}, {Lo: 0x11943, Hi: 0x11943}, {Lo: 0x119E0, Hi: 0x119E0},
		{Lo: 0x11A34, Hi: 0x11A34}, {Lo: 0x11A47, Hi: 0x11A47}, {Lo: 0x11A99, Hi: 0x11A99}, {Lo: 0x11D42, Hi: 0x11D42},
		{Lo: 0x11D44, Hi: 0x11D45}, {Lo: 0x11D97, Hi: 0x11D97}, {Lo: 0x11F41, Hi: 0x11F42}, {Lo: 0x16FF0, Hi: 0x16FF1},
		{Lo: 0x1E030, Hi: 0x1E06D}, {Lo: 0x1E08F, Hi: 0x1E08F}, {Lo: 0x1E130, Hi: 0x1E136}, {Lo: 0x1E2AE, Hi: 0x1E2AE},
		{Lo: 0x1E2EC, Hi: 0x1E2EF}, {Lo: 0x1E4EC, Hi: 0x1E4EF}, {Lo: 0x1F16C, Hi: 0x1F16C},
		{Lo: 0x1FBF0, Hi: 0x1FBF9}}...)
})

// manyMarks is the number of neighbouring marks from which x/text may insert a character to keep the run short.
const manyMarks = 10

// formNormalizer returns the normalizer of a Unicode normal form. Bytes that are not UTF-8 stay as they are.
func formNormalizer(form norm.Form) normalizer {
	set := foreign()
	return func(text []byte, first bool) ([]byte, bool, error) {
		ascii := 0
		for ascii < len(text) && text[ascii] < utf8.RuneSelf {
			ascii++
		}
		if ascii == len(text) {
			return text, first, nil
		}
		var out []byte // nil as long as nothing has changed
		start, marks, many := 0, 0, false
		flush := func(end, next int) {
			part := text[start:end]
			switch {
			case out == nil && form.QuickSpan(part) == len(part) && !many:
			case many:
				out = plainForm(form, part, begun(out, text[:start]))
			default:
				out = append(begun(out, text[:start]), form.Bytes(part)...)
			}
			if out != nil {
				out = append(out, text[end:next]...)
			}
			start, marks, many = next, 0, false
		}
		for i := ascii; i < len(text); {
			if text[i] < utf8.RuneSelf {
				i, marks = i+1, 0
				continue
			}
			r, n := utf8.DecodeRune(text[i:])
			switch {
			case r == utf8.RuneError && n == 1 || set.Has(r):
				flush(i, i+n)
			case norm.NFKD.Properties(text[i:i+n]).CCC() != 0:
				marks++
				many = many || marks >= manyMarks
			default:
				marks = 0
			}
			i += n
		}
		flush(len(text), len(text))
		if out == nil {
			return text, first, nil
		}
		return out, first, nil
	}
}

// begun returns out, or a copy of the unchanged begin of the text if out is nil. The result is not nil.
func begun(out, before []byte) []byte {
	if out != nil {
		return out
	}
	return append(make([]byte, 0, len(before)+64), before...)
}

// plainForm appends the normal form of text as the Unicode standard has it. The functions of x/text insert a character
// (U+034F) into a run of more than 30 marks.
func plainForm(form norm.Form, text, out []byte) []byte {
	apart := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		apart = norm.NFKD
	}
	var chars []char
	start := 0 // of the marks at the end of chars
	sort := func() {
		slices.SortStableFunc(chars[start:], func(a, b char) int { return int(a.class) - int(b.class) })
	}
	for _, r := range string(text) {
		for _, d := range apart.String(string(r)) {
			c := char{d, norm.NFD.PropertiesString(string(d)).CCC()}
			if c.class == 0 {
				sort()
				start = len(chars) + 1
			}
			chars = append(chars, c)
		}
	}
	sort()
	if form == norm.NFC || form == norm.NFKC {
		chars = composed(chars)
	}
	for _, c := range chars {
		out = utf8.AppendRune(out, c.r)
	}
	return out
}

// char is a character with its combining class, which is 0 for all but marks.
type char struct {
	r     rune
	class uint8
}

// composed joins characters and the marks after them.
func composed(chars []char) []char {
	var out []char
	starter := -1 // the place of the last character in out that is not a mark
	for _, c := range chars {
		blocked := starter < 0 || starter < len(out)-1 && out[len(out)-1].class >= c.class
		if !blocked {
			if whole := []rune(norm.NFC.String(string(out[starter].r) + string(c.r))); len(whole) == 1 {
				out[starter].r = whole[0]
				continue
			}
		}
		if c.class == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	return out
}
