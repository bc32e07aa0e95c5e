// SPDX-License-Identifier: Apache-2.0

package safetensors

import "strconv"

// Bounds of values that are read only to be ignored. Such a value must still
// be well-formed and free of duplicate keys, and proving that must stay cheap.
const (
	maxIgnoredDepth   = 16
	maxIgnoredMembers = 256
)

// once records the key at pos as one of the object whose keys start at mark,
// or fails because it is there already or one too many. All objects being
// scanned share one stack of keys, so that a million small ones cost nothing.
func (s *scanner) once(mark, pos int, key []byte) error {
	if len(key) > MaxName { // else comparing long keys with each other is the slowest thing a header can ask for
		return s.fail(pos, "key "+quote(string(key))+" is too long", "at most "+strconv.Itoa(MaxName)+" bytes")
	}
	for _, have := range s.keys[mark:] {
		if string(have) == string(key) {
			return s.fail(pos, "key "+quote(string(key))+" is a duplicate", "each key once")
		}
	}
	if len(s.keys)-mark == maxIgnoredMembers {
		return s.fail(pos, "key "+quote(string(key))+" is one too many",
			"at most "+strconv.Itoa(maxIgnoredMembers)+" ignored keys in one object")
	}
	s.keys = append(s.keys, key)
	return nil
}

// skip consumes one JSON value of any type and proves that it is well-formed.
func (s *scanner) skip(what string, depth int) error {
	if depth > maxIgnoredDepth {
		return s.fail(s.pos, what+" is nested deeper", "at most "+strconv.Itoa(maxIgnoredDepth)+" levels")
	}
	switch c := s.peek(); {
	case c == '"':
		_, err := s.str(what)
		return err
	case c == '{':
		return s.skipObject(what, depth)
	case c == '[':
		return s.skipArray(what, depth)
	case c == '-' || c >= '0' && c <= '9':
		return s.skipNumber(what)
	}
	for _, word := range []string{"true", "false", "null"} {
		if s.word(word) {
			return nil
		}
	}
	return s.fail(s.pos, what+" is "+s.token(), "a JSON value")
}

func (s *scanner) skipObject(what string, depth int) error {
	mark := len(s.keys)
	for again := s.open('}'); again; {
		at := s.pos
		key, err := s.str("a key of an ignored object")
		if err != nil {
			return err
		}
		if err := s.once(mark, at, key); err != nil {
			return err
		}
		s.space()
		if err := s.expect(':', "after a key of an ignored object"); err != nil {
			return err
		}
		s.space()
		if err := s.skip(what, depth+1); err != nil {
			return err
		}
		if again, err = s.more('}', what); err != nil {
			return err
		}
	}
	s.keys = s.keys[:mark]
	return nil
}

func (s *scanner) skipArray(what string, depth int) error {
	for again := s.open(']'); again; {
		err := s.skip(what, depth+1)
		if err != nil {
			return err
		}
		if again, err = s.more(']', what); err != nil {
			return err
		}
	}
	return nil
}

// skipNumber consumes a number in JSON's full grammar.
func (s *scanner) skipNumber(what string) error {
	start := s.pos
	i := start
	digits := func() bool {
		from := i
		for i < len(s.src) && s.src[i] >= '0' && s.src[i] <= '9' {
			i++
		}
		return i > from
	}
	if s.src[i] == '-' {
		i++
	}
	first := i
	ok := digits() && (s.src[first] != '0' || i == first+1)
	if ok && i < len(s.src) && s.src[i] == '.' {
		i++
		ok = digits()
	}
	if ok && i < len(s.src) && (s.src[i] == 'e' || s.src[i] == 'E') {
		i++
		if i < len(s.src) && (s.src[i] == '+' || s.src[i] == '-') {
			i++
		}
		ok = digits()
	}
	if !ok {
		return s.fail(start, what+" is "+s.token(), "a JSON number")
	}
	s.pos = i
	return nil
}

// word consumes the literal w if it stands at pos.
func (s *scanner) word(w string) bool {
	if len(s.src)-s.pos < len(w) || string(s.src[s.pos:s.pos+len(w)]) != w {
		return false
	}
	s.pos += len(w)
	return true
}
