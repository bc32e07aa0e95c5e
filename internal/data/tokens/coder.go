// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"hash/maphash"

	"github.com/nebulaio/nebulaio/internal/data/tokens/pattern"
)

// Limits of the memory that a coder keeps between texts.
const (
	cacheWords = 1 << 15 // words in the cache
	cacheBytes = 48      // longest word in the cache
	cacheIDs   = 24      // most ids of a word in the cache
	keepBytes  = 1 << 20 // largest buffer that is kept
)

// coder holds the memory of one call of Encode.
type coder struct {
	t      *Tokenizer
	out    []uint32
	work   []stepWork // of each step
	seed   maphash.Seed
	cache  []cached
	merge  mergeWork
	best   []bestPath
	pieces []span
}

// stepWork is the memory of one pre-tokenizer step.
type stepWork struct {
	matcher pattern.Matcher
	text    []byte
	spans   []span
	merged  []span
}

// span is a part of a text. The field match says whether a delimiter matched the part.
type span struct {
	start, end int
	match      bool
}

// cached is a word and its ids.
type cached struct {
	hash uint64
	word []byte
	ids  []uint32
}

// newCoder returns a coder for the texts of t.
func newCoder(t *Tokenizer) *coder {
	return &coder{t: t, work: make([]stepWork, len(t.steps)), seed: maphash.MakeSeed(),
		cache: make([]cached, cacheWords)}
}

// trim drops buffers that a large text left behind.
func (c *coder) trim() {
	c.out = nil
	for i := range c.work {
		w := &c.work[i]
		w.matcher = pattern.Matcher{}
		if cap(w.text) > keepBytes || cap(w.spans) > keepBytes/24 || cap(w.merged) > keepBytes/24 {
			*w = stepWork{}
		}
	}
	if cap(c.merge.symbols) > keepBytes/16 || cap(c.merge.heap) > keepBytes/8 {
		c.merge = mergeWork{}
	}
	if cap(c.best) > keepBytes/24 {
		c.best = nil
	}
	if cap(c.pieces) > keepBytes/24 {
		c.pieces = nil
	}
}

// text appends the ids of a text.
func (c *coder) text(text []byte) error {
	return c.t.raw.split(text, func(start, end int, id int64) error {
		if id >= 0 {
			c.out = append(c.out, uint32(id))
			return nil
		}
		return c.segment(text[start:end], start == 0)
	})
}

// segment appends the ids of a text between added tokens. The parameter first says whether the segment begins the text.
func (c *coder) segment(text []byte, first bool) error {
	if len(text) == 0 {
		return nil
	}
	var err error
	for _, n := range c.t.normalizer {
		if text, first, err = n(text, first); err != nil {
			return err
		}
	}
	return c.t.normal.split(text, func(start, end int, id int64) error {
		if id >= 0 {
			c.out = append(c.out, uint32(id))
			return nil
		}
		return c.piece(0, text[start:end], first && start == 0)
	})
}

// piece gives a piece of text to step i, or to the model after the last step.
func (c *coder) piece(i int, text []byte, first bool) error {
	switch {
	case len(text) == 0:
		return nil
	case i < len(c.t.steps):
		return c.t.steps[i].split(c, i, text, first)
	}
	var err error
	c.out, err = c.t.model.encode(c, text, c.out)
	return err
}

// remembered appends the ids of a word from the cache, or else those that compute appends. A word in the cache is
// replaced by another of the same slot, so that the cache needs no order.
func (c *coder) remembered(word []byte, out []uint32, compute func(*coder, []byte, []uint32) ([]uint32, error)) (
	[]uint32, error) {
	if len(word) > cacheBytes {
		return compute(c, word, out)
	}
	hash := maphash.Bytes(c.seed, word)
	slot := &c.cache[hash&(cacheWords-1)]
	if slot.hash == hash && bytes.Equal(slot.word, word) {
		return append(out, slot.ids...), nil
	}
	before := len(out)
	out, err := compute(c, word, out)
	if err == nil && len(out)-before <= cacheIDs {
		slot.hash = hash
		slot.word = append(slot.word[:0], word...)
		slot.ids = append(slot.ids[:0], out[before:]...)
	}
	return out, err
}
