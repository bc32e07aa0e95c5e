// SPDX-License-Identifier: Apache-2.0

package pattern

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/tokens/charset"
)

// single returns the set of one character.
func single(r rune) *charset.Set { return charset.NewSet(charset.Range{Lo: r, Hi: r}) }

// class parses [...] with ranges, escapes, nested classes and intersections.
func (p *parser) class(depth int) (*charset.Set, error) {
	start := p.at
	if depth > maxDepth {
		return nil, p.refuse(start, fmt.Sprintf("a class inside %d others", maxDepth))
	}
	p.at++ // the bracket
	negated := p.more("^")
	var whole *charset.Set // the part before &&
	union, empty := charset.NewSet(), true
	var ranges []charset.Range
	for {
		switch {
		case p.at >= len(p.text):
			return nil, p.refuse(start, "a class without its end")
		case p.text[p.at] == ']' && empty:
			return nil, p.refuse(start, "an empty class")
		case p.more("]"):
			union = union.Union(charset.NewSet(ranges...))
			if whole != nil {
				union = union.Intersect(whole)
			}
			if negated {
				union = union.Negate()
			}
			return union, nil
		case p.more("&&"):
			union = union.Union(charset.NewSet(ranges...))
			if empty {
				return nil, p.refuse(start, "an intersection with nothing")
			}
			if whole != nil {
				union = union.Intersect(whole)
			}
			whole, union, ranges, empty = union, charset.NewSet(), nil, true
			continue
		case strings.HasPrefix(p.text[p.at:], "[:"):
			return nil, p.refuse(p.at, `"[:"`)
		case p.text[p.at] == '[':
			inner, err := p.class(depth + 1)
			if err != nil {
				return nil, err
			}
			union = union.Union(inner)
		default:
			r, set, err := p.member()
			if err != nil {
				return nil, err
			}
			if set != nil {
				union = union.Union(set)
			} else {
				ranges = append(ranges, r)
			}
		}
		empty = false
	}
}

// member parses one character, one range or one escape of a class.
func (p *parser) member() (charset.Range, *charset.Set, error) {
	start := p.at
	lo, set, err := p.character()
	if err != nil || set != nil {
		if set != nil && strings.HasPrefix(p.text[p.at:], "-") && !strings.HasPrefix(p.text[p.at:], "-]") {
			err = p.refuse(start, "a range that begins with a class")
		}
		return charset.Range{}, set, err
	}
	if lo == '-' && p.text[start] == '-' && !strings.HasPrefix(p.text[p.at:], "]") && p.text[start-1] != '[' &&
		!strings.HasSuffix(p.text[:start], "[^") {
		return charset.Range{}, nil, p.refuse(start, `"-" inside a class`)
	}
	if !strings.HasPrefix(p.text[p.at:], "-") || strings.HasPrefix(p.text[p.at:], "-]") {
		return charset.Range{Lo: lo, Hi: lo}, nil, nil
	}
	p.at++
	hi, set, err := p.character()
	if err == nil && (set != nil || hi < lo) {
		err = p.refuse(start, fmt.Sprintf("the range %q", p.text[start:p.at]))
	}
	return charset.Range{Lo: lo, Hi: hi}, nil, err
}

// character parses one character of a class, or an escape for a set.
func (p *parser) character() (rune, *charset.Set, error) {
	if p.at >= len(p.text) {
		return 0, nil, p.refuse(p.at, "a class without its end")
	}
	switch c := p.text[p.at]; {
	case c == '\\':
		set, r, err := p.escape(true)
		return r, set, err
	case c == '[' || strings.HasPrefix(p.text[p.at:], "&&"):
		return 0, nil, p.refuse(p.at, fmt.Sprintf("a range to %q", c))
	}
	return p.rune(), nil, nil
}

// escape parses a backslash and what follows. Inside a class, an escape of one character is returned as the character
// with a nil set; elsewhere, escape always returns a set.
func (p *parser) escape(inClass bool) (*charset.Set, rune, error) {
	start := p.at
	p.at++
	if p.at >= len(p.text) {
		return nil, 0, p.refuse(start, "a backslash at the end")
	}
	r := rune(0)
	switch c := p.text[p.at]; c {
	case 's', 'S', 'd', 'D', 'w', 'W':
		p.at++
		return p.shorthand(c), 0, nil
	case 'p', 'P':
		set, err := p.property(start)
		return set, 0, err
	case 'n':
		r = '\n'
	case 'r':
		r = '\r'
	case 't':
		r = '\t'
	case 'f':
		r = '\f'
	case 'v':
		r = '\v'
	case 'u', 'x':
		digits, ok := p.hex(c)
		if !ok {
			return nil, 0, p.refuse(start, fmt.Sprintf("%.6q", p.text[start:]))
		}
		r = digits
		p.at-- // the last digit is stepped over below
	default:
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= utf8.RuneSelf {
			return nil, 0, p.refuse(start, fmt.Sprintf("%.2q", p.text[start:]))
		}
		r = rune(c)
	}
	p.at++
	if inClass {
		return nil, r, nil
	}
	return single(r), r, nil
}

// shorthand returns the set of \s, \d or \w, or of its opposite.
func (p *parser) shorthand(c byte) *charset.Set {
	var set *charset.Set
	switch c {
	case 's', 'S':
		set = p.space
	case 'd', 'D':
		set, _ = charset.Property("Nd")
	default:
		set = charset.Word()
	}
	if c < 'a' {
		set = set.Negate()
	}
	return set
}

// property parses the rest of \p{Name}, \p{^Name} or \P{Name}.
func (p *parser) property(start int) (*charset.Set, error) {
	negated := p.text[p.at] == 'P'
	p.at++
	end := strings.IndexByte(p.text[p.at:], '}')
	if !p.more("{") || end < 0 {
		return nil, p.refuse(start, `a property that is not \p{Name}`)
	}
	if p.more("^") {
		negated, end = !negated, end-1
	}
	name := p.text[p.at : p.at+end-1]
	set, ok := charset.Property(name)
	if !ok {
		return nil, p.refuse(start, fmt.Sprintf("the property %.40q", name))
	}
	p.at += end
	if negated {
		set = set.Negate()
	}
	return set, nil
}

// hex parses the digits of \uHHHH, \x{H...} or \xHH of ASCII. The parser stands at the letter, and then after the last
// digit or brace.
func (p *parser) hex(c byte) (rune, bool) {
	p.at++
	rest := p.text[p.at:]
	digits := ""
	switch {
	case c == 'u' && len(rest) >= 4:
		digits = rest[:4]
		p.at += 4
	case c == 'x' && strings.HasPrefix(rest, "{"):
		end := strings.IndexByte(rest, '}')
		if end < 2 || end > 9 {
			return 0, false
		}
		digits = rest[1:end]
		p.at += end + 1
	case c == 'x' && len(rest) >= 2:
		digits = rest[:2]
		p.at += 2
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || v > utf8.MaxRune || v >= 0xD800 && v < 0xE000 || c == 'x' && len(digits) == 2 && v > 0x7F {
		return 0, false
	}
	return rune(v), true
}
