// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// withModel returns a tokenizer.json file with a small vocabulary and other parts.
func withModel(parts string) string {
	return `{"version":"1.0",` + parts + `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`
}

func TestUnknownPartsAreRefused(t *testing.T) {
	nested := strings.Repeat(`{"type":"Sequence","normalizers":[`, 20) + strings.Repeat("]}", 20)
	split := func(regex string) string {
		return withModel(`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"` + regex +
			`"},"behavior":"Isolated","invert":false},`)
	}
	for _, c := range []struct {
		name, file string
		kind       errs.Kind
		says       string
	}{
		{"nothing", ``, errs.Corrupt, "EOF"},
		{"not JSON", `[1`, errs.Corrupt, "tokenizer.json"},
		{"not UTF-8", "{\"a\":\"\xff\"}", errs.Corrupt, "byte 6 begins half a character"},
		{"half a pair", `{"a":"\ud83d"}`, errs.Corrupt, "byte 6 begins half a character"},
		{"two values", withModel("") + "{}", errs.Corrupt, "text follows the value"},
		{"no model", `{}`, errs.Corrupt, `there is no "model"`},
		{"version", `{"version":"2.0","model":{}}`, errs.Unsupported, `the version is "2.0", expected "1.0"`},
		{"model type", `{"model":{"type":"Neural"}}`, errs.Unsupported, `model type "Neural"`},
		{"model without type", `{"model":{"vocab":{"a":1}}}`, errs.Unsupported, `there is no "type"`},
		{"empty vocabulary", `{"model":{"type":"BPE","vocab":{},"merges":[]}}`, errs.Corrupt, "vocabulary is empty"},
		{"unknown key", `{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"magic":1}}`, errs.Corrupt, `"magic"`},
		{"negative id", `{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, errs.Corrupt, "-1"},
		{"large id", `{"model":{"type":"BPE","vocab":{"a":4294967295},"merges":[]}}`, errs.Corrupt,
			"id 4294967295, expected at most"},
		{"merge of unknown", `{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`, errs.Corrupt,
			`needs the token "b"`},
		{"merge of three", `{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b c"]}}`, errs.Corrupt,
			`"a b c" is not two tokens`},
		{"merge of one", `{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`, errs.Corrupt, "1 tokens, expected 2"},
		{"dropout", `{"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}}`, errs.Unsupported, "dropout 0.1"},
		{"unknown id", `{"model":{"type":"Unigram","unk_id":7,"vocab":[["a",0]]}}`, errs.Corrupt, "id 7, expected 0 to 0"},
		{"score", `{"model":{"type":"Unigram","vocab":[["a","1"]]}}`, errs.Corrupt, `the score of "a" is "1"`},
		{"large score", `{"model":{"type":"Unigram","vocab":[["a",1e999]]}}`, errs.Corrupt, "too large"},
		{"word length", `{"model":{"type":"WordPiece","vocab":{"a":1}}}`, errs.Corrupt, "max_input_chars_per_word"},
		{"pre-tokenizer", withModel(`"pre_tokenizer":{"type":"UnicodeScripts"},`), errs.Unsupported,
			`pre_tokenizer type "UnicodeScripts"`},
		{"normalizer", withModel(`"normalizer":{"type":"Magic"},`), errs.Unsupported, `normalizer type "Magic"`},
		{"nested", withModel(`"normalizer":` + nested + `,`), errs.Unsupported, "more than 8 sequences inside each other"},
		{"lookbehind", split(`(?<=a)b`), errs.Unsupported, `"(?<=" at byte 0`},
		{"back reference", split(`(a)\\1`), errs.Unsupported, `at byte 3`},
		{"empty match", split(`a*`), errs.Unsupported, "matches the empty text"},
		{"property", split(`\\p{Emoji}`), errs.Unsupported, `the property "Emoji"`},
		{"behavior", withModel(`"pre_tokenizer":{"type":"Punctuation","behavior":"Sideways"},`), errs.Unsupported,
			`"Sideways"`},
		{"added id", withModel(`"added_tokens":[{"id":9,"content":"<s>"}],`), errs.Unsupported, `has id 9, but`},
		{"charsmap", withModel(`"normalizer":{"type":"Precompiled","precompiled_charsmap":"////fw=="},`), errs.Corrupt,
			"trie of"},
		{"begin", withModel(`"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Nmt"}]},
			"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first"},`), errs.Unsupported, `"first"`},
	} {
		tok, err := Read(strings.NewReader(c.file), "x.json", Options{})
		if tok != nil || !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), "x.json") || errs.FixOf(err) == "" {
			t.Errorf("%s: %v of kind %v, expected %q of kind %v with the name and a fix", c.name, err, errs.KindOf(err), c.says,
				c.kind)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none.json"), Options{}); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
}

func TestTextWithoutIDsIsRefused(t *testing.T) {
	unigram := `{"model":{"type":"Unigram","vocab":[["a",-1]]}}`
	for _, c := range []struct{ file, text, says string }{
		{unigram, "ab", `"b", which is not in the vocabulary`},
		{unigram, "a\xffa", "byte 1 of the text is 0xff"},
		{`{"model":{"type":"WordPiece","unk_token":"?","max_input_chars_per_word":9,"continuing_subword_prefix":"#","vocab":{"a":1}}}`,
			"b", `unknown token "?"`},
		{`{"model":{"type":"WordLevel","unk_token":"?","vocab":{"a":1}}}`, "b", `the word "b"`},
		{`{"model":{"type":"BPE","unk_token":"?","vocab":{"a":1},"merges":[]}}`, "b", `unknown token "?"`},
		{withModel(`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?:a+a+)+b"},"behavior":"Isolated","invert":false},`),
			strings.Repeat("a", 4000), "too many steps"},
	} {
		tok, err := Read(strings.NewReader(c.file), "x.json", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if ids, err := tok.Encode([]byte(c.text)); ids != nil || err == nil || !strings.Contains(err.Error(), c.says) ||
			errs.FixOf(err) == "" {
			t.Errorf("%.20q: %v, %v, expected %q and a fix", c.text, ids, err, c.says)
		}
	}
}

func TestID(t *testing.T) {
	tok := open(t, "testdata/llama3.json", Options{})
	for token, want := range map[string]uint32{"<|endoftext|>": 0, "<|eot_id|>": 701} {
		if id, ok := tok.ID(token); !ok || id != want {
			t.Errorf("%s: %d %v, expected %d", token, id, ok, want)
		}
	}
	if id, ok := tok.ID("no such token"); ok {
		t.Error(id)
	}
}

// decodeBytes returns the bytes that ids of a byte-level vocabulary stand for.
func decodeBytes(t *testing.T, tok *Tokenizer, ids []uint32) []byte {
	t.Helper()
	tokens := map[uint32]string{}
	for token, id := range tok.ids {
		tokens[id] = token
	}
	var out []byte
	for _, id := range ids {
		raw, ok := levelDecode(tokens[id])
		if !ok {
			t.Fatalf("id %d is %q", id, tokens[id])
		}
		out = append(out, raw...)
	}
	return out
}

// TestAnyBytesComeBack encodes random bytes and random UTF-8 with byte-level vocabularies, and decodes the ids.
func TestAnyBytesComeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, name := range []string{"gpt2", "llama3", "o200k", "deepseek", "starcoder", "bloom"} {
		tok := open(t, "testdata/"+name+".json", Options{SpecialAsText: true})
		for round := range 300 {
			text := make([]byte, rng.IntN(200))
			for i := range text {
				text[i] = byte(rng.Uint32())
			}
			if round%2 == 0 {
				text = []byte(strings.ToValidUTF8(string(text), "\u00e9 \u4e2d"))
			}
			if round%3 == 0 {
				text = bytes.Repeat(text, 4)
			}
			ids, err := tok.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := decodeBytes(t, tok, ids); !bytes.Equal(got, text) {
				t.Fatalf("%s: %q came back as %q", name, text, got)
			}
		}
	}
}

// TestLongAndShortMergesAgree compares the tokens that mergeLong and mergeShort make of the same word.
func TestLongAndShortMergesAgree(t *testing.T) {
	m, ok := open(t, "testdata/gpt2.json", Options{}).model.(*bpe)
	if !ok {
		t.Fatal("the model is not BPE")
	}
	rng := rand.New(rand.NewPCG(7, 8))
	var short, long mergeWork
	for range 2000 {
		short.symbols, long.symbols = short.symbols[:0], long.symbols[:0]
		for range 1 + rng.IntN(shortWord) {
			id := uint32(m.bytes[" etaoinshrd"[rng.IntN(11)]])
			short.add(id)
			long.add(id)
		}
		a, b := short.mergeShort(m, nil), long.mergeLong(m, nil)
		if len(a) != len(b) || string(decodeIDs(a)) != string(decodeIDs(b)) {
			t.Fatalf("%v and %v", a, b)
		}
	}
}

// decodeIDs returns ids as text that can be compared.
func decodeIDs(ids []uint32) []rune {
	out := make([]rune, len(ids))
	for i, id := range ids {
		out[i] = rune(id)
	}
	return out
}

// FuzzRead reads hostile files, and encodes a text with those that are accepted.
func FuzzRead(f *testing.F) {
	for _, parts := range []string{
		`"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"use_regex":true},`,
		`"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first"},"normalizer":{"type":"NFKC"},`,
		`"normalizer":{"type":"BertNormalizer","clean_text":true,"lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},`,
		`"added_tokens":[{"id":3,"content":"<s>","lstrip":true,"rstrip":true,"single_word":true,"normalized":true}],`,
		`"normalizer":{"type":"Replace","pattern":{"Regex":"(?i:a|b)++ {2,}?x"},"content":"b"},`,
		`"normalizer":{"type":"Precompiled","precompiled_charsmap":"CAAAAAEAAAABAAAAYQA="},`,
		`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"Punctuation"},{"type":"Whitespace"}]},`,
	} {
		f.Add([]byte(withModel(parts)), []byte("Hello <s> w\u00f6rld 12\n"))
	}
	for _, model := range []string{
		`{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["?",0.0],["a",-1.5],["ab",-2e1]]}`,
		`{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"#","max_input_chars_per_word":9,"vocab":{"?":0,"#a":1}}`,
		`{"type":"BPE","unk_token":"?","end_of_word_suffix":"~","byte_fallback":true,"ignore_merges":true,"vocab":{"?":0},"merges":[]}`,
	} {
		f.Add([]byte(`{"model":`+model+`}`), []byte("ab\xff"))
	}
	f.Add(
		[]byte(
			withModel(
				`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[^a-b]+|\\s?$"},"behavior":"Removed","invert":true},`)),
		[]byte("ab ab"))
	f.Fuzz(func(t *testing.T, raw, text []byte) {
		if len(raw) > 1<<16 || len(text) > 1<<10 {
			return
		}
		tok, err := Read(bytes.NewReader(raw), "fuzz", Options{})
		if err != nil {
			if errs.FixOf(err) == "" {
				t.Fatalf("no fix: %v", err)
			}
			return
		}
		ids, err := tok.Encode(text)
		if err == nil && len(text) == 0 && len(ids) > 0 {
			t.Fatalf("the empty text has ids %v", ids)
		}
		for _, id := range ids {
			if int(id) >= tok.Size() {
				t.Fatalf("id %d, expected below %d", id, tok.Size())
			}
		}
	})
}
