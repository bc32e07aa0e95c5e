// SPDX-License-Identifier: Apache-2.0

package litdata_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/litdata"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const goodIndex = `{"chunks": [{"chunk_bytes": 35, "chunk_size": 3, "dim": null, "filename": "chunk-0-0.bin"}],
"config": {"compression": null, "data_format": ["bytes", "int"], "data_spec": null, "encryption": null,
"item_loader": "PyTreeLoader"}}`

func TestBadIndexesAreRefused(t *testing.T) {
	if x, err := litdata.ParseIndex([]byte(goodIndex), "index.json"); err != nil || x.Chunks[0].Dim != -1 {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		kind     errs.Kind
		says     string
	}{
		{goodIndex, "", errs.Corrupt, "it is not an index in JSON"},
		{goodIndex, "[]", errs.Corrupt, "it is not an index in JSON"},
		{goodIndex, "{}", errs.Corrupt, "it has no chunks or no config"},
		{goodIndex, `{"version": 2, "shards": []}`, errs.Unsupported, "it is an index of MDS shards"},
		{`"config"`, `"conf"`, errs.Corrupt, "it has no chunks or no config"},
		{`"chunk_bytes": 35`, `"chunk_bytes": -1`, errs.Corrupt, "chunk 0: chunk_bytes is -1"},
		{`"chunk_bytes": 35`, `"chunk_bytes": 3e99`, errs.Corrupt, "it is not an index in JSON"},
		{`"chunk_bytes": 35, `, ``, errs.Corrupt, "chunk_bytes is missing"},
		{`"chunk_size": 3`, `"chunk_size": 4294967296`, errs.Corrupt, "chunk_size is 4294967296"},
		{`"chunk_size": 3`, `"chunk_size": -3`, errs.Corrupt, "chunk_size is -3"},
		{`"dim": null`, `"dim": -1`, errs.Corrupt, "dim is -1"},
		{`chunk-0-0.bin`, `../x`, errs.Corrupt, `filename "../x", expected a file in the directory of the index`},
		{`chunk-0-0.bin`, `/x`, errs.Corrupt, `filename "/x"`},
		{`chunk-0-0.bin`, ``, errs.Corrupt, `filename ""`},
		{`["bytes", "int"]`, `[]`, errs.Corrupt, "data_format has 0 leaves"},
		{`["bytes", "int"]`, `null`, errs.Corrupt, "data_format has 0 leaves"},
		{`["bytes", "int"]`, `["a"` + strings.Repeat(`,"a"`, 4096) + `]`, errs.Corrupt, "data_format has 4097 leaves"},
	} {
		if !strings.Contains(goodIndex, c.from) {
			t.Fatalf("the index has no %s", c.from)
		}
		_, err := litdata.ParseIndex([]byte(strings.Replace(goodIndex, c.from, c.to, 1)), "d/index.json")
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" ||
			!strings.Contains(err.Error(), "d/index.json") {
			t.Errorf("%q for %q: %v, expected %q", c.to, c.from, err, c.says)
		}
	}
}

// Names of leaves are paths where the index tells them, and otherwise positions.
func TestNamesOfLeaves(t *testing.T) {
	leaf := `{\"type\": null, \"context\": null, \"children_spec\": []}`
	node := func(kind, context string, children ...string) string {
		return fmt.Sprintf(`{\"type\": \"%s\", \"context\": \"%s\", \"children_spec\": [%s]}`, kind, context,
			strings.Join(children, ", "))
	}
	tree := func(root string) string { return `"[1, ` + root + `]"` }
	deep := leaf
	for range 300 {
		deep = node("builtins.list", "null", deep, leaf)
	}
	for spec, want := range map[string][]string{
		`null`: {"0", "1"}, `7`: {"0", "1"}, `"x"`: {"0", "1"}, `"[1]"`: {"0", "1"}, tree("7"): {"0", "1"},
		tree(leaf): {"0", "1"}, tree(node("builtins.list", "null", leaf)): {"0", "1"}, tree(deep): {"0", "1"},
		tree(node("builtins.dict", `[\\\"x\\\", 7000000]`, leaf, leaf)):            {"x", "7000000"},
		tree(node("builtins.dict", `[\\\"x\\\", \\\"x\\\"]`, leaf, leaf)):          {"0", "1"},
		tree(node("builtins.dict", `[\\\"x\\\", \\\"\\\"]`, leaf, leaf)):           {"0", "1"},
		tree(node("builtins.dict", `[\\\"x\\\"]`, leaf, leaf)):                     {"0", "1"},
		tree(node("own", `{}`, leaf, leaf)):                                        {"0", "1"},
		tree(node("own", "null", node("own", "null", leaf, leaf))):                 {"0.0", "0.1"},
		tree(node("d", `[\\\"`+strings.Repeat("k", 5000)+`\\\", 7]`, leaf, leaf)):  {"0", "1"},
		tree(node("d", `[\\\"a\\\"]`, node("d", `[\\\"b\\\", null]`, leaf, leaf))): {"a.b", "a.null"},
	} {
		x, err := litdata.ParseIndex([]byte(strings.Replace(goodIndex, `"data_spec": null`, `"data_spec": `+spec, 1)), "x")
		if err != nil {
			t.Errorf("%.200s: %v", spec, err)
			continue
		}
		if got := []string{x.Config.Leaves[0].Name, x.Config.Leaves[1].Name}; !slices.Equal(got, want) {
			t.Errorf("%.200s: %.100q, expected %q", spec, got, want)
		}
	}
}

// u32 returns data with one number replaced.
func u32(data []byte, at int, value uint32) []byte {
	data = bytes.Clone(data)
	binary.LittleEndian.PutUint32(data[at:], value)
	return data
}

func TestBadChunksAreRefused(t *testing.T) {
	for dataset, cases := range map[string][]struct {
		name string
		edit func(data []byte) []byte
		says string
	}{
		"tree": {
			{"empty", func([]byte) []byte { return nil }, "it has 0 bytes, expected at least 8"},
			{"count", func(d []byte) []byte { return u32(d, 0, 1<<30) }, "it says that it has 1073741824 samples"},
			{"fewer", func(d []byte) []byte { return u32(d, 0, 2) }, "it has 2 items, but the index says 3"},
			{"truncated", func(d []byte) []byte { return d[:len(d)-1] },
				"its samples end at offset 140, but the file has 139 bytes"},
			{"longer", func(d []byte) []byte { return append(d, 0) }, "its items end at offset 140, but the file has 141 bytes"},
			{"longer without a mark", func(d []byte) []byte { return append(d, make([]byte, 99)...) },
				"its items end at offset 140"},
			{"table of another size", func(d []byte) []byte { return append(d, "1234\x05\x00\x00\x00LDARW01\x00"...) },
				"its items end at offset 140"},
			{"gap", func(d []byte) []byte { return u32(d, 4, 21) }, "its first item is at offset 21, expected 20"},
			{"back", func(d []byte) []byte { return u32(d, 8, 19) }, "offset 1 of the table is 19, expected at least 20"},
			{"too short", func(d []byte) []byte { return u32(d, 8, 39) },
				"sample 0 at offset 20 has 19 bytes, expected at least 20"},
			{"head", func(d []byte) []byte { return u32(d, 20, 1) },
				"sample 0 at offset 20 has 36 bytes, but the sizes in its head add up to 37"},
			{"head too large", func(d []byte) []byte { return u32(d, 20, 1<<32-1) }, "but the sizes in its head add up to"},
		},
		"tokens": {
			{"half a token", func(d []byte) []byte { return u32(d, 8, 45) },
				"item 0 at offset 16 has 29 bytes, expected a multiple of 4"},
		},
	} {
		x := parse(t, dataset)
		for _, test := range cases {
			data := test.edit(bytes.Clone(load(t, dataset, "chunk-0-0.bin")))
			c := x.Chunks[0]
			c.Bytes = int64(len(data))
			_, err := open(data, x.Config, c)
			if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), test.says) || errs.FixOf(err) == "" {
				t.Errorf("%s: %v, expected %q", test.name, err, test.says)
			}
		}
	}

	// An Arrow table after the items does not disturb.
	x := parse(t, "tree")
	data := append(bytes.Clone(load(t, "tree", "chunk-0-0.bin")), "12345\x05\x00\x00\x00LDARW01\x00"...)
	x.Chunks[0].Bytes = int64(len(data))
	if table, err := open(data, x.Config, x.Chunks[0]); err != nil || table.Len() != 3 {
		t.Errorf("%v", err)
	}
}

func TestOtherDatasetsAreRefused(t *testing.T) {
	for _, test := range []struct {
		dataset, from, to string
		kind              errs.Kind
		says              string
	}{
		{"tree", `"chunk_bytes": 140`, `"chunk_bytes": 141`, errs.Corrupt, "it has 140 bytes, but the index says 141"},
		{"tree", `"chunk_size": 3`, `"chunk_size": 4`, errs.Corrupt, "it has 3 items, but the index says 4"},
		{"tree", `"encryption": null`, `"encryption": {"algorithm": "fernet", "level": "sample"}`, errs.Unsupported,
			"the chunk is encrypted (fernet, level sample) (fix: write the dataset again without encryption)"},
		{"tree", `"encryption": null`, `"encryption": 7`, errs.Unsupported, "the chunk is encrypted (unknown)"},
		{"tree", `"PyTreeLoader"`, `"ParquetLoader"`, errs.Unsupported, `the chunk is for the item loader "ParquetLoader"`},
		{"tree", `"PyTreeLoader"`, `"TokensLoader"`, errs.Unsupported, `5 leaves with the format "bytes" are no tokens`},
		{"tokens", `"no_header_tensor:16"`, `"no_header_tensor:21"`, errs.Unsupported, "are no tokens"},
		{"tokens", `"no_header_tensor:16"`, `"no_header_numpy:11"`, errs.Unsupported, "are no tokens"},
		{"tokens", `"no_header_tensor:16"`, `"tensor"`, errs.Unsupported, "are no tokens"},
	} {
		text := string(load(t, test.dataset, litdata.IndexName))
		if !strings.Contains(text, test.from) {
			t.Fatalf("the index has no %s", test.from)
		}
		x, err := litdata.ParseIndex([]byte(strings.Replace(text, test.from, test.to, 1)), "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open(load(t, test.dataset, "chunk-0-0.bin"), x.Config, x.Chunks[0]); !errs.Is(err, test.kind) ||
			!strings.Contains(err.Error(), test.says) || errs.FixOf(err) == "" {
			t.Errorf("%s: %v, expected %q", test.to, err, test.says)
		}
	}
	if _, err := open(nil, litdata.Config{}, litdata.Chunk{}); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
}

func TestBadBlocksAreRefused(t *testing.T) {
	for _, test := range []struct {
		dataset string
		block   int
		dim     int64
		kind    errs.Kind
		says    string
	}{
		{"tokens", 0, 21, errs.Invalid, "blocks of 0 tokens"},
		{"tokens", 5, 22, errs.Corrupt, "the index says 22 tokens, but there are 84 bytes"},
		{"tokens", 5, -1, errs.Corrupt, "the index says -1 tokens"},
		{"tree", 5, -1, errs.Invalid, "its items are no tokens"},
		{"tokens", 1 << 62, 21, 0, ""},
	} {
		x := parse(t, test.dataset)
		data := load(t, test.dataset, "chunk-0-0.bin")
		x.Chunks[0].Dim = test.dim
		table, err := litdata.OpenBlocks(bytes.NewReader(data), int64(len(data)), "x", &x.Config, &x.Chunks[0], test.block)
		if test.says == "" && err == nil && table.Len() == 0 {
			continue
		}
		if !errs.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) || errs.FixOf(err) == "" {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// failing fails all reads.
type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, errors.New("unplugged") }

func TestErrorsOfReadsComeBack(t *testing.T) {
	x := parse(t, "tree")
	_, err := litdata.Open(failing{}, 140, "x.bin", &x.Config, &x.Chunks[0])
	if err == nil ||
		!strings.Contains(err.Error(), "read litData chunk x.bin: read 0 bytes at offset 0, expected 4: unplugged") {
		t.Errorf("%v", err)
	}
}

// pack returns a chunk with these items, as litData 0.2.76 lays them out.
func pack(items [][][]byte) []byte {
	var body []byte
	data := binary.LittleEndian.AppendUint32(nil, uint32(len(items)))
	start := 4 + 4*(len(items)+1)
	data = binary.LittleEndian.AppendUint32(data, uint32(start))
	for _, leaves := range items {
		for _, leaf := range leaves {
			body = binary.LittleEndian.AppendUint32(body, uint32(len(leaf)))
		}
		body = append(body, bytes.Join(leaves, nil)...)
		data = binary.LittleEndian.AppendUint32(data, uint32(start+len(body)))
	}
	return append(data, body...)
}

// Items with random leaves come back.
func TestItemsComeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		leaves, count := 1+rng.IntN(5), rng.IntN(40)
		var items [][][]byte
		var want [][]string
		for range count {
			var item [][]byte
			var row []string
			for range leaves {
				leaf := make([]byte, rng.IntN(3)*rng.IntN(100))
				for i := range leaf {
					leaf[i] = byte(rng.Uint32())
				}
				item, row = append(item, leaf), append(row, fmt.Sprintf("%x", leaf))
			}
			items, want = append(items, item), append(want, row)
		}
		data := pack(items)
		config := litdata.Config{Loader: litdata.PyTreeLoader}
		for i := range leaves {
			config.Leaves = append(config.Leaves, litdata.Leaf{Name: fmt.Sprint(i), Format: "bytes"})
		}
		table, err := open(data, config, litdata.Chunk{Bytes: int64(len(data)), Items: int64(count), Dim: -1})
		if err != nil || !slices.EqualFunc(texts(table, data), want, slices.Equal) {
			t.Fatalf("%d items with %d leaves: %v", count, leaves, err)
		}
	}
}
