// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// golden is the folder of the test vectors. The script testdata/make.py makes larger ones for another folder.
var golden = flag.String("golden", "testdata", "folder with tokenizers, texts and ids of testdata/make.py")

// vectors are the ids that the reference gives to the texts.
type vectors struct {
	Size  int
	IDs   [][]uint32
	Plain map[string][]uint32 // of texts whose ids change if special tokens are plain text
}

// readJSON reads a file of the test vectors.
func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// tokenizers returns the tokenizer.json files of the test vectors, by name.
func tokenizers(t testing.TB) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(*golden, "*.ids"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%d files in %s, %v", len(found), *golden, err)
	}
	files := map[string]string{}
	for _, path := range found {
		path = strings.TrimSuffix(path, ".ids")
		files[filepath.Base(path)] = path + ".json"
	}
	return files
}

// open opens a tokenizer of the test vectors.
func open(t testing.TB, path string, o Options) *Tokenizer {
	t.Helper()
	tok, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestGolden compares ids with those of the Python package tokenizers, from several goroutines at once.
func TestGolden(t *testing.T) {
	var texts []string
	readJSON(t, filepath.Join(*golden, "texts.json"), &texts)
	for name, path := range tokenizers(t) {
		t.Run(name, func(t *testing.T) {
			var want vectors
			readJSON(t, strings.TrimSuffix(path, ".json")+".ids", &want)
			tok, plain := open(t, path, Options{}), open(t, path, Options{SpecialAsText: true})
			if tok.Size() != want.Size || len(want.IDs) != len(texts) {
				t.Errorf("size %d, expected %d; %d texts, expected %d", tok.Size(), want.Size, len(texts), len(want.IDs))
			}
			var group sync.WaitGroup
			for g := range 4 {
				group.Go(func() {
					for i := g % 2; i < len(texts); i += 2 {
						compare(t, tok, texts[i], want.IDs[i])
						expected, differs := want.Plain[strconv.Itoa(i)]
						if !differs {
							expected = want.IDs[i]
						}
						compare(t, plain, texts[i], expected)
					}
				})
			}
			group.Wait()
		})
	}
}

// compare encodes a text and reports ids other than want.
func compare(t *testing.T, tok *Tokenizer, text string, want []uint32) {
	t.Helper()
	got, err := tok.Encode([]byte(text))
	if err != nil {
		t.Errorf("%.200q: %v", text, err)
		return
	}
	if slices.Equal(got, want) {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	t.Errorf("%.300q (as text %t): ids differ from number %d on: %v, expected %v", text, tok.raw != nil && tok.raw.asText,
		at, got[at:min(at+12, len(got))], want[at:min(at+12, len(want))])
}
