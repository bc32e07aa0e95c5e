// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"fmt"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/tokens/charset"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// maxAdded is the largest number of added tokens. Published files have up to a few thousand.
const maxAdded = 1 << 20

// addedToken is a token that is found in a text before the model sees the text.
type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// addedSet finds added tokens in a text.
type addedSet struct {
	trie   *trie
	tokens []addedToken
	starts [256]bool // the first bytes of the tokens
	asText bool      // whether special tokens are plain text
	word   *charset.Set
}

// newAddedSet returns the set of tokens whose text is forms[i]. If there are none, newAddedSet returns nil.
func newAddedSet(tokens []addedToken, forms []string, o Options) (*addedSet, error) {
	if len(tokens) == 0 {
		return nil, nil
	}
	s := &addedSet{trie: newTrie(), tokens: tokens, asText: o.SpecialAsText, word: charset.PlainWord()}
	for i, form := range forms {
		if form == "" {
			return nil, unsupported("added_tokens", fmt.Sprintf("the added token %.80q is empty after normalization",
				tokens[i].Content))
		}
		if !s.trie.insert([]byte(form), uint32(i)) {
			return nil, unsupported("added_tokens", fmt.Sprintf("two added tokens have the same text %.80q", form))
		}
		s.starts[form[0]] = true
	}
	return s, nil
}

// split calls each for every part of text in turn: for an added token with its id, for other text with -1. Of several
// tokens at a place, the longest counts.
func (s *addedSet) split(text []byte, each func(start, end int, id int64) error) error {
	if s == nil {
		return each(0, len(text), -1)
	}
	done := 0
	for at := 0; at < len(text); {
		if !s.starts[text[at]] {
			at++
			continue
		}
		n, which := s.trie.longest(text[at:])
		if n == 0 {
			at++
			continue
		}
		start, end := at, at+n
		at = end
		token := &s.tokens[which]
		if s.asText && token.Special || token.SingleWord && !s.alone(text, start, end) {
			continue
		}
		if token.LStrip {
			start = max(done, len(trimRight(text[:start])))
		}
		if token.RStrip {
			end += leadingSpace(text[end:])
		}
		if start > done {
			if err := each(done, start, -1); err != nil {
				return err
			}
		}
		if err := each(start, end, int64(token.ID)); err != nil {
			return err
		}
		// The reference looks for the next token right after this one, even in space that RStrip took.
		done = end
	}
	if done < len(text) {
		return each(done, len(text), -1)
	}
	return nil
}

// alone reports whether no word character touches text[start:end].
func (s *addedSet) alone(text []byte, start, end int) bool {
	before, _ := utf8.DecodeLastRune(text[:start])
	after, _ := utf8.DecodeRune(text[end:])
	return (start == 0 || !s.word.Has(before)) && (end == len(text) || !s.word.Has(after))
}

// leadingSpace returns the number of bytes of white space that text begins with.
func leadingSpace(text []byte) int {
	n := 0
	for n < len(text) {
		r, w := utf8.DecodeRune(text[n:])
		if !charset.IsSpace(r) {
			break
		}
		n += w
	}
	return n
}

// trimRight returns text without the white space at its end.
func trimRight(text []byte) []byte {
	for len(text) > 0 {
		r, w := utf8.DecodeLastRune(text)
		if !charset.IsSpace(r) {
			break
		}
		text = text[:len(text)-w]
	}
	return text
}

// addTokens gives the added tokens of a file their ids, and makes the two sets of them.
func (t *Tokenizer) addTokens(list []addedToken, vocabulary int, o Options) error {
	if len(list) > maxAdded {
		return corrupt("added_tokens", fmt.Sprintf("%d added tokens, expected at most %d", len(list), maxAdded))
	}
	next := uint32(vocabulary)
	at := map[string]int{}
	var tokens []addedToken
	for _, a := range list {
		if a.Content == "" {
			continue
		}
		id, ok := t.ids[a.Content]
		if !ok {
			id = next
			next++
		}
		if a.ID != id {
			return &errs.Error{Kind: errs.Unsupported, Op: "read", Name: "added_tokens",
				Msg: fmt.Sprintf("the added token %.80q has id %d, but the Python package would give it %d", a.Content, a.ID, id),
				Fix: "load the file with the Python package tokenizers and save it again, and compare its ids with the model's"}
		}
		t.ids[a.Content] = id
		if i, again := at[a.Content]; again {
			a.Special = a.Special || tokens[i].Special
			tokens[i] = a
			continue
		}
		at[a.Content] = len(tokens)
		tokens = append(tokens, a)
	}
	var raw, normal []addedToken
	var rawForms, normalForms []string
	for _, a := range tokens {
		if !a.Normalized {
			raw, rawForms = append(raw, a), append(rawForms, a.Content)
			continue
		}
		form := []byte(a.Content)
		var err error
		for _, n := range t.normalizer {
			if form, _, err = n(form, true); err != nil {
				return err
			}
		}
		normal, normalForms = append(normal, a), append(normalForms, string(form))
	}
	var err error
	if t.raw, err = newAddedSet(raw, rawForms, o); err != nil {
		return err
	}
	t.normal, err = newAddedSet(normal, normalForms, o)
	return err
}
