// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/nebulaio/nebulaio/internal/data/tokens/charset"
	"github.com/nebulaio/nebulaio/internal/data/tokens/pattern"
)

// normalizer changes a text before it is cut. A normalizer returns the text itself if nothing changes, and never writes
// to it. The parameter first says whether text begins the whole text. The second result is false if the normalizer
// removed the begin of the text.
type normalizer func(text []byte, first bool) ([]byte, bool, error)

// parseNormalizer makes the normalizers of the file. It reports whether they keep bytes that are not UTF-8.
func (t *Tokenizer) parseNormalizer(raw json.RawMessage) (keepsBytes bool, err error) {
	members, err := sequence("normalizer", "normalizers", raw, 0)
	if err != nil {
		return false, err
	}
	keepsBytes = true
	changed := false // whether a normalizer may make several characters of one
	for _, m := range members {
		kind, err := component("normalizer", m)
		if err != nil {
			return false, err
		}
		n, err := parseOneNormalizer(kind, m)
		if err != nil {
			return false, err
		}
		removes, err := removesBegin(kind, m)
		if err != nil {
			return false, err
		}
		t.losesBegin = t.losesBegin || removes && changed || kind == "BertNormalizer"
		changed = changed || kind != "Nmt" && kind != "Strip" && kind != "StripAccents"
		keepsBytes = keepsBytes && (kind == "NFC" || kind == "NFD" || kind == "NFKC" || kind == "NFKD")
		t.normalizer = append(t.normalizer, n)
	}
	return keepsBytes, nil
}

// removesBegin reports whether a normalizer may remove the first character of a text.
func removesBegin(kind string, raw json.RawMessage) (bool, error) {
	var f struct {
		Left    bool   `json:"strip_left"`
		Content string `json:"content"`
	}
	switch kind {
	case "Nmt", "StripAccents", "BertNormalizer":
		return true, nil
	case "Strip":
		err := decode("normalizer", raw, &f, false)
		return f.Left, err
	case "Replace":
		err := decode("normalizer", raw, &f, false)
		return f.Content == "", err
	}
	return false, nil
}

// parseOneNormalizer makes one normalizer.
func parseOneNormalizer(kind string, raw json.RawMessage) (normalizer, error) {
	switch kind {
	case "NFC":
		return formNormalizer(norm.NFC), nil
	case "NFD":
		return formNormalizer(norm.NFD), nil
	case "NFKC":
		return formNormalizer(norm.NFKC), nil
	case "NFKD":
		return formNormalizer(norm.NFKD), nil
	case "Lowercase":
		return lowercase, nil
	case "StripAccents":
		return filter(charset.Combining()), nil
	case "Nmt":
		return nmt, nil
	case "ByteLevel":
		runes := levelRunes()
		return func(text []byte, first bool) ([]byte, bool, error) {
			return levelEncode(make([]byte, 0, 2*len(text)), text, &runes), first, nil
		}, nil
	case "Prepend":
		var f struct{ Type, Prepend string }
		err := decode("normalizer", raw, &f, true)
		return func(text []byte, first bool) ([]byte, bool, error) {
			if len(text) == 0 || f.Prepend == "" {
				return text, first, nil
			}
			return append([]byte(f.Prepend), text...), first, nil
		}, err
	case "Strip":
		var f struct {
			Type  string
			Left  bool `json:"strip_left"`
			Right bool `json:"strip_right"`
		}
		err := decode("normalizer", raw, &f, true)
		return strip(f.Left, f.Right), err
	case "Replace":
		return parseReplace(raw)
	case "BertNormalizer":
		return parseBert(raw)
	case "Precompiled":
		return parsePrecompiled(raw)
	}
	return nil, unsupported("normalizer", fmt.Sprintf("normalizer type %.40q", kind))
}

// mapped returns the text with each character changed by f, which appends the new character or none.
func mapped(text []byte, f func(out []byte, r rune) []byte) []byte {
	out := make([]byte, 0, len(text)+8)
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		out = f(out, r)
		i += n
	}
	return out
}

// lowercase changes letters to lower case.
func lowercase(text []byte, first bool) ([]byte, bool, error) {
	return mapped(text, charset.AppendLower), first, nil
}

// filter removes the characters of a set.
func filter(set *charset.Set) normalizer {
	return func(text []byte, first bool) ([]byte, bool, error) {
		if r, _ := utf8.DecodeRune(text); len(text) > 0 && set.Has(r) {
			first = false
		}
		return mapped(text, func(out []byte, r rune) []byte {
			if set.Has(r) {
				return out
			}
			return utf8.AppendRune(out, r)
		}), first, nil
	}
}

// nmt cleans control characters and spaces as SentencePiece's rule nmt does.
func nmt(text []byte, first bool) ([]byte, bool, error) {
	remove := func(r rune) bool {
		return r >= 1 && r <= 8 || r == 0xB || r >= 0xE && r <= 0x1F || r == 0x7F || r == 0x8F || r == 0x9F
	}
	if r, _ := utf8.DecodeRune(text); len(text) > 0 && remove(r) {
		first = false
	}
	return mapped(text, func(out []byte, r rune) []byte {
		switch {
		case remove(r):
			return out
		case r == '\t' || r == '\n' || r == '\f' || r == '\r' || r == 0x1680 || r >= 0x200B && r <= 0x200F || r == 0x2028 ||
			r == 0x2029 || r == 0x2581 || r == 0xFEFF || r == 0xFFFD:
			return append(out, ' ')
		}
		return utf8.AppendRune(out, r)
	}), first, nil
}

// strip removes white space at the begin, the end or both.
func strip(left, right bool) normalizer {
	return func(text []byte, first bool) ([]byte, bool, error) {
		if left {
			n := leadingSpace(text)
			text, first = text[n:], first && n == 0
		}
		if right {
			text = trimRight(text)
		}
		return text, first, nil
	}
}

// parseReplace makes the normalizer Replace.
func parseReplace(raw json.RawMessage) (normalizer, error) {
	var f struct {
		Type    string
		Pattern patternFile
		Content string
	}
	if err := decode("normalizer", raw, &f, true); err != nil {
		return nil, err
	}
	p, err := f.Pattern.compile("normalizer")
	if err != nil {
		return nil, err
	}
	if f.Pattern.String != nil {
		from, to := []byte(*f.Pattern.String), []byte(f.Content)
		return func(text []byte, first bool) ([]byte, bool, error) {
			if !bytes.Contains(text, from) {
				return text, first, nil
			}
			return bytes.ReplaceAll(text, from, to), first && (len(to) > 0 || !bytes.HasPrefix(text, from)), nil
		}, nil
	}
	return func(text []byte, first bool) ([]byte, bool, error) {
		var m pattern.Matcher
		m.Reset(p, text)
		var out []byte
		at := 0
		for at < len(text) {
			start, end, err := m.Next(at)
			if err != nil {
				return nil, false, err
			}
			if start < 0 {
				break
			}
			first = first && (start > 0 || f.Content != "")
			out = append(append(out, text[at:start]...), f.Content...)
			at = end
		}
		if at == 0 {
			return text, first, nil
		}
		return append(out, text[at:]...), first, nil
	}, nil
}

// parseBert makes the normalizer of BERT.
func parseBert(raw json.RawMessage) (normalizer, error) {
	var f struct {
		Type    string
		Clean   bool  `json:"clean_text"`
		Chinese bool  `json:"handle_chinese_chars"`
		Accents *bool `json:"strip_accents"`
		Lower   bool  `json:"lowercase"`
	}
	if err := decode("normalizer", raw, &f, true); err != nil {
		return nil, err
	}
	var list []normalizer
	if f.Clean {
		list = append(list, filter(charset.Control()), func(text []byte, first bool) ([]byte, bool, error) {
			return mapped(text, func(out []byte, r rune) []byte {
				if charset.IsSpace(r) {
					r = ' '
				}
				return utf8.AppendRune(out, r)
			}), first, nil
		})
	}
	if f.Chinese {
		list = append(list, func(text []byte, first bool) ([]byte, bool, error) {
			return mapped(text, func(out []byte, r rune) []byte {
				if isChinese(r) {
					return append(utf8.AppendRune(append(out, ' '), r), ' ')
				}
				return utf8.AppendRune(out, r)
			}), first, nil
		})
	}
	if f.Accents != nil && *f.Accents || f.Accents == nil && f.Lower {
		list = append(list, formNormalizer(norm.NFD), filter(charset.Nonspacing()))
	}
	if f.Lower {
		list = append(list, lowercase)
	}
	return func(text []byte, first bool) ([]byte, bool, error) {
		var err error
		for _, n := range list {
			if text, first, err = n(text, first); err != nil {
				return nil, false, err
			}
		}
		return text, first, nil
	}, nil
}

// isChinese reports whether BERT puts spaces around r.
func isChinese(r rune) bool {
	return r >= 0x3400 && (r <= 0x4DBF || r >= 0x4E00 && r <= 0x9FFF || r >= 0xF900 && r <= 0xFAFF ||
		r >= 0x20000 && r <= 0x2A6DF || r >= 0x2A700 && r <= 0x2B81F || r >= 0x2B920 && r <= 0x2CEAF ||
		r >= 0x2F800 && r <= 0x2FA1F)
}
