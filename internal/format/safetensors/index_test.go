// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/test/effort"
)

func TestParseIndex(t *testing.T) {
	two := map[string]string{"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}
	for _, c := range []struct {
		text    string
		total   int64
		weights map[string]string
	}{
		{`{"metadata":{"total_size":42},"weight_map":{"b":"m-2.safetensors","a":"m-1.safetensors","c":"m-1.safetensors"}}`,
			42, two},
		{"{\n  \"weight_map\": {\"a\": \"m-1.safetensors\",\n \"b\": \"m-2.safetensors\", \"c\":\"m-1.safetensors\"},\n " +
			"\"metadata\": {\"total_size\": 1.5e3, \"by\": \"x\"}}\n", 0, two},
		{`{"weight_map":{"\u0061":"m-1.safetensors","b":"m-2.safe\u0074ensors","c":"m-1.safetensors"},"extra":[1,{"x":null}]}`, 0, two},
		{`{"metadata":null,"weight_map":{}}`, 0, map[string]string{}},
	} {
		text := []byte(c.text)
		ix, err := ParseIndex(text, "dir/x.json")
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if string(text) != c.text {
			t.Errorf("the text was changed to %s", text)
		}
		if ix.Path != "dir/x.json" || ix.TotalSize != c.total || !reflect.DeepEqual(ix.Weights, c.weights) {
			t.Errorf("%s: index is %+v", c.text, ix)
		}
		if len(c.weights) > 0 && !reflect.DeepEqual(ix.Shards, []string{"m-1.safetensors", "m-2.safetensors"}) {
			t.Errorf("%s: shards are %q", c.text, ix.Shards)
		}
	}
}

func TestParseIndexErrors(t *testing.T) {
	to := func(file string) string { return `{"weight_map":{"a":"` + file + `"}}` }
	base := "expected a name below the index's folder that ends in .safetensors"
	for text, want := range map[string]string{
		"":                       "the index is missing (the text ends here) at byte 0, expected an object with weight_map",
		"[]":                     "the index is [ at byte 0, expected an object with weight_map",
		"{}":                     `key "weight_map" is missing at byte 0, expected an object with weight_map`,
		"{} x":                   "the text after the index is x at byte 3, expected the end of the file",
		`{"weight_map":[]}`:      "weight_map is [",
		`{"weight_map":{"a":1}}`: `tensor "a": its file name is 1 at byte 19, expected a JSON string`,
		`{"weight_map":{"a":"x.safetensors","\u0061":"x.safetensors"}}`: `tensor name "a" is a duplicate at byte 35, expected each name once`,
		`{"weight_map":{},"weight_map":{}}`:                             `key "weight_map" is a duplicate`,
		`{"weight_map":{},"weight\u005fmap":{}}`:                        `key "weight_map" is a duplicate`,
		`{"metadata":{"k":1,"k":2},"weight_map":{}}`:                    `key "k" is a duplicate`,
		`{"metadata":{},"metadata":{},"weight_map":{}}`:                 `key "metadata" is a duplicate`,
		`{"x":{"k":1,"k":2},"weight_map":{}}`:                           `key "k" is a duplicate`,
		`{"weight_map":{"a\u0000":"x.safetensors"}}`:                    `tensor name "a\x00" holds NUL at byte 15, expected a name without it`,
		`{"weight_map":{"__metadata__":"x.safetensors"}}`:               `tensor name "__metadata__" is reserved`,
		`{"weight_map":{"\ud800":"x.safetensors"}}`:                     "unpaired surrogate",
		"{\"weight_map\":{\"\xff\":\"x.safetensors\"}}":                 "expected UTF-8 text",
		to("../x.safetensors"):                                          `tensor "a": its file name is "../x.safetensors" at byte 19, ` + base,
		to("sub//x.safetensors"):                                        base,
		to("/sub/x.safetensors"):                                        base,
		to("./x.safetensors"):                                           base,
		to("sub/../x.safetensors"):                                      base,
		to("sub/.safetensors"):                                          base,
		to(strings.Repeat("d/", 16) + "x.safetensors"):                  base,
		to("/x.safetensors"):                                            base,
		to(`sub\\x.safetensors`):                                        base,
		to("..safetensors"):                                             base,
		to(".safetensors"):                                              base,
		to(""):                                                          base,
		to(`x\u0000.safetensors`):                                       base,
		to(`x\n.safetensors`):                                           base,
		to("x.bin"):                                                     base,
		to(strings.Repeat("x", 256) + ".safetensors"):                   base,
		`{"x":` + deep(20) + `}`:                                        "levels",
		`{"weight_map":{"a":"x.safetensors"}`:                           "next in the index is missing",
		`{"weight_map":{"a":"x.safetensors",}}`:                         "a tensor name is }",
	} {
		_, err := ParseIndex([]byte(text), "x.json")
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "parse safetensors index x.json: ") {
			t.Errorf("%s\n\terror is %v\n\texpected it to contain %s", text, err, want)
		}
	}
}

// TestIndexLimits checks sizes and the memory that a hostile index takes.
func TestIndexLimits(t *testing.T) {
	effort.SingleThreaded(t)
	path := filepath.Join(t.TempDir(), "big.json")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, MaxIndex+1); err != nil {
		t.Fatal(err)
	}
	var err error
	used, _ := cost(func() { _, err = OpenIndex(path) })
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(),
		"the index has 268435457 bytes, expected at most 268435456") || used > 64<<10 {
		t.Errorf("allocated %d bytes: %v", used, err)
	}
	shards := `{"weight_map":` + repeat(4<<20, func(i int) string { return fmt.Sprintf(`"%x":"%x.safetensors"`, i, i) }) +
		"}"
	used, _ = cost(func() { _, err = ParseIndex([]byte(shards), "x.json") })
	if err == nil || !strings.Contains(err.Error(), "expected at most 65536 files") || used > int64(12*len(shards)) {
		t.Errorf("allocated %d bytes for %d: %v", used, len(shards), err)
	}
	names := `{"weight_map":` + repeat(4<<20, func(i int) string { return fmt.Sprintf(`"%x":"a.safetensors"`, i) }) + "}"
	used, _ = cost(func() { _, err = ParseIndex([]byte(names), "x.json") })
	if err != nil || used > int64(12*len(names)) {
		t.Errorf("allocated %d bytes for %d: %v", used, len(names), err)
	}
}

func TestIndexCheck(t *testing.T) {
	ix, err := ParseIndex([]byte(`{"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"1.safetensors"}}`),
		"d/x.json")
	if err != nil {
		t.Fatal(err)
	}
	shard := func(path string, names ...string) *format.File {
		f := &format.File{Path: path}
		for _, n := range names {
			f.Tensors = append(f.Tensors, format.Tensor{Name: n})
		}
		return f
	}
	for _, c := range []struct {
		kind  errs.Kind
		want  string
		files []*format.File
	}{
		{0, "", []*format.File{shard("d/2.safetensors", "b"), shard("d/1.safetensors", "c", "a")}},
		{errs.Invalid, `shard "2.safetensors" is not given, expected all 2 shards`,
			[]*format.File{shard("1.safetensors", "a", "c")}},
		{errs.Invalid, `file "3.safetensors" is not in the index`, []*format.File{shard("3.safetensors")}},
		{errs.Invalid, `shard "1.safetensors" is given twice`,
			[]*format.File{shard("1.safetensors"), shard("e/1.safetensors")}},
		{errs.Corrupt, `tensor "a" is in shards "1.safetensors" and "2.safetensors", expected one`,
			[]*format.File{shard("1.safetensors", "a", "c"), shard("2.safetensors", "b", "a")}},
		{errs.Corrupt, `tensor "c" is in no shard, expected it in "1.safetensors"`,
			[]*format.File{shard("1.safetensors", "a"), shard("2.safetensors", "b")}},
		{errs.Corrupt, `tensor "b" is in shard "1.safetensors", expected it in "2.safetensors"`,
			[]*format.File{shard("1.safetensors", "a", "b", "c"), shard("2.safetensors")}},
		{errs.Corrupt, `tensor "z" of shard "2.safetensors" is not in the index`,
			[]*format.File{shard("1.safetensors", "a", "c"), shard("2.safetensors", "b", "z")}},
	} {
		err := ix.Check(c.files)
		if errs.KindOf(err) != c.kind || err != nil && (!strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "d/x.json")) {
			t.Errorf("error is %v, expected %q", err, c.want)
		}
	}
}

func TestResolve(t *testing.T) {
	const index = `{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}`
	all := map[string]string{"m-1.safetensors": "", "m-2.safetensors": "", "config.json": ""}
	with := func(extra ...string) map[string]string {
		m := map[string]string{}
		for k, v := range all {
			m[k] = v
		}
		for i := 0; i < len(extra); i += 2 {
			m[extra[i]] = extra[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		path  string
		want  []string
		index bool
		kind  errs.Kind
		text  string
	}{
		{"file", all, "m-1.safetensors", []string{"m-1.safetensors"}, false, 0, ""},
		{"index file", with("x.json", index), "x.json", []string{"m-1.safetensors", "m-2.safetensors"}, true, 0, ""},
		{"directory with index", with(IndexFile, index, ModelFile, ""), "", []string{"m-1.safetensors", "m-2.safetensors"},
			true, 0, ""},
		{"directory with model", with(ModelFile, ""), "", []string{ModelFile}, false, 0, ""},
		{"directory with another index", with("diffusion.safetensors.index.json", index), "",
			[]string{"m-1.safetensors", "m-2.safetensors"}, true, 0, ""},
		{"directory with one file", map[string]string{"only.safetensors": "", ".hidden.safetensors": "", "a.json": ""}, "",
			[]string{"only.safetensors"}, false, 0, ""},
		{"files without an index", all, "", []string{"m-1.safetensors", "m-2.safetensors"}, false, 0, ""},
		{"numbered shards without an index", map[string]string{"x-2-of-2.safetensors": "", "x-1-of-2.safetensors": ""}, "",
			[]string{"x-1-of-2.safetensors", "x-2-of-2.safetensors"}, false, 0, ""},
		{"a numbered shard is missing", map[string]string{"x-00003-of-00003.safetensors": "",
			"x-00001-of-00003.safetensors": ""}, "", nil, false, errs.NotFound,
			`1 of 3 shards are missing: "x-00002-of-00003.safetensors"`},
		{"a single numbered shard", map[string]string{"x-00001-of-00003.safetensors": ""}, "", nil, false, errs.NotFound,
			`2 of 3 shards are missing: "x-00002-of-00003.safetensors", "x-00003-of-00003.safetensors"`},
		{"two sets of shards", map[string]string{"x-1-of-1.safetensors": "", "y-1-of-1.safetensors": ""}, "", nil, false,
			errs.Invalid, "which are of several models, and no index"},
		{"shards and another file", with("x-1-of-1.safetensors", ""), "", nil, false, errs.Invalid,
			"which are of several models, and no index"},
		{"a shard twice", map[string]string{"x-1-of-1.safetensors": "", "x-01-of-1.safetensors": ""}, "", nil, false,
			errs.Invalid, "has 2 shards"},
		{"too many shards", map[string]string{"x-1-of-999999.safetensors": "", "x-2-of-999999.safetensors": ""}, "", nil,
			false, errs.Invalid, "is one of 999999 files, expected at most"},
		{"shards in folders",
			map[string]string{
				IndexFile:           `{"weight_map":{"a":"one/m.safetensors","b":"two/deep/m.safetensors","c":"m.safetensors"}}`,
				"one/m.safetensors": "", "two/deep/m.safetensors": "", "m.safetensors": ""}, "",
			[]string{"m.safetensors", "one/m.safetensors", "two/deep/m.safetensors"}, true, 0, ""},
		{"two indexes", with("p.safetensors.index.json", index, "q.safetensors.index.json", index), "", nil, false,
			errs.Invalid, `has "p.safetensors.index.json", "q.safetensors.index.json"`},
		{"nothing", map[string]string{"config.json": "", "pytorch_model.bin": ""}, "", nil, false, errs.NotFound,
			`no safetensors file but "config.json", "pytorch_model.bin", expected model.safetensors.index.json`},
		{"empty directory", nil, "", nil, false, errs.NotFound, "no safetensors file but nothing"},
		{"no such path", nil, "gone", nil, false, errs.NotFound, "gone"},
		{"missing shard", map[string]string{IndexFile: index, "m-1.safetensors": ""}, "", nil, false, errs.NotFound,
			`1 of 2 shards are missing: "m-2.safetensors", expected all beside the index (fix: download the missing shards)`},
		{"empty index", map[string]string{IndexFile: `{"weight_map":{}}`}, "", nil, false, errs.Corrupt,
			"weight_map names 0 files, expected at least 1"},
		{"config instead of index", map[string]string{"config.json": `{"a":1}`}, "config.json", nil, false, errs.Corrupt,
			`key "weight_map" is missing`},
		{"bad index", map[string]string{IndexFile: `{`}, "", nil, false, errs.Corrupt, "a key of the index is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, ix, err := Resolve(filepath.Join(dir, c.path))
			if c.kind != 0 {
				if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), dir) {
					t.Errorf("error is %v (%v), expected %q", err, errs.KindOf(err), c.text)
				}
				return
			}
			want := make([]string, len(c.want))
			for i, w := range c.want {
				want[i] = filepath.Join(dir, w)
			}
			if err != nil || !reflect.DeepEqual(got, want) || (ix != nil) != c.index {
				t.Errorf("resolved %q, %v, %v, expected %q", got, ix, err, want)
			}
		})
	}
	dir := t.TempDir()
	for i := range 10 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("%d.safetensors", i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Resolve(dir); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "expected a regular file") {
		t.Error(err)
	}
	for i := range 2 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.safetensors.index.json", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Resolve(dir); err == nil || !strings.Contains(err.Error(), "6 more") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, IndexFile), []byte(`{"weight_map":{"a":"1.safetensors"}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Resolve(dir); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "expected a regular file") {
		t.Error(err)
	}
}

func TestInspect(t *testing.T) {
	f, err := parseBytes(file(`{"u":`+entry("U8", "[1]", "[0,1]")+`,"w":`+entry("F32", "[1]", "[1,5]")+`,"z":`+entry("F16",
		"[0,2]", "[5,5]")+
		`,"__METADATA__":`+entry("U8", "[3]", "[5,8]")+`}  `, 8), Strict)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range Inspect(f) {
		got = append(got, string(p.Severity)+" "+p.Tensor+" "+p.Text)
	}
	want := []string{
		fmt.Sprintf("warn  the data starts at byte %d, which is not a multiple of 8", f.DataStart),
		fmt.Sprintf("warn w it starts at byte %d, which is not a multiple of 4, the element size of F32", f.DataStart+1),
		fmt.Sprintf("warn z it starts at byte %d", f.DataStart+5),
		"info z its shape [0,2] has no elements",
		"warn __METADATA__ its name looks like __metadata__",
	}
	if len(got) != len(want) {
		t.Fatalf("problems are %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("problem %d is %q, expected %q", i, got[i], want[i])
		}
	}
	page, err := EncodeHeader(nil, nil, AlignPage)
	if err != nil {
		t.Fatal(err)
	}
	f, err = parseBytes(page, Strict)
	if err != nil || len(Inspect(f)) != 0 {
		t.Errorf("a page-aligned file has problems: %v", err)
	}
	f, err = parseBytes(file("{}      ", 0), Strict)
	if ps := Inspect(f); err != nil || len(ps) != 1 || ps[0].Severity != Info ||
		!strings.Contains(ps[0].Text, "multiple of 4096") {
		t.Errorf("problems are %+v, %v", ps, err)
	}
}
