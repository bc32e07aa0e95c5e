// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// scanner walks JSON text once, front to back. It owns src and unescapes strings in place, so the slices that it
// returns are valid as long as src is. The text must be valid UTF-8 before scanning starts.
type scanner struct {
	src  []byte
	pos  int
	base int // position of src[0] in the file, so that errors name file offsets
	op   string
	path string
	// kind and name say what is being scanned, for errors: tensor "x".
	kind, name string
	keys       [][]byte // of the objects being ignored, see once
}

// fail returns the error for byte pos of src: the text found there and the expected text.
func (s *scanner) fail(pos int, got, want string) error {
	prefix := ""
	if s.kind != "" {
		prefix = s.kind + " " + quote(s.name) + ": "
	}
	return errs.New(errs.Corrupt, s.op, s.path,
		fmt.Sprintf("%s%s at byte %d, expected %s", prefix, got, s.base+pos, want))
}

// peek returns the next byte, or 0 at the end. NUL is no JSON token, so the two are distinguished only in errors.
func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// space skips JSON whitespace.
func (s *scanner) space() {
	for s.pos < len(s.src) && isSpace(s.src[s.pos]) {
		s.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// token describes the text at pos, cut to a length fit for a message.
func (s *scanner) token() string {
	if s.pos >= len(s.src) {
		return "missing (the text ends here)"
	}
	rest := s.src[s.pos:]
	const most = 32
	end := 1
	if rest[0] == '"' {
		for end < len(rest) && end < most && rest[end] != '"' {
			end++
		}
		if end < len(rest) && rest[end] == '"' {
			end++
		}
	} else {
		for end < len(rest) && end < most && !isSpace(rest[end]) && rest[end] != ',' && rest[end] != ']' && rest[end] != '}' {
			end++
		}
	}
	for _, c := range rest[:end] {
		if c < 0x20 || c > 0x7e {
			return quote(string(rest[:end]))
		}
	}
	if end == most {
		return string(rest[:end]) + "..."
	}
	return string(rest[:end])
}

// expect consumes c or fails. what names the position in the grammar.
func (s *scanner) expect(c byte, what string) error {
	if s.peek() != c {
		return s.fail(s.pos, what+" is "+s.token(), string(rune(c)))
	}
	s.pos++
	return nil
}

// open consumes the bracket at pos and reports whether a member follows; an
// empty object or array is consumed to its end.
func (s *scanner) open(end byte) bool {
	s.pos++
	s.space()
	if s.peek() == end {
		s.pos++
		return false
	}
	return true
}

// more is called after a member of an object or array that ends with end. It
// consumes the comma and reports true, or the end and reports false.
func (s *scanner) more(end byte, what string) (bool, error) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		s.space()
		return true, nil
	case end:
		s.pos++
		return false, nil
	}
	return false, s.fail(s.pos, "next in "+what+" is "+s.token(), "',' or '"+string(rune(end))+"'")
}

// str scans a string and returns its unescaped bytes, which alias src.
func (s *scanner) str(what string) ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.fail(s.pos, what+" is "+s.token(), "a JSON string")
	}
	start := s.pos + 1
	for i := start; i < len(s.src); i++ {
		switch c := s.src[i]; {
		case c == '"':
			s.pos = i + 1
			return s.src[start:i], nil
		case c == '\\':
			return s.unescape(what, start, i)
		case c < 0x20:
			return nil, s.fail(i, fmt.Sprintf("%s holds the raw control character 0x%02x", what, c),
				"it written as an escape such as \\n or \\u000a")
		}
	}
	return nil, s.fail(len(s.src), what+" is not closed before the text ends", "a closing '\"'")
}

// unescape continues at the first backslash, at r, of a string that began at start. An escape is never shorter than
// its character, so the result overwrites the source.
func (s *scanner) unescape(what string, start, r int) ([]byte, error) {
	w := r
	for r < len(s.src) {
		c := s.src[r]
		switch {
		case c == '"':
			s.pos = r + 1
			return s.src[start:w], nil
		case c < 0x20:
			return nil, s.fail(r, fmt.Sprintf("%s holds the raw control character 0x%02x", what, c),
				"it written as an escape such as \\n or \\u000a")
		case c != '\\':
			s.src[w] = c
			w++
			r++
			continue
		}
		if r+1 >= len(s.src) {
			break
		}
		plain := byte(0)
		switch e := s.src[r+1]; e {
		case '"', '\\', '/':
			plain = e
		case 'b':
			plain = '\b'
		case 'f':
			plain = '\f'
		case 'n':
			plain = '\n'
		case 'r':
			plain = '\r'
		case 't':
			plain = '\t'
		case 'u':
			u, n, err := s.unicode(what, r)
			if err != nil {
				return nil, err
			}
			w += utf8.EncodeRune(s.src[w:], u)
			r += n
			continue
		default:
			return nil, s.fail(r, what+" holds the escape "+quote(string(s.src[r:r+2])), `one of \" \\ \/ \b \f \n \r \t \uXXXX`)
		}
		s.src[w] = plain
		w++
		r += 2
	}
	return nil, s.fail(len(s.src), what+" is not closed before the text ends", "a closing '\"'")
}

// unicode decodes the \u escape at r, or the surrogate pair that starts there,
// and returns the character and the length of its escape.
func (s *scanner) unicode(what string, r int) (rune, int, error) {
	hi, ok := s.hex4(r)
	if !ok {
		return 0, 0, s.fail(r, what+" holds the escape "+quote(string(s.src[r:min(r+6, len(s.src))])),
			`\u and four hexadecimal digits`)
	}
	if !utf16.IsSurrogate(hi) {
		return hi, 6, nil
	}
	if lo, ok := s.hex4(r + 6); ok {
		if u := utf16.DecodeRune(hi, lo); u != utf8.RuneError {
			return u, 12, nil
		}
	}
	return 0, 0, s.fail(r, fmt.Sprintf(`%s holds the unpaired surrogate \u%04x`, what, hi),
		"a high surrogate followed by a low one")
}

// hex4 reads \uXXXX at r.
func (s *scanner) hex4(r int) (rune, bool) {
	if r+6 > len(s.src) || s.src[r] != '\\' || s.src[r+1] != 'u' {
		return 0, false
	}
	v := rune(0)
	for _, c := range s.src[r+2 : r+6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, true
}

// integer scans a plain integer from 0 to MaxInt. label is called only for an error, so that the common case formats
// nothing.
func (s *scanner) integer(label func() string) (int64, error) {
	start := s.pos
	v, i := int64(0), start
	for i < len(s.src) && s.src[i] >= '0' && s.src[i] <= '9' && v <= MaxInt {
		v = v*10 + int64(s.src[i]-'0')
		i++
	}
	plain := i > start && (s.src[start] != '0' || i == start+1) && i < len(s.src)
	if plain {
		c := s.src[i]
		plain = c == ',' || c == ']' || c == '}' || isSpace(c)
	}
	if !plain || v > MaxInt {
		return 0, s.fail(start, label()+" is "+s.token(),
			"an integer from 0 to "+strconv.Itoa(MaxInt)+" without sign, fraction, exponent or leading zero")
	}
	s.pos = i
	return v, nil
}

// quote quotes a name for a message and cuts it to a readable length.
func quote(name string) string {
	const most = 120
	if len(name) <= most {
		return strconv.Quote(name)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return strconv.Quote(name[:cut]) + "... (" + strconv.Itoa(len(name)) + " bytes)"
}
