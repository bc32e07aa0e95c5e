// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/data/tokens/charset"
	"github.com/nebulaio/nebulaio/internal/data/tokens/pattern"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Limits of the sequences in a file.
const (
	maxParts  = 16 // normalizers or pre-tokenizers
	maxNested = 8  // sequences inside sequences
)

// gpt2 is the pattern of ByteLevel.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// patternFile is a pattern in a file: {"String": "x"} or {"Regex": "x"}.
type patternFile struct {
	String *string
	Regex  *string
}

// compile returns the pattern.
func (f patternFile) compile(part string) (*pattern.Pattern, error) {
	var p *pattern.Pattern
	var err error
	switch {
	case f.String != nil && f.Regex == nil:
		p, err = pattern.Literal(*f.String)
	case f.Regex != nil && f.String == nil:
		p, err = pattern.Compile(*f.Regex)
	default:
		return nil, corrupt(part, `the pattern is neither {"String": ...} nor {"Regex": ...}`)
	}
	if err != nil {
		return nil, errs.Wrap("read", part, err)
	}
	return p, nil
}

// parseBehavior returns the behavior of a name in a file.
func parseBehavior(name string) (behavior, error) {
	switch name {
	case "Isolated":
		return isolated, nil
	case "Removed":
		return removed, nil
	case "MergedWithPrevious":
		return previous, nil
	case "MergedWithNext":
		return following, nil
	case "Contiguous":
		return contiguous, nil
	}
	return 0, unsupported("pre_tokenizer", fmt.Sprintf("behavior %.40q", name))
}

// sequence returns the members of a Sequence in a file, or the one part that is not a Sequence.
func sequence(part, key string, raw json.RawMessage, depth int) ([]json.RawMessage, error) {
	if isNull(raw) {
		return nil, nil
	}
	kind, err := component(part, raw)
	if err != nil || kind != "Sequence" {
		return []json.RawMessage{raw}, err
	}
	if depth >= maxNested {
		return nil, unsupported(part, fmt.Sprintf("more than %d sequences inside each other", maxNested))
	}
	var s map[string]json.RawMessage
	if err := decode(part, raw, &s, true); err != nil {
		return nil, err
	}
	var members, all []json.RawMessage
	if err := decode(part, s[key], &members, true); err != nil {
		return nil, err
	}
	for _, m := range members {
		inner, err := sequence(part, key, m, depth+1)
		if err != nil {
			return nil, err
		}
		if all = append(all, inner...); len(all) > maxParts {
			return nil, unsupported(part, fmt.Sprintf("a sequence of more than %d parts", maxParts))
		}
	}
	return all, nil
}

// parsePreTokenizer makes the steps of the file.
func (t *Tokenizer) parsePreTokenizer(raw json.RawMessage) error {
	members, err := sequence("pre_tokenizer", "pretokenizers", raw, 0)
	if err != nil {
		return err
	}
	leveled := false
	for _, m := range members {
		kind, err := component("pre_tokenizer", m)
		if err != nil {
			return err
		}
		steps, err := parseStep(kind, m)
		if err != nil {
			return err
		}
		if meta, ok := steps[0].(*metaStep); ok && meta.scheme == onlyFirst && (leveled || t.losesBegin) {
			return unsupported("pre_tokenizer", `Metaspace with prepend_scheme "first" after ByteLevel, or after a normalizer `+
				`that removes characters which another normalizer made`)
		}
		leveled = leveled || kind == "ByteLevel"
		t.steps = append(t.steps, steps...)
	}
	return nil
}

// parseStep makes the steps of one pre-tokenizer.
func parseStep(kind string, raw json.RawMessage) ([]step, error) {
	switch kind {
	case "ByteLevel":
		return parseLevel(raw)
	case "Metaspace":
		return parseMetaspace(raw)
	case "Split":
		return parseSplit(raw)
	case "Digits":
		var f struct {
			Type       string
			Individual bool `json:"individual_digits"`
		}
		s := &splitStep{pattern: pattern.Character(charset.Numeric()), behavior: contiguous}
		err := decode("pre_tokenizer", raw, &f, true)
		if f.Individual {
			s.behavior = isolated
		}
		return []step{s}, err
	case "Punctuation":
		f := struct{ Type, Behavior string }{Behavior: "Isolated"}
		if err := decode("pre_tokenizer", raw, &f, true); err != nil {
			return nil, err
		}
		b, err := parseBehavior(f.Behavior)
		return []step{&splitStep{pattern: pattern.Character(charset.Punctuation()), behavior: b}}, err
	case "WhitespaceSplit":
		return []step{&splitStep{pattern: pattern.Character(charset.Space()), behavior: removed}}, nil
	case "BertPreTokenizer":
		return []step{&splitStep{pattern: pattern.Character(charset.Space()), behavior: removed},
			&splitStep{pattern: pattern.Character(charset.Punctuation()), behavior: isolated}}, nil
	case "Whitespace":
		word := charset.PlainWord()
		runs := pattern.Runs(word, word.Union(charset.Space()).Negate())
		return []step{&splitStep{pattern: runs, behavior: removed, invert: true}}, nil
	}
	return nil, unsupported("pre_tokenizer", fmt.Sprintf("pre_tokenizer type %.40q", kind))
}

// parseLevel makes the step of ByteLevel.
func parseLevel(raw json.RawMessage) ([]step, error) {
	f := struct {
		Type  string
		Space *bool `json:"add_prefix_space"`
		Trim  bool  `json:"trim_offsets"`
		Regex *bool `json:"use_regex"`
	}{}
	if err := decode("pre_tokenizer", raw, &f, true); err != nil {
		return nil, err
	}
	if f.Space == nil {
		return nil, corrupt("pre_tokenizer", `ByteLevel has no "add_prefix_space"`)
	}
	s := &levelStep{space: *f.Space, runes: levelRunes()}
	if f.Regex == nil || *f.Regex {
		p, err := pattern.Compile(gpt2)
		if err != nil {
			return nil, errs.Wrap("read", "pre_tokenizer", err)
		}
		s.pattern = p
	}
	return []step{s}, nil
}

// parseMetaspace makes the step of Metaspace.
func parseMetaspace(raw json.RawMessage) ([]step, error) {
	f := struct {
		Type        string
		Replacement string
		Prefix      *bool  `json:"add_prefix_space"` // of older files
		Scheme      string `json:"prepend_scheme"`
		Split       *bool
		Text        *string `json:"str_rep"` // of older files
	}{Scheme: "always"}
	if err := decode("pre_tokenizer", raw, &f, true); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(f.Replacement) != 1 {
		return nil, corrupt("pre_tokenizer", fmt.Sprintf("the replacement of Metaspace is %.40q, expected one character",
			f.Replacement))
	}
	s := &metaStep{mark: []byte(f.Replacement), cut: f.Split == nil || *f.Split}
	switch f.Scheme {
	case "always":
		s.scheme = always
	case "first":
		s.scheme = onlyFirst
	case "never":
		s.scheme = never
	default:
		return nil, unsupported("pre_tokenizer", fmt.Sprintf("Metaspace with prepend_scheme %.40q", f.Scheme))
	}
	if f.Prefix != nil && !*f.Prefix && s.scheme != never {
		return nil, corrupt("pre_tokenizer", fmt.Sprintf("Metaspace has add_prefix_space false and prepend_scheme %q",
			f.Scheme))
	}
	return []step{s}, nil
}

// parseSplit makes the step of Split.
func parseSplit(raw json.RawMessage) ([]step, error) {
	var f struct {
		Type     string
		Pattern  patternFile
		Behavior string
		Invert   bool
	}
	if err := decode("pre_tokenizer", raw, &f, true); err != nil {
		return nil, err
	}
	p, err := f.Pattern.compile("pre_tokenizer")
	if err != nil {
		return nil, err
	}
	b, err := parseBehavior(f.Behavior)
	return []step{&splitStep{pattern: p, behavior: b, invert: f.Invert}}, err
}
