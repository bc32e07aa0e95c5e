// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"slices"
	"strings"
)

// Elements of a pattern that are no character.
const (
	anyRun  rune = -1 // * matches any number of characters
	anyChar rune = -2 // ? matches one character
)

// pattern is a compiled pattern: parts of characters and wildcards, with variables between them.
type pattern struct {
	parts []part
}

// part is a variable, or a run of characters and wildcards.
type part struct {
	chars    []rune
	variable string // name of a condition key in lower case; empty for characters
	fallback *string
}

// compile compiles a pattern without variables.
func compile(text string) pattern { return pattern{parts: []part{{chars: wild(text)}}} }

func wild(text string) []rune {
	out := []rune(text)
	for i, r := range out {
		switch r {
		case '*':
			out[i] = anyRun
		case '?':
			out[i] = anyChar
		}
	}
	return out
}

// compileWith compiles a pattern. If variables is true, ${KEY} stands for the value of a condition key, ${KEY, 'TEXT'}
// has a default, and ${*}, ${?} and ${$} stand for the characters themselves.
func compileWith(text string, variables bool) (pattern, error) {
	return compileParts(text, variables, wild)
}

func compileParts(text string, variables bool, chars func(string) []rune) (pattern, error) {
	var p pattern
	if !variables {
		p.parts = []part{{chars: chars(text)}}
		return p, nil
	}
	for {
		before, rest, found := strings.Cut(text, "${")
		if before != "" || !found {
			p.parts = append(p.parts, part{chars: chars(before)})
		}
		if !found {
			return p, nil
		}
		inside, after, closed := strings.Cut(rest, "}")
		if !closed {
			return p, fmt.Errorf("a variable without its closing brace")
		}
		v, err := variableOf(inside)
		if err != nil {
			return p, err
		}
		p.parts = append(p.parts, v)
		if text = after; text == "" {
			return p, nil
		}
	}
}

func variableOf(text string) (part, error) {
	switch text {
	case "*", "?", "$":
		return part{chars: []rune(text)}, nil
	}
	name, fallback, has := strings.Cut(text, ",")
	v := part{variable: strings.ToLower(strings.TrimSpace(name))}
	if !knownKey(v.variable) {
		return v, fmt.Errorf("variable ${%.64s} is not one that this server knows", text)
	}
	if has {
		fallback = strings.TrimSpace(fallback)
		if len(fallback) < 2 || fallback[0] != '\'' || fallback[len(fallback)-1] != '\'' {
			return v, fmt.Errorf("variable ${%.64s}, expected its default in single quotes", text)
		}
		fallback = fallback[1 : len(fallback)-1]
		v.fallback = &fallback
	}
	return v, nil
}

// resolve replaces the variables of a pattern by the values of a request. A character * of a value is no wildcard.
// resolve returns false if the request has no single value for a variable.
func (p *pattern) resolve(r *Request) (pattern, bool) {
	if len(p.parts) == 1 && p.parts[0].variable == "" {
		return *p, true
	}
	var out []rune
	for i := range p.parts {
		part := &p.parts[i]
		if part.variable == "" {
			out = append(out, part.chars...)
			continue
		}
		switch values := r.value(part.variable); {
		case len(values) == 1:
			out = append(out, []rune(values[0])...)
		case len(values) == 0 && part.fallback != nil:
			out = append(out, []rune(*part.fallback)...)
		default:
			return pattern{}, false
		}
	}
	return pattern{parts: []part{{chars: out}}}, true
}

// match reports whether a text matches a pattern without variables. The time is at most the product of both lengths.
func (p *pattern) match(text string) bool {
	chars := p.parts[0].chars
	if len(chars) == 1 && chars[0] == anyRun {
		return true
	}
	t := []rune(text)
	at, i := 0, 0
	star, from := -1, 0 // the last * and the first character that it does not cover
	for i < len(t) {
		switch {
		case at < len(chars) && chars[at] == anyRun:
			star, from = at, i
			at++
		case at < len(chars) && (chars[at] == anyChar || chars[at] == t[i]):
			at++
			i++
		case star >= 0:
			from++
			at, i = star+1, from
		default:
			return false
		}
	}
	for at < len(chars) && chars[at] == anyRun {
		at++
	}
	return at == len(chars)
}

// text returns the characters of a pattern without variables and wildcards.
func (p *pattern) text() string { return string(p.parts[0].chars) }

// everything reports whether the pattern matches all objects of all buckets.
func (p *pattern) everything() bool {
	if len(p.parts) != 1 || p.parts[0].variable != "" {
		return false
	}
	chars := p.parts[0].chars
	return slices.Equal(chars, wild("*")) || slices.Equal(chars, wild("arn:aws:s3:::*"))
}

// work returns the number of characters behind the first * of the pattern. A variable counts as 64 characters.
func (p *pattern) work() int {
	n, behind := 0, false
	for i := range p.parts {
		if p.parts[i].variable != "" && behind {
			n += 64
		}
		for _, r := range p.parts[i].chars {
			if behind && r != anyRun {
				n++
			}
			behind = behind || r == anyRun
		}
	}
	return n
}
