// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/npy"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// letters encodes each byte of a text as a token, and refuses texts with a NUL.
type letters struct{ size int }

func (l letters) Encode(text []byte) ([]uint32, error) {
	var ids []uint32
	for _, b := range text {
		if b == 0 {
			return nil, errors.New("a NUL")
		}
		ids = append(ids, uint32(b)+uint32(l.size)-256)
	}
	return ids, nil
}

func (l letters) VocabularySize() int { return l.size }
func (l letters) Identity() string    { return fmt.Sprint("letters ", l.size) }

// array returns a .npy file.
func array(t *testing.T, dtype format.DType, shape []int64, tokens ...int64) []byte {
	t.Helper()
	b, err := npy.Header(dtype, shape)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range tokens {
		b = appendToken(b, dtype, v)
	}
	return b
}

// documents returns the documents of a pack of tokens.
func documents(t *testing.T, dir string, dtype format.DType) [][]int64 {
	t.Helper()
	in, err := OpenPack(t.Context(), NewFolder(dir))
	if err != nil {
		t.Fatal(err)
	}
	var all [][]int64
	for _, table := range in.Tables {
		content := read(t, dir, false)[filepath.Base(table.File())]
		for i := range table.Len() {
			e, _ := table.Part(i, 0)
			doc := []int64{}
			for b := content[e.Offset : e.Offset+e.Size]; len(b) > 0; b = b[dtype.Bits()/8:] {
				v, _ := tokenAt(b, dtype)
				doc = append(doc, v)
			}
			all = append(all, doc)
		}
	}
	return all
}

// TestTokensOfArrays packs .npy files of several types, and unpacks them.
func TestTokensOfArrays(t *testing.T) {
	src, out, back := t.TempDir(), fresh(t), fresh(t)
	files := map[string][]byte{
		"a.npy":   array(t, format.U16, []int64{3}, 1, 2, 65535),
		"b.npy":   array(t, format.I64, []int64{2}, 7, 8),
		"c.d.npy": array(t, format.U32, []int64{2, 2}, 10, 11, 12, 13),
		"e.npy":   array(t, format.U16, []int64{0}),
	}
	write(t, src, files)
	r := pack(t, src, out, Options{Format: Bin, EOD: 99, HasEOD: true})
	want := [][]int64{{1, 2, 65535, 99}, {7, 8, 99}, {10, 11, 99}, {12, 13, 99}}
	if got := documents(t, out, format.U16); fmt.Sprint(got) != fmt.Sprint(want) || r.Empty != 1 || r.Samples != 4 {
		t.Errorf("%v, expected %v; %+v", got, want, r)
	}
	if u := unpack(t, out, back); u.Files != 4 {
		t.Errorf("%+v", u)
	}
	if got := read(t, back, false)["000000000000.npy"]; !bytes.Equal(got,
		array(t, format.U16, []int64{4}, 1, 2, 65535, 99)) {
		t.Errorf("the first document is %q", got)
	}
}

// TestTokensOfRawFiles packs .bin files, whose type a flag has to say.
func TestTokensOfRawFiles(t *testing.T) {
	src, out := t.TempDir(), fresh(t)
	write(t, src, map[string][]byte{"a.bin": {1, 0, 0, 0, 2, 0, 0, 0}, "b.bin": {255, 255, 255, 127}})
	_, err := Run(t.Context(), NewFolder(src), NewFolder(out), Options{Format: Bin})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "--dtype") {
		t.Errorf("no type: %v", err)
	}
	pack(t, src, out, Options{Format: Bin, DType: format.I32})
	if got := documents(t, out, format.I32); fmt.Sprint(got) != "[[1 2] [2147483647]]" {
		t.Error(got)
	}
	_, err = Run(t.Context(), NewFolder(src), NewFolder(fresh(t)), Options{Format: Bin, DType: format.I64})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "b.bin") {
		t.Errorf("half a token: %v", err)
	}
}

// TestTokensOutOfRange refuses tokens that the type does not have.
func TestTokensOutOfRange(t *testing.T) {
	for name, content := range map[string][]byte{
		"negative.npy": array(t, format.I32, []int64{2}, 5, -1), "large.npy": array(t, format.I32, []int64{2}, 5, 65536),
		"huge.npy": array(t, format.U64, []int64{1}, -1), "float.npy": array(t, format.F32, []int64{1}, 0),
		"deep.npy": array(t, format.U16, []int64{1, 1, 1}, 0), "cut.npy": []byte("\x93NUMPY"), "image.jpg": {1},
	} {
		src, out := t.TempDir(), fresh(t)
		write(t, src, map[string][]byte{name: content, "good.npy": array(t, format.U16, []int64{1}, 3)})
		_, err := Run(t.Context(), NewFolder(src), NewFolder(out), Options{Format: Bin, DType: format.U16})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		r := pack(t, src, out, Options{Format: Bin, DType: format.U16, SkipBad: true})
		if r.BadCount != 1 || r.Bad[0].Name != name || fmt.Sprint(documents(t, out, format.U16)) != "[[3]]" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestText encodes .txt files and the lines of .jsonl files.
func TestText(t *testing.T) {
	src, out := t.TempDir(), fresh(t)
	write(t, src, map[string][]byte{"a.txt": []byte("ab"), "b.txt": {},
		"c.jsonl": []byte("{\"body\": \"cd\", \"id\": 3}\n\n{\"body\": \"\"}\n{\"body\": \"é\"}")})
	r := pack(t, src, out, Options{Format: Bin, Encoder: letters{256}, TextField: "body", EOD: 0, HasEOD: true})
	if got := documents(t, out, format.U16); fmt.Sprint(got) != "[[97 98 0] [99 100 0] [195 169 0]]" || r.Empty != 2 {
		t.Errorf("%v, %+v", got, r)
	}
	write(t, src, map[string][]byte{"d.jsonl": []byte(
		"{\"body\": \"x\"}\n{\"other\": 1}\nno\n{\"body\": \"y\"}\n{\"body\": \"\\u0000\"}\n{\"body\": 3}\n")})
	_, err := Run(t.Context(), NewFolder(src), NewFolder(fresh(t)), Options{Format: Bin, Encoder: letters{70000},
		TextField: "body"})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "d.jsonl") ||
		!strings.Contains(err.Error(), "byte 14") {
		t.Errorf("a bad line: %v", err)
	}
	out = fresh(t)
	r = pack(t, src, out, Options{Format: Bin, Encoder: letters{70000}, TextField: "body", SkipBad: true})
	if r.BadCount != 4 || r.Samples != 5 || documents(t, out, format.I32)[4][0] != 'y'+70000-256 {
		t.Errorf("%+v", r)
	}
	_, err = Run(t.Context(), NewFolder(src), NewFolder(fresh(t)), Options{Format: Bin})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "--tokenizer") {
		t.Errorf("no tokenizer: %v", err)
	}
}

// TestLinesOfPieces finds each line of a file once, whatever the pieces are.
func TestLinesOfPieces(t *testing.T) {
	src := t.TempDir()
	text := []byte("one\n\ntwo two two two two two\nthree\n\n\nfour")
	write(t, src, map[string][]byte{"a.jsonl": text})
	r := NewFolder(src).NewReader()
	defer r.Close()
	e := Entry{Name: "a.jsonl", Size: int64(len(text))}
	for size := int64(1); size <= e.Size; size++ {
		var all []byte
		for from := int64(0); from < e.Size; from += size {
			lines, skipped, err := readLines(t.Context(), r, e, from, min(size, e.Size-from), filepath.Base)
			if err != nil {
				t.Fatal(err)
			}
			if len(lines) > 0 && !bytes.HasPrefix(text[from+skipped:], lines) {
				t.Fatalf("pieces of %d from %d: %q is not at %d", size, from, lines, from+skipped)
			}
			all = append(all, lines...)
		}
		if !bytes.Equal(all, text) {
			t.Fatalf("pieces of %d: %q", size, all)
		}
	}
}

// TestLongFilesOfLines packs a .jsonl file of several pieces and shards.
func TestLongFilesOfLines(t *testing.T) {
	src, out := t.TempDir(), fresh(t)
	var b bytes.Buffer
	const lines = 3000
	for i := range lines {
		line, _ := json.Marshal(map[string]string{"text": fmt.Sprint(i, strings.Repeat("x", i%7000))})
		b.Write(append(line, '\n'))
	}
	write(t, src, map[string][]byte{"a.jsonl": b.Bytes()})
	r := pack(t, src, out, Options{Format: Bin, Encoder: letters{256}, ShardSize: 4 << 20})
	if r.Samples != lines || r.Shards < 2 {
		t.Fatalf("%+v", r)
	}
	for i, d := range documents(t, out, format.U16) {
		var text []byte
		for _, v := range d {
			text = append(text, byte(v))
		}
		if want := fmt.Sprint(i, strings.Repeat("x", i%7000)); string(text) != want {
			t.Fatalf("document %d is %.40q", i, text)
		}
	}
}

func TestOptionsThatContradictAreRefused(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string][]byte{"a.npy": array(t, format.U16, []int64{1}, 3)})
	for want, o := range map[string]Options{
		"the format is \"zip\"":                {Format: "zip"},
		"the shard size is 5 bytes":            {Format: Tar, ShardSize: 5},
		"expected 4096 to 4294967295":          {Format: MDS, ShardSize: 1 << 32},
		"cannot be aligned":                    {Format: MDS, Aligned: true},
		"has no encodings":                     {Format: Tar, Encodings: map[string]string{"a": "str"}},
		"\"strange\", which is not known":      {Format: MDS, Encodings: map[string]string{"a": "strange"}},
		"has no tokens":                        {Format: Tar, DType: format.U16},
		"no tokenizer":                         {Format: Bin, TextField: "body"},
		"the type of tokens is \"F32\"":        {Format: Bin, DType: format.F32},
		"the vocabulary has 70000":             {Format: Bin, DType: format.U16, Encoder: letters{70000}},
		"the end-of-document token is 65536":   {Format: Bin, DType: format.U16, EOD: 65536, HasEOD: true},
		"the end-of-document token is 4294967": {Format: Bin, EOD: 4294967295, HasEOD: true},
	} {
		out := fresh(t)
		_, err := Run(t.Context(), NewFolder(src), NewFolder(out), o)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) || errs.FixOf(err) == "" {
			t.Errorf("%v, expected %s", err, want)
		}
		if files, _, _ := NewFolder(out).List(t.Context()); len(files) > 0 {
			t.Errorf("%s left files", want)
		}
	}
}

// FuzzExample decodes arbitrary records, and encodes what was decoded.
func FuzzExample(f *testing.F) {
	f.Add(appendExample(nil, []feature{{keyColumn, []byte("a/b")}, {"jpg", bytes.Repeat([]byte{7}, 300)}, {"cls", nil}}))
	f.Add([]byte{fieldOne, 0})
	f.Add(binary.AppendUvarint([]byte{fieldOne}, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		features, ok := parseExample(b)
		if !ok {
			return
		}
		again := appendExample(nil, features)
		back, ok := parseExample(again)
		if !ok || !slices.EqualFunc(features, back, func(a, b feature) bool {
			return a.name == b.name && bytes.Equal(a.value, b.value)
		}) {
			t.Fatalf("%q became %q", b, again)
		}
		if len(again) > len(b) {
			t.Fatalf("%d bytes became %d", len(b), len(again))
		}
	})
}

func TestExampleSize(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 300, 1 << 14, 1 << 21} {
		got := exampleSize("some/key", []source{{Entry{Size: int64(n)}, 0, "jpg"}})
		want := len(appendExample(nil, []feature{{keyColumn, []byte("some/key")}, {"jpg", make([]byte, n)}}))
		if got != int64(want) {
			t.Errorf("%d: %d, expected %d", n, got, want)
		}
	}
}
