// SPDX-License-Identifier: Apache-2.0

package litdata_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/litdata"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// The files below testdata are from litdata 0.2.76, and from litdata 0.2.17 where the name starts with "old". The
// program testdata/make.py calls both. The file samples.txt has the leaves of every item.

func load(t testing.TB, names ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, names...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t testing.TB, dataset string) *litdata.Index {
	t.Helper()
	x, err := litdata.ParseIndex(load(t, dataset, litdata.IndexName), dataset)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func open(data []byte, config litdata.Config, c litdata.Chunk) (*sample.Table, error) {
	return litdata.Open(bytes.NewReader(data), int64(len(data)), "x.bin", &config, &c)
}

// texts returns the parts of a table in hexadecimal digits.
func texts(table *sample.Table, data []byte) (rows [][]string) {
	for i := range table.Len() {
		var row []string
		for j := range table.Columns() {
			p, _ := table.Part(i, j)
			row = append(row, hex.EncodeToString(data[p.Offset:][:p.Size]))
		}
		rows = append(rows, row)
	}
	return rows
}

func TestChunksOfThePeerAreRead(t *testing.T) {
	nested := []string{"image", "label", "meta.0", "meta.1.0", "meta.1.1"}
	for dataset, names := range map[string][]string{"tree": nested, "old-tree": nested, "tuple": {"0", "1", "2"},
		"bytes": {"0"}, "tokens": {"0"}, "numpy": {"0"}, "old-tokens": {"0"}} {
		x := parse(t, dataset)
		var got, want [][]string
		for _, c := range x.Chunks {
			data := load(t, dataset, c.Filename)
			table, err := open(data, x.Config, c)
			if err != nil {
				t.Fatalf("%s, %s: %v", dataset, c.Filename, err)
			}
			if table.Len() != int(c.Items) || !slices.Equal(table.Columns(), names) {
				t.Errorf("%s, %s: %d items with the columns %q", dataset, c.Filename, table.Len(), table.Columns())
			}
			got = append(got, texts(table, data)...)
		}
		if err := json.Unmarshal(load(t, dataset, "samples.txt"), &want); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got, want, slices.Equal) || len(want) < 4 {
			t.Errorf("%s: %q\nexpected\n%q", dataset, got, want)
		}
	}
}

func TestBlocksOfThePeerAreRead(t *testing.T) {
	for dataset, kind := range map[string]litdata.TokenType{
		"tokens": {"int32", 4}, "numpy": {"uint16", 2}, "old-tokens": {"int32", 4},
	} {
		x := parse(t, dataset)
		if got, err := x.Config.Tokens(dataset); err != nil || got != kind {
			t.Errorf("%s: %v: %v", dataset, got, err)
		}
		var got, want []string
		for _, c := range x.Chunks {
			data := load(t, dataset, c.Filename)
			table, err := litdata.OpenBlocks(bytes.NewReader(data), int64(len(data)), c.Filename, &x.Config, &c, 5)
			if err != nil {
				t.Fatalf("%s, %s: %v", dataset, c.Filename, err)
			}
			for _, row := range texts(table, data) {
				got = append(got, row[0])
			}
		}
		if err := json.Unmarshal(load(t, dataset, "blocks.txt"), &want); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || len(want) < 20 {
			t.Errorf("%s: %q\nexpected\n%q", dataset, got, want)
		}
	}
}

func TestOtherChunksOfThePeerAreRefused(t *testing.T) {
	for dataset, says := range map[string]string{
		"arrow":      "its items are rows of an Arrow table (fix: write the dataset again",
		"zstd-batch": "the chunk is compressed (zstd) (fix: write the dataset again without compression)",
		"zstd-file":  "the chunk is compressed (zstd)",
	} {
		x := parse(t, dataset)
		for _, c := range x.Chunks {
			if _, err := open(load(t, dataset, c.Filename), x.Config, c); !errs.Is(err, errs.Unsupported) ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, expected %q", dataset, err, says)
			}
		}
	}
}
