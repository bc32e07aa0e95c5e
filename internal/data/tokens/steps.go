// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"

	"github.com/nebulaio/nebulaio/internal/data/tokens/pattern"
)

// step is a pre-tokenizer: it cuts a piece of text into smaller pieces.
type step interface {
	// split calls c.piece(i+1, ...) for each piece of text in turn. The parameter i is the number of the step. The
	// parameter first says whether the piece begins the whole text.
	split(c *coder, i int, text []byte, first bool) error
}

// behavior says what becomes of the delimiters of a split.
type behavior uint8

const (
	isolated   behavior = iota // a piece of its own
	removed                    // left out
	previous                   // part of the piece before
	following                  // part of the piece after
	contiguous                 // neighbouring delimiters are one piece
)

// splitStep cuts a text at the matches of a pattern.
type splitStep struct {
	pattern  *pattern.Pattern
	behavior behavior
	invert   bool // whether the text between the matches is the delimiter
}

// split implements step.
func (s *splitStep) split(c *coder, i int, text []byte, first bool) error {
	w := &c.work[i]
	w.matcher.Reset(s.pattern, text)
	w.spans = w.spans[:0]
	for at := 0; at < len(text); {
		start, end, err := w.matcher.Next(at)
		if err != nil {
			return err
		}
		if start < 0 {
			start, end = len(text), len(text)
		}
		if s.behavior == isolated { // the usual case needs no list
			if err := c.piece(i+1, text[at:start], first && at == 0); err != nil {
				return err
			}
			if err := c.piece(i+1, text[start:end], first && start == 0); err != nil {
				return err
			}
		} else {
			if at < start {
				w.spans = append(w.spans, span{at, start, s.invert})
			}
			if start < end {
				w.spans = append(w.spans, span{start, end, !s.invert})
			}
		}
		at = end
	}
	for _, p := range s.join(w) {
		if p.match && s.behavior == removed {
			continue
		}
		if err := c.piece(i+1, text[p.start:p.end], first && p.start == 0); err != nil {
			return err
		}
	}
	return nil
}

// join merges the delimiters in w.spans with their neighbours.
func (s *splitStep) join(w *stepWork) []span {
	if s.behavior == isolated || s.behavior == removed {
		return w.spans
	}
	w.merged = w.merged[:0]
	before := false // whether the span before was a delimiter
	for k := range w.spans {
		p := w.spans[k]
		if s.behavior == following {
			p = w.spans[len(w.spans)-1-k]
		}
		joins := p.match && !before
		if s.behavior == contiguous {
			joins = p.match == before
		}
		if n := len(w.merged); joins && n > 0 {
			w.merged[n-1].start = min(w.merged[n-1].start, p.start)
			w.merged[n-1].end = max(w.merged[n-1].end, p.end)
		} else {
			w.merged = append(w.merged, span{p.start, p.end, false})
		}
		before = p.match
	}
	if s.behavior == following {
		for a, b := 0, len(w.merged)-1; a < b; a, b = a+1, b-1 {
			w.merged[a], w.merged[b] = w.merged[b], w.merged[a]
		}
	}
	return w.merged
}

// levelStep cuts a text as GPT-2 does. Its pieces are bytes if the model takes bytes, and otherwise the characters that
// stand for bytes.
type levelStep struct {
	pattern *pattern.Pattern // nil if the file says use_regex: false
	space   bool             // whether a text begins with a space
	raw     bool             // whether pieces are bytes
	runes   [256]rune        // the characters that stand for bytes
}

// split implements step.
func (s *levelStep) split(c *coder, i int, text []byte, first bool) error {
	w := &c.work[i]
	if s.space && text[0] != ' ' {
		w.text = append(append(w.text[:0], ' '), text...)
		text = w.text
	}
	if s.pattern == nil {
		return s.emit(c, i, text, first)
	}
	w.matcher.Reset(s.pattern, text)
	for at := 0; at < len(text); {
		start, end, err := w.matcher.Next(at)
		if err != nil {
			return err
		}
		if start < 0 {
			start, end = len(text), len(text)
		}
		if err := s.emit(c, i, text[at:start], first && at == 0); err != nil {
			return err
		}
		if err := s.emit(c, i, text[start:end], first && start == 0); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// emit gives a piece to the next step.
func (s *levelStep) emit(c *coder, i int, text []byte, first bool) error {
	if !s.raw && len(text) > 0 {
		text = levelEncode(make([]byte, 0, 2*len(text)), text, &s.runes)
	}
	return c.piece(i+1, text, first)
}

// scheme says which pieces of a text get a ▁ at their begin.
type scheme uint8

const (
	always scheme = iota
	onlyFirst
	never
)

// metaStep replaces spaces by ▁ and cuts the text before each.
type metaStep struct {
	mark   []byte // ▁, or another character
	scheme scheme
	cut    bool
}

// split implements step.
func (s *metaStep) split(c *coder, i int, text []byte, first bool) error {
	w := &c.work[i]
	out := w.text[:0]
	if begins := text[0] == ' ' || bytes.HasPrefix(text, s.mark); !begins && (s.scheme == always ||
		s.scheme == onlyFirst && first) {
		out = append(out, s.mark...)
	}
	for _, b := range text {
		if b == ' ' {
			out = append(out, s.mark...)
		} else {
			out = append(out, b)
		}
	}
	w.text = out
	if !s.cut {
		return c.piece(i+1, out, first)
	}
	for start := 0; start < len(out); {
		from := start
		if bytes.HasPrefix(out[start:], s.mark) {
			from += len(s.mark)
		}
		end := len(out)
		if n := bytes.Index(out[from:], s.mark); n >= 0 {
			end = from + n
		}
		if err := c.piece(i+1, out[start:end], first && start == 0); err != nil {
			return err
		}
		start = end
	}
	return nil
}
