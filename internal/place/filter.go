// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Filter chooses keys by rules in the order in which they were given. The last rule that matches a key decides. A key
// that no rule matches is chosen. The zero Filter chooses every key.
//
// In a pattern, * stands for any text, also with slashes, ? for one character, and [abc], [a-z] or [!abc] for one
// character of a set. The rules are those of --include and --exclude of aws-cli.
type Filter struct {
	rules []rule
	where func(key string) bool // nil: all keys
}

type rule struct {
	include bool
	parts   []part
}

// part is one element of a pattern.
type part struct {
	any    bool // *
	one    bool // ?
	negate bool
	set    []span // [a-z]; nil: one given character
	char   rune
}

type span struct{ lo, hi rune }

// Limits of the rules of one filter.
const (
	mostRules   = 1000
	mostPattern = 1024
)

// Include adds a rule that chooses the keys that match the pattern.
func (f *Filter) Include(pattern string) error { return f.add(true, pattern) }

// Exclude adds a rule that leaves out the keys that match the pattern.
func (f *Filter) Exclude(pattern string) error { return f.add(false, pattern) }

func (f *Filter) add(include bool, pattern string) error {
	switch {
	case pattern == "":
		return errs.New(errs.Invalid, "filter", `""`, "is no pattern; expected one such as *.bin")
	case len(pattern) > mostPattern:
		return errs.New(errs.Invalid, "filter", strconv.Quote(clip(pattern)),
			fmt.Sprintf("has %d bytes; expected at most %d", len(pattern), mostPattern))
	case len(f.rules) == mostRules:
		return errs.New(errs.Invalid, "filter", strconv.Quote(clip(pattern)),
			fmt.Sprintf("is one rule too many; expected at most %d", mostRules))
	}
	f.rules = append(f.rules, rule{include, compile(pattern)})
	return nil
}

// Where limits the filter to the keys for which chosen returns true, before any rule. Any goroutine may call chosen.
func (f *Filter) Where(chosen func(key string) bool) { f.where = chosen }

// Empty reports whether the filter has no rules.
func (f *Filter) Empty() bool { return f == nil || len(f.rules) == 0 && f.where == nil }

// Match reports whether the filter chooses the key below a place. A nil Filter chooses every key.
func (f *Filter) Match(key string) bool {
	if f == nil {
		return true
	}
	if f.where != nil && !f.where(key) {
		return false
	}
	for i := len(f.rules) - 1; i >= 0; i-- {
		if match(f.rules[i].parts, key) {
			return f.rules[i].include
		}
	}
	return true
}

// Of returns a Walker of those entries of w that the filter chooses.
func (f *Filter) Of(w Walker) Walker {
	if f.Empty() {
		return w
	}
	return filtered{f, w}
}

type filtered struct {
	f *Filter
	w Walker
}

func (f filtered) Walk(ctx context.Context, each func(Entry) error) error {
	return f.w.Walk(ctx, func(e Entry) error {
		if !f.f.Match(e.Key) {
			return nil
		}
		return each(e)
	})
}

// compile splits a pattern as Python's fnmatch does. A bracket without an end is an ordinary character.
func compile(pattern string) []part {
	var out []part
	for i := 0; i < len(pattern); {
		r, n := utf8.DecodeRuneInString(pattern[i:])
		i += n
		switch r {
		case '*':
			if len(out) == 0 || !out[len(out)-1].any {
				out = append(out, part{any: true})
			}
		case '?':
			out = append(out, part{one: true})
		case '[':
			p, end, ok := bracket(pattern, i)
			if !ok {
				out = append(out, part{char: '['})
				continue
			}
			out, i = append(out, p), end
		default:
			out = append(out, part{char: r})
		}
	}
	return out
}

// bracket reads the set that begins at pattern[i:]. A "]" at its beginning is a member of the set.
func bracket(pattern string, i int) (p part, end int, ok bool) {
	if i < len(pattern) && pattern[i] == '!' {
		p.negate = true
		i++
	}
	first := i
	var members []rune
	for i < len(pattern) {
		r, n := utf8.DecodeRuneInString(pattern[i:])
		if r == ']' && i > first {
			p.set = spans(members)
			return p, i + n, true
		}
		members = append(members, r)
		i += n
	}
	return part{}, 0, false
}

// spans joins members to ranges. A range whose end is before its beginning has no characters, as in Python.
func spans(members []rune) []span {
	out := []span{}
	for i := 0; i < len(members); i++ {
		if i+2 < len(members) && members[i+1] == '-' {
			if members[i] <= members[i+2] {
				out = append(out, span{members[i], members[i+2]})
			}
			i += 2
			continue
		}
		out = append(out, span{members[i], members[i]})
	}
	return out
}

func (p part) matches(r rune) bool {
	switch {
	case p.one:
		return true
	case p.set == nil:
		return p.char == r
	}
	for _, s := range p.set {
		if s.lo <= r && r <= s.hi {
			return !p.negate
		}
	}
	return p.negate
}

// match reports whether the whole key matches. It goes back to the last star alone, so its time is at most the product
// of both lengths.
func match(parts []part, key string) bool {
	star, from := -1, 0
	p, k := 0, 0
	for k < len(key) {
		r, n := utf8.DecodeRuneInString(key[k:])
		switch {
		case p < len(parts) && parts[p].any:
			star, from = p, k
			p++
		case p < len(parts) && parts[p].matches(r):
			p, k = p+1, k+n
		case star >= 0:
			_, n := utf8.DecodeRuneInString(key[from:])
			from += n
			p, k = star+1, from
		default:
			return false
		}
	}
	for p < len(parts) && parts[p].any {
		p++
	}
	return p == len(parts)
}
