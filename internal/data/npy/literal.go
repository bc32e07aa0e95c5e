// SPDX-License-Identifier: Apache-2.0

package npy

import (
	"fmt"
	"math"
	"strings"
)

// kind is the type of a Python literal.
type kind string

const (
	kindString kind = "a string"
	kindInt    kind = "an integer"
	kindBool   kind = "a bool"
	kindNone   kind = "None"
	kindTuple  kind = "a tuple"
	kindList   kind = "a list"
)

// maxDepth is the most tuples and lists that can be inside of each other. A structure with structures has three.
const maxDepth = 16

// value is a Python literal.
type value struct {
	kind  kind
	text  string // of a string, with its escapes as they are
	num   int64  // of an integer; 0 or 1 for a bool
	items []value
}

// description is what the dict of a header says.
type description struct {
	descr   value
	fortran bool
	shape   []int64
}

// dict parses the text of a header, a Python dict with the keys "descr", "fortran_order" and "shape". Only spaces and
// line ends can follow the dict. Python 2 can have written the text if python2 is true.
func (p parser) dict(text string, python2 bool) (description, error) {
	var d description
	s := scanner{src: text, python2: python2}
	values, err := s.dict()
	if err == nil {
		if s.space(); s.at < len(s.src) {
			err = s.expected("only spaces after the dict")
		}
	}
	if err != nil {
		return d, p.corrupt("header byte %d: %v", s.at, err)
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if _, ok := values[key]; !ok {
			return d, p.corrupt("the header has no key %q", key)
		}
	}
	if len(values) != 3 {
		return d, p.corrupt("the header has %d keys, expected descr, fortran_order and shape", len(values))
	}
	if v := values["fortran_order"]; v.kind != kindBool {
		return d, p.corrupt("fortran_order is %s, expected True or False", v.kind)
	}
	shape := values["shape"]
	if shape.kind != kindTuple {
		return d, p.corrupt("shape is %s, expected a tuple of integers", shape.kind)
	}
	if len(shape.items) > maxDimensions {
		return d, p.corrupt("shape has %d dimensions, expected at most %d", len(shape.items), maxDimensions)
	}
	for i, v := range shape.items {
		if v.kind != kindInt || v.num < 0 {
			return d, p.corrupt("shape[%d] is %s with the value %d, expected an integer from 0 on", i, v.kind, v.num)
		}
		d.shape = append(d.shape, v.num)
	}
	d.descr, d.fortran = values["descr"], values["fortran_order"].num == 1
	return d, nil
}

// scanner reads Python literals from a text.
type scanner struct {
	src     string
	at      int
	python2 bool // integers can end with an L
}

// expected returns an error about the next character.
func (s *scanner) expected(what string) error {
	if s.at >= len(s.src) {
		return fmt.Errorf("the header ends, expected %s", what)
	}
	return fmt.Errorf("it is %.20q, expected %s", s.src[s.at:], what)
}

// space skips spaces and line ends.
func (s *scanner) space() {
	for s.at < len(s.src) && strings.IndexByte(" \t\n\r\f", s.src[s.at]) >= 0 {
		s.at++
	}
}

// take skips spaces and the text, and reports whether the text was there.
func (s *scanner) take(text string) bool {
	s.space()
	if !strings.HasPrefix(s.src[s.at:], text) {
		return false
	}
	s.at += len(text)
	return true
}

// dict reads a dict with different strings as keys.
func (s *scanner) dict() (map[string]value, error) {
	if !s.take("{") {
		return nil, s.expected("a dict")
	}
	all := map[string]value{}
	for !s.take("}") {
		key, err := s.literal(0)
		if err != nil {
			return nil, err
		}
		if _, twice := all[key.text]; key.kind != kindString || twice {
			return nil, fmt.Errorf("the key before it is %s with the text %.60q, expected different strings", key.kind, key.text)
		}
		if !s.take(":") {
			return nil, s.expected("a colon")
		}
		if all[key.text], err = s.literal(0); err != nil {
			return nil, err
		}
		if s.take("}") {
			break
		}
		if !s.take(",") {
			return nil, s.expected("a comma or the end of the dict")
		}
	}
	return all, nil
}

// literal reads a string, an integer, a bool, None, a tuple or a list.
func (s *scanner) literal(depth int) (value, error) {
	s.space()
	if s.at >= len(s.src) {
		return value{}, s.expected("a value")
	}
	switch c := s.src[s.at]; {
	case c == '\'' || c == '"':
		return s.str(c)
	case c >= '0' && c <= '9' || c == '-':
		return s.integer()
	case c == '(' || c == '[':
		return s.sequence(c, depth)
	}
	start := s.at
	for s.at < len(s.src) && (s.src[s.at]|0x20 >= 'a' && s.src[s.at]|0x20 <= 'z') {
		s.at++
	}
	switch s.src[start:s.at] {
	case "True":
		return value{kind: kindBool, num: 1}, nil
	case "False":
		return value{kind: kindBool}, nil
	case "None":
		return value{kind: kindNone}, nil
	}
	s.at = start
	return value{}, s.expected("a string, an integer, True, False, None, a tuple or a list")
}

// str reads a string up to its quote. Escapes stay as they are, because no data type that we read has any.
func (s *scanner) str(quote byte) (value, error) {
	for i := s.at + 1; i < len(s.src); i++ {
		switch s.src[i] {
		case quote:
			v := value{kind: kindString, text: s.src[s.at+1 : i]}
			s.at = i + 1
			return v, nil
		case '\\':
			i++
		case '\n', '\r':
			return value{}, s.expected("a string on one line")
		}
	}
	return value{}, s.expected("a string with its end")
}

// integer reads a decimal integer.
func (s *scanner) integer() (value, error) {
	start := s.at
	negative := s.src[s.at] == '-'
	if negative {
		s.at++
	}
	n, first := int64(0), s.at
	for ; s.at < len(s.src) && s.src[s.at] >= '0' && s.src[s.at] <= '9'; s.at++ {
		if n > (math.MaxInt64-9)/10 {
			s.at = start
			return value{}, s.expected("an integer below 2^63")
		}
		n = 10*n + int64(s.src[s.at]-'0')
	}
	if digits := s.src[first:s.at]; digits == "" || digits[0] == '0' && n > 0 {
		s.at = start
		return value{}, s.expected("a decimal integer")
	}
	if s.python2 && s.at < len(s.src) && s.src[s.at] == 'L' {
		s.at++
	}
	if negative {
		n = -n
	}
	return value{kind: kindInt, num: n}, nil
}

// sequence reads a tuple or a list. A value in parentheses without a comma is not a tuple, but that value.
func (s *scanner) sequence(open byte, depth int) (value, error) {
	if depth == maxDepth {
		return value{}, s.expected("fewer tuples and lists inside of each other")
	}
	s.at++
	v, end := value{kind: kindTuple}, ")"
	if open == '[' {
		v.kind, end = kindList, "]"
	}
	for !s.take(end) {
		item, err := s.literal(depth + 1)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, item)
		if s.take(",") {
			continue
		}
		if !s.take(end) {
			return v, s.expected("a comma or " + end)
		}
		if v.kind == kindTuple && len(v.items) == 1 {
			return item, nil
		}
		break
	}
	return v, nil
}
