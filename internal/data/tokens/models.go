// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// bpeFile is a model of type BPE in a file.
type bpeFile struct {
	Type         string            `json:"type"`
	Dropout      *float64          `json:"dropout"`
	UnkToken     *string           `json:"unk_token"`
	Prefix       *string           `json:"continuing_subword_prefix"`
	Suffix       *string           `json:"end_of_word_suffix"`
	FuseUnk      bool              `json:"fuse_unk"`
	ByteFallback bool              `json:"byte_fallback"`
	IgnoreMerges bool              `json:"ignore_merges"`
	Vocab        map[string]uint32 `json:"vocab"`
	Merges       []mergePair       `json:"merges"`
}

// mergePair is a merge: ["a", "b"], or "a b" in older files.
type mergePair [2]string

// UnmarshalJSON implements json.Unmarshaler.
func (p *mergePair) UnmarshalJSON(raw []byte) error {
	var text string
	if len(raw) > 0 && raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return errs.Wrap("read", "model.merges", err)
		}
		a, b, ok := strings.Cut(text, " ")
		if !ok || strings.Contains(b, " ") {
			return corrupt("model.merges", fmt.Sprintf("the merge %.80q is not two tokens with one space between", text))
		}
		*p = mergePair{a, b}
		return nil
	}
	var pair []string
	if err := json.Unmarshal(raw, &pair); err != nil {
		return errs.Wrap("read", "model.merges", err)
	}
	if len(pair) != 2 {
		return corrupt("model.merges", fmt.Sprintf("a merge has %d tokens, expected 2", len(pair)))
	}
	*p = mergePair{pair[0], pair[1]}
	return nil
}

// unigramFile is a model of type Unigram in a file.
type unigramFile struct {
	Type         string         `json:"type"`
	UnkID        *int64         `json:"unk_id"`
	Vocab        []unigramToken `json:"vocab"`
	ByteFallback bool           `json:"byte_fallback"`
}

// unigramToken is a token and the logarithm of its probability: ["the", -3.5].
type unigramToken struct {
	token string
	score float64
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *unigramToken) UnmarshalJSON(raw []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(raw, &pair); err != nil {
		return errs.Wrap("read", "model.vocab", err)
	}
	if len(pair) != 2 {
		return corrupt("model.vocab", fmt.Sprintf("an entry has %d values, expected a token and a score", len(pair)))
	}
	if err := json.Unmarshal(pair[0], &t.token); err != nil {
		return errs.Wrap("read", "model.vocab", err)
	}
	var number json.Number
	if err := json.Unmarshal(pair[1], &number); err != nil {
		return errs.Wrap("read", "model.vocab", err)
	}
	if number == "" || pair[1][0] == '"' {
		return corrupt("model.vocab", fmt.Sprintf("the score of %.80q is %.40s, expected a number", t.token, pair[1]))
	}
	var err error
	t.score, err = parseScore(string(number))
	return err
}

// wordPieceFile is a model of type WordPiece in a file.
type wordPieceFile struct {
	Type     string            `json:"type"`
	UnkToken string            `json:"unk_token"`
	Prefix   string            `json:"continuing_subword_prefix"`
	MaxChars int               `json:"max_input_chars_per_word"`
	Vocab    map[string]uint32 `json:"vocab"`
}

// wordLevelFile is a model of type WordLevel in a file.
type wordLevelFile struct {
	Type     string            `json:"type"`
	UnkToken string            `json:"unk_token"`
	Vocab    map[string]uint32 `json:"vocab"`
}

// parseModel makes the model, and returns the number of its tokens. The parameter level says whether the pieces come
// from ByteLevel. If the model takes these pieces as bytes, parseModel returns true.
func (t *Tokenizer) parseModel(raw json.RawMessage, level bool) (count int, inBytes bool, err error) {
	kind, err := modelType(raw)
	if err != nil {
		return 0, false, err
	}
	switch kind {
	case "BPE":
		var f bpeFile
		if err := decode("model", raw, &f, true); err != nil {
			return 0, false, err
		}
		inBytes = level && deref(f.Prefix) == "" && deref(f.Suffix) == "" && !f.ByteFallback
		t.model, err = newBPE(&f, inBytes)
		t.ids = f.Vocab
	case "Unigram":
		var f unigramFile
		if err := decode("model", raw, &f, true); err != nil {
			return 0, false, err
		}
		var m *unigram
		if m, err = newUnigram(&f); err == nil {
			t.model, t.ids = m, m.vocab
		}
		count = len(f.Vocab)
	case "WordPiece":
		f := wordPieceFile{MaxChars: -1}
		if err := decode("model", raw, &f, true); err != nil {
			return 0, false, err
		}
		if f.MaxChars < 0 {
			return 0, false, corrupt("model", `"max_input_chars_per_word" is missing or below 0`)
		}
		t.model, t.ids = newWordPiece(&f), f.Vocab
	case "WordLevel":
		var f wordLevelFile
		if err := decode("model", raw, &f, true); err != nil {
			return 0, false, err
		}
		t.model, t.ids = &wordLevel{vocab: f.Vocab, noToken: f.UnkToken}, f.Vocab
	default:
		return 0, false, unsupported("model", fmt.Sprintf("model type %.40q, expected BPE, Unigram, WordPiece or WordLevel",
			kind))
	}
	if err != nil {
		return 0, false, err
	}
	if len(t.ids) == 0 {
		return 0, false, corrupt("model.vocab", "the vocabulary is empty")
	}
	if kind != "Unigram" {
		count = len(t.ids)
	}
	// The added tokens go into a map of their own, because the model uses the map of the file.
	ids := make(map[string]uint32, len(t.ids))
	for token, id := range t.ids {
		ids[token] = id
	}
	t.ids = ids
	return count, inBytes, nil
}

// modelType returns the type of a model. Old files have no type; there the keys of the model tell its type.
func modelType(raw json.RawMessage) (string, error) {
	var keys map[string]json.RawMessage
	if err := decode("model", raw, &keys, false); err != nil {
		return "", err
	}
	if _, ok := keys["type"]; ok {
		return component("model", raw)
	}
	vocab := keys["vocab"]
	switch _, chars := keys["max_input_chars_per_word"]; {
	case len(vocab) > 0 && vocab[0] == '[':
		return "Unigram", nil
	case keys["merges"] != nil:
		return "BPE", nil
	case chars:
		return "WordPiece", nil
	}
	return "", unsupported("model", `there is no "type"`)
}
