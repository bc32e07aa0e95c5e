// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// unigram finds the most probable tokens of a word, as SentencePiece does.
type unigram struct {
	trie    *trie
	scores  []float64
	vocab   map[string]uint32
	lowest  float64 // score of an unknown character
	unknown int64   // id of the unknown token, or -1
	back    bool    // whether unknown text becomes bytes
	bytes   [256]int64
}

// bestPath is the most probable way to the end of a prefix of a word.
type bestPath struct {
	score float64
	start int // where the last token begins, or -1
	id    uint32
}

// unknownPenalty is the distance of the score of an unknown character to the lowest score of a token.
const unknownPenalty = 10

// newUnigram makes the model of a file.
func newUnigram(f *unigramFile) (*unigram, error) {
	m := &unigram{trie: newTrie(), vocab: make(map[string]uint32, len(f.Vocab)), unknown: -1, back: f.ByteFallback}
	if f.UnkID != nil {
		if *f.UnkID < 0 || *f.UnkID >= int64(len(f.Vocab)) {
			return nil, corrupt("model.unk_id", fmt.Sprintf("the unknown token has id %d, expected 0 to %d", *f.UnkID,
				len(f.Vocab)-1))
		}
		m.unknown = *f.UnkID
	}
	for id, e := range f.Vocab {
		m.scores = append(m.scores, e.score)
		if id == 0 || e.score < m.lowest {
			m.lowest = e.score
		}
		m.vocab[e.token] = uint32(id)
		if e.token != "" {
			m.trie.insert([]byte(e.token), uint32(id))
		}
	}
	m.lowest -= unknownPenalty
	for i := range m.bytes {
		m.bytes[i] = -1
		if id, ok := m.vocab[fmt.Sprintf("<0x%02X>", i)]; ok {
			m.bytes[i] = int64(id)
		}
	}
	return m, nil
}

// encode implements model.
func (m *unigram) encode(c *coder, word []byte, out []uint32) ([]uint32, error) {
	return c.remembered(word, out, m.word)
}

// word appends the ids of one word.
func (m *unigram) word(c *coder, word []byte, out []uint32) ([]uint32, error) {
	best := slices.Grow(c.best[:0], len(word)+1)[:len(word)+1]
	c.best = best
	for i := range best {
		best[i] = bestPath{start: -1}
	}
	for at := 0; at < len(word); {
		_, width := utf8.DecodeRune(word[at:])
		known := m.extend(best, word, at, width)
		if end := &best[at+width]; !known && (end.start < 0 || best[at].score+m.lowest > end.score) {
			if m.unknown < 0 {
				return out, m.noUnknown(word[at : at+width])
			}
			*end = bestPath{best[at].score + m.lowest, at, uint32(m.unknown)}
		}
		at += width
	}
	return m.path(c, word, out)
}

// extend goes on from the best path to at with each token there. extend reports whether the character at at, of the
// given width, is a token.
func (m *unigram) extend(best []bestPath, word []byte, at, width int) (known bool) {
	node := uint32(0)
	for i := at; i < len(word); i++ {
		to, ok := m.trie.step(node, word[i])
		if !ok {
			break
		}
		node = to
		id := m.trie.value[node]
		if id == none {
			continue
		}
		known = known || i+1-at == width
		score := m.scores[id] + best[at].score
		if end := &best[i+1]; end.start < 0 || score > end.score {
			*end = bestPath{score, at, id}
		}
	}
	return known
}

// path appends the ids of the best path to the end of a word. Neighbouring unknown characters are one token.
func (m *unigram) path(c *coder, word []byte, out []uint32) ([]uint32, error) {
	c.pieces = c.pieces[:0]
	for end := len(word); end > 0; {
		p := c.best[end]
		unknown := int64(p.id) == m.unknown
		if n := len(c.pieces); unknown && n > 0 && c.pieces[n-1].match {
			c.pieces[n-1].start = p.start
		} else {
			c.pieces = append(c.pieces, span{p.start, end, unknown})
		}
		end = p.start
	}
	for _, p := range slices.Backward(c.pieces) {
		text := word[p.start:p.end]
		if id, ok := m.vocab[string(text)]; ok {
			out = append(out, id)
			continue
		}
		if m.back && m.allBytes(text) {
			for _, b := range text {
				out = append(out, uint32(m.bytes[b]))
			}
			continue
		}
		if m.unknown < 0 {
			return out, m.noUnknown(text)
		}
		out = append(out, uint32(m.unknown))
	}
	return out, nil
}

// allBytes reports whether each byte of text has a token of its own.
func (m *unigram) allBytes(text []byte) bool {
	for _, b := range text {
		if m.bytes[b] < 0 {
			return false
		}
	}
	return true
}

// noUnknown returns the error for a text that needs an unknown token.
func (m *unigram) noUnknown(text []byte) error {
	return unsupported("model",
		fmt.Sprintf("the text has %.40q, which is not in the vocabulary, and the vocabulary has no "+"unknown token", text))
}
