// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"fmt"
	"unicode/utf8"
)

// wordPiece takes the longest token again and again, as BERT does.
type wordPiece struct {
	trie    *trie
	inner   uint32 // node of the prefix of tokens inside a word
	inside  bool   // whether any token has the prefix
	longest int    // characters of the longest word that is looked up
	unknown int64  // id of the unknown token, or -1
	noToken string
}

// newWordPiece makes the model of a file.
func newWordPiece(f *wordPieceFile) *wordPiece {
	m := &wordPiece{trie: newTrie(), longest: f.MaxChars, unknown: -1, noToken: f.UnkToken}
	for token, id := range f.Vocab {
		if token != "" {
			m.trie.insert([]byte(token), id)
		}
	}
	m.inner, m.inside = m.trie.walk([]byte(f.Prefix))
	if id, ok := f.Vocab[f.UnkToken]; ok {
		m.unknown = int64(id)
	}
	return m
}

// encode implements model.
func (m *wordPiece) encode(c *coder, word []byte, out []uint32) ([]uint32, error) {
	return c.remembered(word, out, m.word)
}

// word appends the ids of one word. A word with an unknown part is unknown as a whole.
func (m *wordPiece) word(_ *coder, word []byte, out []uint32) ([]uint32, error) {
	before := len(out)
	known := utf8.RuneCount(word) <= m.longest
	for rest := word; known && len(rest) > 0; {
		node, ok := uint32(0), true
		if len(rest) < len(word) {
			node, ok = m.inner, m.inside
		}
		n, id := 0, uint32(0)
		if ok {
			n, id = m.trie.longestFrom(node, rest)
		}
		if known = n > 0; known {
			out = append(out, id)
			rest = rest[n:]
		}
	}
	if known {
		return out, nil
	}
	if m.unknown < 0 {
		return out, unsupported("model", fmt.Sprintf("the text needs the unknown token %.80q, which is not in the vocabulary",
			m.noToken))
	}
	return append(out[:before], uint32(m.unknown)), nil
}

// wordLevel looks up whole words.
type wordLevel struct {
	vocab   map[string]uint32
	noToken string
}

// encode implements model.
func (m *wordLevel) encode(_ *coder, word []byte, out []uint32) ([]uint32, error) {
	id, ok := m.vocab[string(word)]
	if !ok {
		id, ok = m.vocab[m.noToken]
	}
	if !ok {
		return out, unsupported("model", fmt.Sprintf(
			"the text has the word %.80q, and neither it nor the unknown token %.80q "+"is in the vocabulary", word, m.noToken))
	}
	return append(out, id), nil
}
