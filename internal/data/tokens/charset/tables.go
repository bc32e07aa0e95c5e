// SPDX-License-Identifier: Apache-2.0

package charset

import (
	_ "embed"
	"encoding/binary"
	"strings"
	"sync"
)

// tablesFile is written by tables.py.
//
//go:embed tables.bin
var tablesFile []byte

// tables are the decoded classes. Each class becomes a Set when it is first used.
type tables struct {
	ranges map[string][]Range
	lower  map[rune]rune
	mu     sync.Mutex
	sets   map[string]*Set
}

// decoded decodes tables.bin once.
var decoded = sync.OnceValue(func() *tables {
	t := &tables{ranges: map[string][]Range{}, lower: map[rune]rune{}, sets: map[string]*Set{}}
	b := tablesFile
	next := func() rune {
		v, n := binary.Uvarint(b)
		b = b[n:]
		return rune(v)
	}
	for len(b) > 0 {
		name := string(b[1 : 1+b[0]])
		b = b[1+len(name):]
		ranges, last := make([]Range, next()), rune(0)
		for i := range ranges {
			lo := last + next()
			last = lo + next()
			ranges[i] = Range{lo, last}
		}
		t.ranges[name] = ranges
		if name != "upper" {
			continue
		}
		for _, r := range ranges {
			for c := r.Lo; c <= r.Hi; c++ {
				delta := next()
				if delta&1 != 0 {
					t.lower[c] = c - (delta+1)>>1
				} else {
					t.lower[c] = c + delta>>1
				}
			}
		}
	}
	return t
})

// set returns the class of a name in tables.bin, or nil if there is none. If the name is one letter, set returns the
// union of the general categories that begin with the letter.
func set(name string) *Set {
	t := decoded()
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.sets[name]; ok {
		return s
	}
	var ranges []Range
	for key, r := range t.ranges {
		if key == name || len(name) == 1 && len(key) == 2 && strings.HasPrefix(key, name) {
			ranges = append(ranges, r...)
		}
	}
	if ranges == nil {
		return nil
	}
	t.sets[name] = NewSet(ranges...)
	return t.sets[name]
}

// Property returns the set of a Unicode property of a regular expression. A property is a general category such as Lu,
// a group of categories such as L, or one of eleven scripts such as Han. Property returns false for any other name.
func Property(name string) (*Set, bool) {
	if name == "" || name == "C" || name[0] < 'A' || name[0] > 'Z' {
		return nil, false // C has the unassigned code points, which no table lists
	}
	s := set(name)
	return s, s != nil
}

// Space returns the white space of Unicode.
func Space() *Set {
	return NewSet(Range{0x09, 0x0D}, Range{0x20, 0x20}, Range{0x85, 0x85}, Range{0xA0, 0xA0}, Range{0x1680, 0x1680},
		Range{0x2000, 0x200A}, Range{0x2028, 0x2029}, Range{0x202F, 0x202F}, Range{0x205F, 0x205F}, Range{0x3000, 0x3000})
}

// IsSpace reports whether r is white space of Unicode.
func IsSpace(r rune) bool {
	return r == ' ' || r >= 0x09 && r <= 0x0D || r >= 0x85 && (r == 0x85 || r == 0xA0 || r == 0x1680 ||
		r >= 0x2000 && r <= 0x200A || r == 0x2028 || r == 0x2029 || r == 0x202F || r == 0x205F || r == 0x3000)
}

// Word returns the characters of \w in a pattern of a Split.
func Word() *Set { return set("word") }

// PlainWord returns the characters of \w in the pre-tokenizer Whitespace and beside added tokens.
func PlainWord() *Set { return set("rustword") }

// Numeric returns the characters that the pre-tokenizer Digits splits off.
func Numeric() *Set { return set("numeric") }

// Punctuation returns the characters that the pre-tokenizers Punctuation and BertPreTokenizer split off.
func Punctuation() *Set { return set("punctuation") }

// Control returns the characters that the normalizer of BERT removes to clean a text.
func Control() *Set { return set("control") }

// Nonspacing returns the marks that the normalizer of BERT removes to strip accents.
func Nonspacing() *Set { return set("nonspacing") }

// Combining returns the marks that the normalizer StripAccents removes.
func Combining() *Set { return set("combining") }

// AppendLower appends r in lower case to b.
func AppendLower(b []byte, r rune) []byte {
	switch {
	case r < 'A':
		return append(b, byte(r))
	case r <= 'Z':
		return append(b, byte(r)+'a'-'A')
	case r < 0x80:
		return append(b, byte(r))
	case r == 0x130: // the one letter with two in lower case
		return append(b, "i\u0307"...)
	}
	if low, ok := decoded().lower[r]; ok {
		r = low
	}
	return append(b, string(r)...)
}
