// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// maxID is the largest id of a token. Larger ids do not fit the 32-bit signed integers of packed data.
const maxID = math.MaxInt32 - 1

// file is a tokenizer.json file. The other keys of the file (truncation, padding, post_processor, decoder) do not
// change the ids of a text without special tokens.
type file struct {
	Version      *string         `json:"version"`
	AddedTokens  []addedToken    `json:"added_tokens"`
	Normalizer   json.RawMessage `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Model        json.RawMessage `json:"model"`
}

// corrupt returns the error about a damaged part of a file.
func corrupt(part, msg string) error {
	return &errs.Error{Kind: errs.Corrupt, Op: "read", Name: part, Msg: msg,
		Fix: "get the tokenizer.json file again, or save it again with the Python package tokenizers"}
}

// unsupported returns the error about a part of a file that package tokens does not know.
func unsupported(part, msg string) error {
	return &errs.Error{Kind: errs.Unsupported, Op: "read", Name: part, Msg: msg,
		Fix: "tokenize with the Python package tokenizers, and pack the ids"}
}

// build makes a tokenizer from the bytes of a file.
func build(raw []byte, name string, o Options) (*Tokenizer, error) {
	t := &Tokenizer{name: name}
	if err := t.parse(raw, o); err != nil {
		return nil, errs.Wrap("open tokenizer", name, err)
	}
	return t, nil
}

// parse fills t from the bytes of a file.
func (t *Tokenizer) parse(raw []byte, o Options) error {
	if at := badText(raw); at >= 0 {
		return corrupt("tokenizer.json", fmt.Sprintf("byte %d begins half a character", at))
	}
	var f file
	if err := decode("tokenizer.json", raw, &f, false); err != nil {
		return err
	}
	if f.Version != nil && *f.Version != "1.0" {
		return unsupported("version", fmt.Sprintf("the version is %.40q, expected \"1.0\"", *f.Version))
	}
	if isNull(f.Model) {
		return corrupt("tokenizer.json", `there is no "model"`)
	}
	forms, err := t.parseNormalizer(f.Normalizer)
	if err != nil {
		return err
	}
	if err := t.parsePreTokenizer(f.PreTokenizer); err != nil {
		return err
	}
	level := false // whether the pieces for the model come from a ByteLevel step
	var last *levelStep
	if n := len(t.steps); n > 0 {
		last, level = t.steps[n-1].(*levelStep)
	}
	count, bytesModel, err := t.parseModel(f.Model, level)
	if err != nil {
		return err
	}
	if level {
		last.raw = bytesModel
	}
	if err := t.addTokens(f.AddedTokens, count, o); err != nil {
		return err
	}
	for token, id := range t.ids {
		if id > maxID {
			return corrupt("model.vocab", fmt.Sprintf("the token %.80q has id %d, expected at most %d", token, id, maxID))
		}
		t.size = max(t.size, int(id)+1)
	}
	t.anyBytes = bytesModel && forms
	return nil
}

// isNull reports whether a part of the file is missing or null.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// deref returns the text of a pointer, or "".
func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// decode parses JSON into v. If strict is true, decode refuses keys that v does not have, because they may change ids.
func decode(part string, raw []byte, v any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("text follows the value")
	}
	var known *errs.Error
	if errors.As(err, &known) {
		return known
	}
	if err != nil {
		return &errs.Error{Kind: errs.Corrupt, Op: "read", Name: part, Err: err,
			Fix: "give a tokenizer.json file of the Python package tokenizers"}
	}
	return nil
}

// component returns the type of a part of the file, and refuses a part without one.
func component(part string, raw []byte) (string, error) {
	var c struct {
		Type *string `json:"type"`
	}
	if err := decode(part, raw, &c, false); err != nil {
		return "", err
	}
	if c.Type == nil {
		return "", unsupported(part, `there is no "type"`)
	}
	return *c.Type, nil
}

// badText returns the place of bytes that are not UTF-8, or of half a surrogate pair in an escape, or -1. The JSON
// package would replace both with another character.
func badText(raw []byte) int {
	if !utf8.Valid(raw) {
		for at := 0; ; {
			r, n := utf8.DecodeRune(raw[at:])
			if r == utf8.RuneError && n <= 1 {
				return at
			}
			at += n
		}
	}
	unit := func(at int) (v rune, ok bool) {
		if at+6 > len(raw) || raw[at] != '\\' || raw[at+1] != 'u' {
			return 0, false
		}
		for _, c := range raw[at+2 : at+6] {
			switch {
			case c >= '0' && c <= '9':
				v = v<<4 | rune(c-'0')
			case c|0x20 >= 'a' && c|0x20 <= 'f':
				v = v<<4 | rune(c|0x20-'a'+10)
			default:
				return 0, false
			}
		}
		return v, true
	}
	for at := 0; ; {
		n := bytes.IndexByte(raw[at:], '\\')
		if n < 0 {
			return -1
		}
		at += n
		v, ok := unit(at)
		switch low, pair := unit(at + 6); {
		case !ok || v < 0xD800 || v > 0xDFFF:
			at += 2 // the backslash and what it escapes
		case v < 0xDC00 && pair && low >= 0xDC00 && low <= 0xDFFF:
			at += 12
		default:
			return at
		}
		if at >= len(raw) {
			return -1
		}
	}
}
