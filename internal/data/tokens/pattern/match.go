// SPDX-License-Identifier: Apache-2.0

package pattern

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/tokens/charset"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// op is the operation of an instruction.
type op uint8

const (
	opMatch op = iota // the whole pattern matched
	opSet             // one character of set
	opRun             // min to max characters of set
	opAlt             // one of alts
	opLoop            // body any number of times, then next
	opLook            // body follows
	opNot             // body does not follow
	opEnd             // end of a body that has a matcher of its own
	opOnce            // body, without a second way to match it
	opEOL             // before a line feed or at the end
)

// inst is an instruction. An instruction leads to its next instruction.
type inst struct {
	op         op
	lazy       bool
	possessive bool
	set        *charset.Set
	min, max   int
	next       *inst
	body       *inst
	alts       []branch
}

// branch is one alternative. If first is not nil, the branch matches only before a character of first.
type branch struct {
	first *charset.Set
	to    *inst
}

// Pattern is a compiled regular expression. A Pattern is immutable, and is safe for use by several goroutines.
type Pattern struct {
	text  string
	start *inst
	first *charset.Set
}

// Compile compiles a regular expression. Compile refuses, with an error of kind Unsupported, syntax outside the
// supported part and expressions that match the empty text.
func Compile(text string) (*Pattern, error) {
	p := &parser{text: text, space: charset.Space()}
	if len(text) > maxBytes {
		p.text = text[:40]
		return nil, p.refuse(maxBytes, fmt.Sprintf("a pattern of %d bytes", len(text)))
	}
	if !utf8.ValidString(text) {
		return nil, p.refuse(0, "text that is not UTF-8")
	}
	t, err := p.alternatives(0, false)
	if err != nil {
		return nil, err
	}
	if p.at < len(text) {
		return nil, p.refuse(p.at, "an end without its group")
	}
	first, empty := t.first()
	if empty {
		return nil, p.refuse(0, "a pattern that matches the empty text")
	}
	c := &compiler{parser: p}
	start, err := c.compile(t, &inst{op: opMatch})
	if err != nil {
		return nil, err
	}
	return &Pattern{text: text, start: start, first: first}, nil
}

// Runs returns the pattern that matches the longest run of characters of one of the given sets. At a character of
// several sets, the first set counts.
func Runs(sets ...*charset.Set) *Pattern {
	p := &Pattern{text: "runs", first: charset.NewSet()}
	choice := &inst{op: opAlt}
	for _, s := range sets {
		p.first = p.first.Union(s)
		run := &inst{op: opRun, set: s, min: 1, max: -1, next: &inst{op: opMatch}}
		choice.alts = append(choice.alts, branch{s, run})
	}
	p.start = choice
	return p
}

// Character returns the pattern of a single character of the given set.
func Character(set *charset.Set) *Pattern {
	return &Pattern{text: "character", start: &inst{op: opSet, set: set, next: &inst{op: opMatch}}, first: set}
}

// Literal returns the pattern that matches text itself. Literal refuses an empty text.
func Literal(text string) (*Pattern, error) {
	var quoted strings.Builder
	for _, r := range text {
		if strings.ContainsRune(`\.+*?()|[]{}^$`, r) {
			quoted.WriteByte('\\')
		}
		quoted.WriteRune(r)
	}
	return Compile(quoted.String())
}

// first returns the characters that a match of t can begin with, and whether t can match the empty text.
func (t *tree) first() (set *charset.Set, empty bool) {
	if t.begins == nil {
		t.begins, t.empty = t.findFirst()
	}
	return t.begins, t.empty
}

// findFirst computes the result of first.
func (t *tree) findFirst() (set *charset.Set, empty bool) {
	switch t.kind {
	case kindSet:
		return t.set, false
	case kindConcat:
		set = charset.NewSet()
		for _, part := range t.parts {
			s, e := part.first()
			if set = set.Union(s); !e {
				return set, false
			}
		}
		return set, true
	case kindAlt:
		set = charset.NewSet()
		for _, part := range t.parts {
			s, e := part.first()
			set, empty = set.Union(s), empty || e
		}
		return set, empty
	case kindRepeat:
		set, empty = t.parts[0].first()
		return set, empty || t.min == 0
	}
	return charset.NewSet(), true // assertions
}

// compiler turns a syntax tree into instructions.
type compiler struct {
	parser *parser
	insts  int
}

// compile returns the instructions that match t and go on with next.
func (c *compiler) compile(t *tree, next *inst) (*inst, error) {
	if c.insts++; c.insts > maxNodes {
		return nil, c.parser.refuse(0, fmt.Sprintf("a pattern of more than %d parts", maxNodes))
	}
	var err error
	switch t.kind {
	case kindSet:
		return &inst{op: opSet, set: t.set, next: next}, nil
	case kindEOL:
		return &inst{op: opEOL, next: next}, nil
	case kindConcat:
		for i := len(t.parts) - 1; i >= 0 && err == nil; i-- {
			next, err = c.compile(t.parts[i], next)
		}
		return next, err
	case kindAlt:
		return c.alternatives(t.parts, next)
	case kindLook, kindNot:
		in := &inst{op: opLook, next: next}
		if t.kind == kindNot {
			in.op = opNot
		}
		in.body, err = c.compile(t.parts[0], &inst{op: opEnd})
		return in, err
	}
	return c.repeat(t, next)
}

// alternatives compiles the parts as alternatives.
func (c *compiler) alternatives(parts []*tree, next *inst) (*inst, error) {
	in := &inst{op: opAlt}
	for _, part := range parts {
		to, err := c.compile(part, next)
		if err != nil {
			return nil, err
		}
		first, empty := part.first()
		if empty {
			first = nil
		}
		in.alts = append(in.alts, branch{first, to})
	}
	return in, nil
}

// repeat compiles a repetition.
func (c *compiler) repeat(t *tree, next *inst) (*inst, error) {
	part := t.parts[0]
	for part.kind == kindConcat && len(part.parts) == 1 {
		part = part.parts[0]
	}
	if part.kind == kindSet {
		return &inst{op: opRun, set: part.set, min: t.min, max: t.max, lazy: t.lazy, possessive: t.possessive,
			next: next}, nil
	}
	if t.possessive {
		in := &inst{op: opOnce, next: next}
		greedy := *t
		greedy.possessive = false
		var err error
		in.body, err = c.repeat(&greedy, &inst{op: opEnd})
		return in, err
	}
	if _, empty := part.first(); empty {
		return nil, c.parser.refuse(0, "a repetition of a group that matches the empty text")
	}
	var err error
	after := next
	if t.max < 0 {
		loop := &inst{op: opLoop, next: next, lazy: t.lazy}
		if loop.body, err = c.compile(part, loop); err != nil {
			return nil, err
		}
		next = loop
	}
	for i := max(t.max, t.min); i > 0; i-- {
		body, err := c.compile(part, next)
		if err != nil {
			return nil, err
		}
		if next = body; i > t.min { // leaving out this one leaves out those after it
			next = &inst{op: opAlt, alts: []branch{{nil, body}, {nil, after}}}
			if t.lazy {
				next.alts[0], next.alts[1] = next.alts[1], next.alts[0]
			}
		}
	}
	return next, nil
}

// Limits of the work on one text.
const (
	freeSteps  = 1_000_000 // for a text of any length
	byteSteps  = 512       // more for each byte
	maxNesting = 200_000   // of attempts inside attempts
)

// Matcher finds the matches of a pattern in one text. A Matcher belongs to one goroutine.
type Matcher struct {
	pattern *Pattern
	text    []byte
	steps   int
	depth   int
	failed  bool
}

// Reset prepares m to find the matches of p in text.
func (m *Matcher) Reset(p *Pattern, text []byte) {
	*m = Matcher{pattern: p, text: text, steps: freeSteps + byteSteps*len(text)}
}

// Next returns the first match that begins at or after byte `at`. If there is none, Next returns -1, -1. Next fails if
// the pattern needs too many steps, as only patterns made for that do.
func (m *Matcher) Next(at int) (start, end int, err error) {
	for at < len(m.text) {
		r, n := rune(m.text[at]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(m.text[at:])
		}
		if m.pattern.first.Has(r) {
			if end := m.run(m.pattern.start, at); end >= 0 {
				return at, end, nil
			}
			if m.failed {
				return -1, -1, &errs.Error{Kind: errs.Unsupported, Op: "match pattern",
					Name: fmt.Sprintf("%.200q", m.pattern.text),
					Msg:  fmt.Sprintf("the pattern needs too many steps at byte %d of %d", at, len(m.text)),
					Fix:  "split the text into shorter documents, or use a tokenizer with another pattern"}
			}
		}
		at += n
	}
	return -1, -1, nil
}

// run attempts to match from instruction in at byte i, and returns the end of the match or -1.
func (m *Matcher) run(in *inst, i int) int {
	if m.depth++; m.depth > maxNesting {
		m.failed = true
	}
	end := m.execute(in, i)
	m.depth--
	return end
}

// execute runs instructions until the match ends or fails.
func (m *Matcher) execute(in *inst, i int) int {
	for {
		if m.steps--; m.steps < 0 {
			m.failed = true
		}
		if m.failed {
			return -1
		}
		switch in.op {
		case opMatch, opEnd:
			return i
		case opSet:
			n := m.width(in.set, i)
			if n == 0 {
				return -1
			}
			i += n
		case opRun:
			end, done := m.runOf(in, i)
			if !done {
				return end
			}
			i = end
		case opEOL:
			if i < len(m.text) && m.text[i] != '\n' {
				return -1
			}
		case opLook, opNot:
			if (m.run(in.body, i) >= 0) != (in.op == opLook) || m.failed {
				return -1
			}
		case opOnce:
			if i = m.run(in.body, i); i < 0 {
				return -1
			}
		case opLoop:
			first, last := in.body, in.next
			if in.lazy {
				first, last = last, first
			}
			if end := m.run(first, i); end >= 0 || m.failed {
				return end
			}
			in = last
			continue
		case opAlt:
			to := m.choose(in, &i)
			if to == nil {
				return i
			}
			in = to
			continue
		}
		in = in.next
	}
}

// width returns the length of the character at i, or 0 if the character is not in set.
func (m *Matcher) width(set *charset.Set, i int) int {
	if i >= len(m.text) {
		return 0
	}
	r, n := rune(m.text[i]), 1
	if r >= utf8.RuneSelf {
		r, n = utf8.DecodeRune(m.text[i:])
	}
	if !set.Has(r) {
		return 0
	}
	return n
}

// choose tries the alternatives of in at *i. If all but one are ruled out by their first character, choose returns the
// instruction to go on with. Otherwise choose returns nil and sets *i to the end of the match or to -1.
func (m *Matcher) choose(in *inst, i *int) *inst {
	r := rune(-1)
	if *i < len(m.text) {
		if r = rune(m.text[*i]); r >= utf8.RuneSelf {
			r, _ = utf8.DecodeRune(m.text[*i:])
		}
	}
	last := (*inst)(nil) // the alternative before this one, not tried yet
	for k := range in.alts {
		b := &in.alts[k]
		if b.first != nil && !b.first.Has(r) {
			continue
		}
		if last != nil {
			if end := m.run(last, *i); end >= 0 || m.failed {
				*i = end
				return nil
			}
		}
		last = b.to
	}
	if last == nil {
		*i = -1
	}
	return last
}

// runOf matches a run of characters. If only one length of the run is left to try, runOf returns its end and true.
// Otherwise runOf returns the end of the whole match, or -1, and false.
func (m *Matcher) runOf(in *inst, i int) (int, bool) {
	count := 0
	for count < in.min {
		n := m.width(in.set, i)
		if n == 0 {
			return -1, false
		}
		i, count = i+n, count+1
	}
	least := i
	if in.lazy {
		for {
			if end := m.run(in.next, i); end >= 0 || m.failed {
				return end, false
			}
			n := m.width(in.set, i)
			if n == 0 || count == in.max {
				return -1, false
			}
			i, count = i+n, count+1
		}
	}
	for count != in.max {
		n := m.width(in.set, i)
		if n == 0 {
			break
		}
		i, count = i+n, count+1
	}
	m.steps -= (i - least) / 8
	if in.possessive || in.next.op == opMatch {
		return i, true
	}
	for i > least {
		if end := m.run(in.next, i); end >= 0 || m.failed {
			return end, false
		}
		_, n := utf8.DecodeLastRune(m.text[least:i])
		i -= n
	}
	return i, true
}
