// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe merges the characters of a word by byte-pair encoding.
type bpe struct {
	merges  table             // pair of ids to rank and new id
	results []uint32          // new id of each rank
	chars   map[rune]uint32   // ids of characters
	ascii   [128]int64        // ids of ASCII characters, or -1
	bytes   [256]int64        // ids of bytes, or -1: of a byte-level vocabulary, or for byte fallback
	words   map[string]uint32 // whole words, if the file says ignore_merges
	vocab   map[string]uint32
	prefix  string
	suffix  string
	unknown int64 // id of the unknown token, or -1
	noToken string
	fuse    bool
	level   bool // whether words are bytes and not characters
	back    bool // whether unknown characters become bytes
	cut     bool // whether no merge joins a character and a following ▁
}

// metaspace stands for a space in vocabularies of SentencePiece.
const metaspace = "▁"

// newBPE makes the model of a file. If level is true, the model gets words in bytes.
func newBPE(f *bpeFile, level bool) (*bpe, error) {
	if f.Dropout != nil && *f.Dropout != 0 {
		return nil, unsupported("model", fmt.Sprintf("dropout %g makes ids random", *f.Dropout))
	}
	m := &bpe{chars: map[rune]uint32{}, vocab: f.Vocab, prefix: deref(f.Prefix), suffix: deref(f.Suffix), unknown: -1,
		fuse: f.FuseUnk, back: f.ByteFallback, level: level}
	for i := range m.ascii {
		m.ascii[i] = -1
	}
	for i := range m.bytes {
		m.bytes[i] = -1
		if id, ok := f.Vocab[fmt.Sprintf("<0x%02X>", i)]; ok && m.back {
			m.bytes[i] = int64(id)
		}
	}
	if f.UnkToken != nil {
		m.noToken = *f.UnkToken
		if id, ok := f.Vocab[*f.UnkToken]; ok {
			m.unknown = int64(id)
		}
	}
	for token, id := range f.Vocab {
		if r, n := utf8.DecodeRuneInString(token); n == len(token) && n > 0 {
			m.chars[r] = id
			if r < 128 {
				m.ascii[r] = int64(id)
			}
		}
	}
	if level {
		m.levelBytes()
	}
	if f.IgnoreMerges {
		m.words = f.Vocab
		if level {
			m.words = map[string]uint32{}
			for token, id := range f.Vocab {
				if raw, ok := levelDecode(token); ok {
					m.words[raw] = id
				}
			}
		}
	}
	if err := m.addMerges(f); err != nil {
		return nil, err
	}
	_, whole := f.Vocab[metaspace]
	m.cut = m.cut && whole && !level && !f.IgnoreMerges && m.prefix == "" && m.suffix == ""
	return m, nil
}

// levelBytes fills the ids of bytes from the characters that stand for them.
func (m *bpe) levelBytes() {
	for b, r := range levelRunes() {
		m.bytes[b] = -1
		if id, ok := m.chars[r]; ok {
			m.bytes[b] = int64(id)
		}
	}
}

// addMerges stores the merges by rank, and sets cut.
func (m *bpe) addMerges(f *bpeFile) error {
	m.cut = true
	for rank, pair := range f.Merges {
		a, b := pair[0], pair[1]
		if len(b) < len(m.prefix) {
			return corrupt("model.merges", fmt.Sprintf("merge %d has %.80q without the prefix %q", rank, b, m.prefix))
		}
		merged := a + b[len(m.prefix):]
		left, ok1 := f.Vocab[a]
		right, ok2 := f.Vocab[b]
		id, ok3 := f.Vocab[merged]
		if !ok1 || !ok2 || !ok3 {
			missing := merged
			if !ok1 {
				missing = a
			} else if !ok2 {
				missing = b
			}
			return corrupt("model.merges", fmt.Sprintf("merge %d of %.80q and %.80q needs the token %.80q, which is not in "+
				"the vocabulary", rank, a, b, missing))
		}
		m.merges.set(uint64(left)<<32|uint64(right), uint64(rank)<<32|uint64(id))
		m.results = append(m.results, id)
		if strings.HasPrefix(b, metaspace) && !strings.HasSuffix(a, metaspace) {
			m.cut = false
		}
	}
	return nil
}

// encode implements model. A text without pre-tokenizer arrives as one word. If no merge crosses the begin of a ▁,
// encode cuts the text there, because short words are found in the cache.
func (m *bpe) encode(c *coder, word []byte, out []uint32) ([]uint32, error) {
	if !m.cut {
		return c.remembered(word, out, m.word)
	}
	var err error
	start, inside := 0, false // inside: after a character that is not ▁
	for i := 0; i < len(word); {
		if word[i] == metaspace[0] && i+2 < len(word) && word[i+1] == metaspace[1] && word[i+2] == metaspace[2] {
			if inside {
				if out, err = c.remembered(word[start:i], out, m.word); err != nil {
					return out, err
				}
				start, inside = i, false
			}
			i += len(metaspace)
			continue
		}
		inside = true
		i++
	}
	return c.remembered(word[start:], out, m.word)
}

// word appends the ids of one word.
func (m *bpe) word(c *coder, word []byte, out []uint32) ([]uint32, error) {
	if m.words != nil {
		if id, ok := m.words[string(word)]; ok {
			return append(out, id), nil
		}
	}
	w := &c.merge
	w.symbols = w.symbols[:0]
	if m.level {
		for _, b := range word {
			if id := m.bytes[b]; id >= 0 {
				w.flush(m)
				w.add(uint32(id))
			} else if err := m.missing(w, nil); err != nil {
				return out, err
			}
		}
		w.flush(m)
	} else if err := m.characters(w, word); err != nil {
		return out, err
	}
	return w.mergeAll(m, out), nil
}

// characters adds the symbol of each character of a word.
func (m *bpe) characters(w *mergeWork, word []byte) error {
	plain := m.prefix == "" && m.suffix == ""
	for i := 0; i < len(word); {
		r, n := rune(word[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(word[i:])
		}
		id, ok := uint32(0), false
		text := word[i : i+n]
		switch {
		case !plain:
			full := string(text)
			if i > 0 {
				full = m.prefix + full
			}
			if i+n == len(word) {
				full += m.suffix
			}
			text = []byte(full)
			id, ok = m.vocab[full]
		case r < 128:
			id, ok = uint32(m.ascii[r]), m.ascii[r] >= 0
		default:
			id, ok = m.chars[r]
		}
		i += n
		if ok {
			w.flush(m)
			w.add(id)
		} else if err := m.missing(w, text); err != nil {
			return err
		}
	}
	w.flush(m)
	return nil
}

// missing adds what stands for a character that the vocabulary does not have: its bytes, the unknown token or nothing.
func (m *bpe) missing(w *mergeWork, text []byte) error {
	if m.back && len(text) > 0 {
		all := true
		for _, b := range text {
			all = all && m.bytes[b] >= 0
		}
		if all {
			for _, b := range text {
				w.add(uint32(m.bytes[b]))
			}
			return nil // the reference leaves an unknown token before these bytes pending
		}
	}
	if m.noToken == "" {
		return nil
	}
	if m.unknown < 0 {
		return unsupported("model", fmt.Sprintf("the text needs the unknown token %.80q, which is not in the vocabulary",
			m.noToken))
	}
	if w.pending && !m.fuse {
		w.add(uint32(m.unknown))
	}
	w.pending = true
	return nil
}
