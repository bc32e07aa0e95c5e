// SPDX-License-Identifier: Apache-2.0

// Package tokens turns text into token ids with a tokenizer.json file of Hugging Face.
//
// The ids are those of the Python package tokenizers with add_special_tokens=False. Open refuses a file with a part
// that package tokens does not know, and names the part.
package tokens

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// MaxFile is the largest size of a tokenizer.json file, in bytes. Published files have up to 40 MB.
const MaxFile = 256 << 20

// MaxText is the largest size of a text, in bytes.
const MaxText = 1 << 30

// Options are choices about the text. The zero value is what the Python package does.
type Options struct {
	// SpecialAsText makes special tokens in a text plain text: "<|endoftext|>" becomes the tokens of its characters.
	// The zero value finds special tokens in a text, as the Python package does unless encode_special_tokens is set.
	SpecialAsText bool
}

// Tokenizer turns text into token ids. A Tokenizer is immutable, and several goroutines may use it at once. A Tokenizer
// needs no close.
type Tokenizer struct {
	name       string
	normalizer []normalizer
	steps      []step
	model      model
	raw        *addedSet // added tokens in the text as it is
	normal     *addedSet // added tokens in the normalized text
	ids        map[string]uint32
	size       int
	anyBytes   bool // whether text that is not UTF-8 has ids
	losesBegin bool // whether it is not known if a normalizer removed the begin of a text

	mu   sync.Mutex
	idle []*coder
}

// model turns one word into ids.
type model interface {
	// encode appends the ids of a word to out. A word is not empty.
	encode(c *coder, word []byte, out []uint32) ([]uint32, error)
}

// Open reads the tokenizer.json file at path. Open fails with kind Corrupt if the file is damaged, and with kind
// Unsupported if the file has a part that package tokens does not know.
func Open(path string, o Options) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errs.Wrap("open tokenizer", path, errs.WithoutPath(err))
	}
	defer func() { _ = f.Close() }() // nothing was written
	return Read(f, path, o)
}

// Read reads a tokenizer.json file from r, up to MaxFile bytes. The name is for errors. Read fails as Open does.
func Read(r io.Reader, name string, o Options) (*Tokenizer, error) {
	raw, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, errs.Wrap("read tokenizer", name, errs.WithoutPath(err))
	}
	if len(raw) > MaxFile {
		return nil, &errs.Error{Kind: errs.Invalid, Op: "read tokenizer", Name: name,
			Msg: fmt.Sprintf("the file has more than %d bytes", MaxFile), Fix: "give a tokenizer.json file"}
	}
	return build(raw, name, o)
}

// Size returns the size of the vocabulary with the added tokens: every id is below Size. If the ids have gaps, Size is
// larger than the number of tokens.
func (t *Tokenizer) Size() int { return t.size }

// ID returns the id of a token, such as "<|endoftext|>", or false if the vocabulary does not have the token. A token of
// a byte-level vocabulary is written as in the file: "Ġthe" for " the".
func (t *Tokenizer) ID(token string) (uint32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Encode returns the ids of a text. Encode adds no special tokens of its own, and does not truncate or pad; these
// settings of the file are for inference. The text is not changed and not kept.
//
// Byte-level vocabularies encode any bytes. For other vocabularies, Encode fails with kind Invalid if the text is not
// UTF-8, and names the first bad byte. Encode also fails if the text has more than MaxText bytes, or if the text needs
// an unknown token and the vocabulary has none.
func (t *Tokenizer) Encode(text []byte) ([]uint32, error) {
	if len(text) > MaxText {
		return nil, &errs.Error{Kind: errs.Invalid, Op: "tokenize", Name: t.name,
			Msg: fmt.Sprintf("the text has %d bytes, expected at most %d", len(text), MaxText),
			Fix: "split the text into shorter documents"}
	}
	if !t.anyBytes && !utf8.Valid(text) {
		at := 0
		for r, n := utf8.DecodeRune(text); r != utf8.RuneError || n != 1; r, n = utf8.DecodeRune(text[at:]) {
			at += n
		}
		return nil, &errs.Error{Kind: errs.Invalid, Op: "tokenize", Name: t.name,
			Msg: fmt.Sprintf("byte %d of the text is 0x%02x, which is not UTF-8", at, text[at]),
			Fix: "convert the text to UTF-8, or use a tokenizer with a byte-level vocabulary"}
	}
	c := t.take()
	defer t.put(c)
	c.out = make([]uint32, 0, len(text)/4+8)
	if err := c.text(text); err != nil {
		return nil, errs.Wrap("tokenize", t.name, err)
	}
	out := c.out
	c.out = nil
	return out, nil
}

// take returns a coder of its own to one call of Encode.
func (t *Tokenizer) take() *coder {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.idle); n > 0 {
		c := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return c
	}
	return newCoder(t)
}

// put keeps c for a later call. No more coders are kept than goroutines can run at once.
func (t *Tokenizer) put(c *coder) {
	c.trim()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle) < runtime.GOMAXPROCS(0) {
		t.idle = append(t.idle, c)
	}
}
