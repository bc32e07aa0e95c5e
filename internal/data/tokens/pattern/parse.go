// SPDX-License-Identifier: Apache-2.0

// Package pattern finds the matches of the regular expressions in tokenizer.json files.
//
// The reference runs these expressions with Oniguruma. Package pattern accepts the part of Oniguruma's syntax that
// published tokenizers use, matches it as Oniguruma does, and refuses everything else.
package pattern

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/tokens/charset"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Limits of a pattern.
const (
	maxBytes = 16 << 10 // of the pattern's text
	maxNodes = 512      // after repetitions of groups are written out
	maxDepth = 16       // of nested groups and classes
)

// kind says what a node of a syntax tree matches.
type kind uint8

const (
	kindSet    kind = iota // one character of a set
	kindConcat             // its parts, one after the other
	kindAlt                // one of its parts; the first that fits
	kindRepeat             // its one part, min to max times
	kindLook               // nothing, if its one part follows
	kindNot                // nothing, if its one part does not follow
	kindEOL                // nothing, before a line feed or at the end of the text
)

// tree is a node of a syntax tree.
type tree struct {
	kind       kind
	set        *charset.Set
	parts      []*tree
	min, max   int // max is -1 without a limit
	lazy       bool
	possessive bool

	begins *charset.Set // what first returned
	empty  bool
}

// parser reads a pattern.
type parser struct {
	text  string
	at    int
	nodes int
	space *charset.Set
}

// refuse returns an error about a part of the pattern that starts at byte at.
func (p *parser) refuse(at int, what string) error {
	return &errs.Error{Kind: errs.Unsupported, Op: "compile pattern", Name: fmt.Sprintf("%.200q", p.text),
		Msg: fmt.Sprintf("%s at byte %d is not supported", what, at),
		Fix: "use a tokenizer.json whose patterns have groups, alternatives, classes, repetitions and lookahead only"}
}

// more reports whether the text goes on with s, and steps over s.
func (p *parser) more(s string) bool {
	if len(p.text)-p.at < len(s) || p.text[p.at:p.at+len(s)] != s {
		return false
	}
	p.at += len(s)
	return true
}

// rune steps over one character and returns it.
func (p *parser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	return r
}

// node counts a node against the limit.
func (p *parser) node(t *tree) (*tree, error) {
	if p.nodes++; p.nodes > maxNodes {
		return nil, p.refuse(p.at, fmt.Sprintf("a pattern of more than %d parts", maxNodes))
	}
	return t, nil
}

// alternatives parses up to the end of a group, or to the end of the pattern. The parameter fold says whether letters
// match in both cases.
func (p *parser) alternatives(depth int, fold bool) (*tree, error) {
	if depth > maxDepth {
		return nil, p.refuse(p.at, fmt.Sprintf("a group inside %d others", maxDepth))
	}
	alt := &tree{kind: kindAlt}
	for {
		concat := &tree{kind: kindConcat}
		for p.at < len(p.text) && p.text[p.at] != '|' && p.text[p.at] != ')' {
			atom, err := p.atom(depth, fold)
			if err != nil {
				return nil, err
			}
			if atom, err = p.quantifier(atom); err != nil {
				return nil, err
			}
			concat.parts = append(concat.parts, atom)
		}
		part, err := p.node(concat)
		if err != nil {
			return nil, err
		}
		alt.parts = append(alt.parts, part)
		if !p.more("|") {
			break
		}
	}
	if len(alt.parts) == 1 {
		return alt.parts[0], nil
	}
	return p.node(alt)
}

// atom parses one character, class or group.
func (p *parser) atom(depth int, fold bool) (*tree, error) {
	start := p.at
	switch {
	case p.more("(?:"):
		return p.group(depth, fold, nil)
	case p.more("(?i:"):
		return p.group(depth, true, nil)
	case p.more("(?="):
		return p.group(depth, fold, &tree{kind: kindLook})
	case p.more("(?!"):
		return p.group(depth, fold, &tree{kind: kindNot})
	case p.more("(?"):
		return nil, p.refuse(start, fmt.Sprintf("%.4q", p.text[start:]))
	case p.more("("):
		return p.group(depth, fold, nil)
	case p.more("$"):
		return p.node(&tree{kind: kindEOL})
	}
	var set *charset.Set
	var err error
	switch c := p.text[p.at]; c {
	case '[':
		set, err = p.class(depth)
	case '\\':
		set, _, err = p.escape(false)
	case '.':
		p.at++
		set = charset.NewSet(charset.Range{Lo: '\n', Hi: '\n'}).Negate()
	case '^', '*', '+', '?', '{', '}', ']':
		return nil, p.refuse(start, fmt.Sprintf("%q", c))
	default:
		r := p.rune()
		set = single(r)
		if fold {
			if set, err = p.folded(start, r); err != nil {
				return nil, err
			}
			return p.node(&tree{kind: kindSet, set: set})
		}
	}
	if err != nil {
		return nil, err
	}
	if fold {
		return nil, p.refuse(start, "a class or an escape without regard to case")
	}
	return p.node(&tree{kind: kindSet, set: set})
}

// folded returns the characters that match r without regard to case. Some pairs of letters also match one character,
// such as ss and ß. folded refuses letters that begin such a pair.
func (p *parser) folded(at int, r rune) (*charset.Set, error) {
	if r >= utf8.RuneSelf {
		return nil, p.refuse(at, fmt.Sprintf("%q without regard to case", r))
	}
	switch pair := strings.ToLower(p.text[at:min(at+2, len(p.text))]); pair {
	case "ss", "st", "ff", "fi", "fl":
		return nil, p.refuse(at, fmt.Sprintf("%q without regard to case", pair))
	}
	set := []charset.Range{{Lo: r, Hi: r}}
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		set = append(set, charset.Range{Lo: f, Hi: f})
	}
	return charset.NewSet(set...), nil
}

// group parses the rest of a group. If around is nil, the group is its content.
func (p *parser) group(depth int, fold bool, around *tree) (*tree, error) {
	inner, err := p.alternatives(depth+1, fold)
	if err != nil {
		return nil, err
	}
	if !p.more(")") {
		return nil, p.refuse(p.at, "a group without its end")
	}
	if around == nil {
		return inner, nil
	}
	around.parts = []*tree{inner}
	return p.node(around)
}

// quantifier parses the repetition after an atom, if there is one.
func (p *parser) quantifier(atom *tree) (*tree, error) {
	start := p.at
	rep := &tree{kind: kindRepeat, parts: []*tree{atom}, min: 0, max: -1}
	braces := false
	switch {
	case p.more("*"):
	case p.more("+"):
		rep.min = 1
	case p.more("?"):
		rep.max = 1
	case p.more("{"):
		braces = true
		if !p.bounds(rep) {
			return nil, p.refuse(start, "a repetition that is not {n}, {n,} or {n,m} with numbers up to 1000")
		}
	default:
		return atom, nil
	}
	if atom.kind == kindLook || atom.kind == kindNot || atom.kind == kindEOL {
		return nil, p.refuse(start, "a repetition of an assertion")
	}
	switch {
	case p.more("?"):
		rep.lazy = true
	case p.more("+"):
		rep.possessive = true
	}
	if braces && (rep.lazy || rep.possessive) || p.at < len(p.text) && (p.text[p.at] == '*' || p.text[p.at] == '+' ||
		p.text[p.at] == '?' || p.text[p.at] == '{') {
		return nil, p.refuse(start, "a repetition of a repetition")
	}
	return p.node(rep)
}

// bounds parses the numbers of {n}, {n,} or {n,m} and the closing brace.
func (p *parser) bounds(rep *tree) bool {
	number := func() (int, bool) {
		n, digits := 0, 0
		for ; p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' && n <= 1000; p.at++ {
			n, digits = n*10+int(p.text[p.at]-'0'), digits+1
		}
		return n, digits > 0 && n <= 1000
	}
	var ok bool
	if rep.min, ok = number(); !ok {
		return false
	}
	rep.max = rep.min
	if p.more(",") {
		if p.more("}") {
			rep.max = -1
			return true
		}
		if rep.max, ok = number(); !ok || rep.max < rep.min {
			return false
		}
	}
	return p.more("}") && rep.max != 0
}
