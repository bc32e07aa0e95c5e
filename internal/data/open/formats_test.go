// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
)

// TestEveryFormatIsRecognized opens data of each format by a folder, and by the names of its files.
func TestEveryFormatIsRecognized(t *testing.T) {
	tar, _, _ := archive(t, "a", "x/1", "x/2")
	bin, idx := tokens(t, "aabb", "ccddee")
	for _, c := range []struct {
		format open.Format
		ask    open.Format
		place  memory
		names  []string // each is the whole data
		want   []string
	}{
		{open.Tar, "", memory{"d/a.tar": tar}, []string{"d", "d/", "d/a.tar", "d/*.tar", "d/[a].tar"},
			[]string{"x/1 cls=7 txt=text of x/1", "x/2 cls=7 txt=text of x/2"}},
		{open.Megatron, "", memory{"d/m.bin": bin, "d/m.idx": idx}, []string{"d", "d/m", "d/m.bin", "d/m.idx", "d/*.idx"},
			[]string{" tokens=aabb", " tokens=ccddee"}},
		{open.TFRecord, "", memory{"d/r.tfrecord-00000-of-00001": records(t, "one", "", "two")},
			[]string{"d", "d/r.tfrecord-00000-of-00001", "d/r*"}, []string{" record=one", " record=", " record=two"}},
		{open.NPY, open.NPY, memory{"d/a.npy": array(t, "abc", "def")}, []string{"d", "d/a.npy"},
			[]string{" row=abc", " row=def"}},
		{open.NPY, "", memory{"d/a.npy": array(t, "abc", "def")}, []string{"d/a.npy"}, []string{" row=abc", " row=def"}},
		{open.SafeTensors, open.SafeTensors, memory{"d/a.safetensors": tensors(t,
			format.Tensor{Name: "x", DType: format.U8, Shape: []int64{2, 3}},
			format.Tensor{Name: "y", DType: format.F16, Shape: []int64{2}})}, []string{"d", "d/a.safetensors"},
			[]string{" x=abc y=gh", " x=def y=ij"}},
		{open.Files, "", memory{"d/a.npy": []byte("A"), "d/s/b.txt": []byte("B"), "d/none": nil}, []string{"d", "d/"},
			[]string{"a.npy file=A", "none file=", "s/b.txt file=B"}},
		{open.Groups, "", memory{"d/a.jpg": []byte("A"), "d/a.CLS": []byte("1"), "d/a-1.jpg": []byte("B"),
			"d/a-1.cls": []byte("2")}, []string{"d", "d/a*"}, []string{"a-1 cls=2 jpg=B", "a cls=1 jpg=A"}},
		{open.Files, open.Files, memory{"d/a.tar": []byte("A")}, []string{"d", "d/a.tar"}, []string{"a.tar file=A"}},
		{open.Groups, open.Groups, memory{"d/a.jpg": []byte("A"), "d/b.txt": []byte("B")}, []string{"d"},
			[]string{"a jpg=A", "b txt=B"}},
	} {
		for _, name := range c.names {
			d, err := open.Open(t.Context(), c.place, []string{name}, open.Options{Format: c.ask})
			if err != nil {
				t.Errorf("%s of %s: %v", name, c.format, err)
				continue
			}
			if d.Format != c.format || d.Ignored != 0 || len(d.Bad) != 0 {
				t.Errorf("%s: format %s, expected %s; %d files are ignored", name, d.Format, c.format, d.Ignored)
			}
			if got := texts(t, c.place, d); !slices.Equal(got, c.want) {
				t.Errorf("%s of %s: %q\nexpected %q", name, c.format, got, c.want)
			}
		}
	}
}

// TestMDS opens an MDS data set by its folder, its index and its shards.
func TestMDS(t *testing.T) {
	m := mdsShards(t, "d/")
	want := []open.Column{{Name: "a", Encoding: "ndarray:float32:2,3", DType: "float32", Shape: []int64{2, 3},
		Fixed: true}, {Name: "n", Encoding: "int", DType: "int64", Fixed: true}, {Name: "text", Encoding: "str"}}
	for _, name := range []string{"d", "d/index.json"} {
		d := must(t, m, open.Options{}, name)
		if d.Format != open.MDS || d.Set.Len() != 6 || !reflect.DeepEqual(d.Columns, want) {
			t.Errorf("%s: %s, %d samples, columns %+v", name, d.Format, d.Set.Len(), d.Columns)
		}
		if got := texts(t, m, d)[4]; !strings.Contains(got, "text=text 4") || !strings.Contains(got, "n=8 bytes") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if d := must(t, m, open.Options{Verify: true}, "d"); d.Verified != 2 {
		t.Errorf("%d files were verified", d.Verified)
	}
	if d := must(t, m, open.Options{Format: open.MDS}, "d/shard.0000{0..1}.mds"); d.Set.Len() != 6 {
		t.Errorf("%d samples of the shards without the index", d.Set.Len())
	}
	delete(m, "d/index.json")
	if d := must(t, m, open.Options{}, "d"); d.Format != open.MDS || d.Set.Len() != 6 {
		t.Errorf("%d samples of a folder without an index", d.Set.Len())
	}
}

// TestDataOfOtherPackages opens the files that the formats' own packages wrote.
func TestDataOfOtherPackages(t *testing.T) {
	for dir, want := range map[string]open.Format{"litdata/testdata/tree": open.LitData,
		"litdata/testdata/old-tree": open.LitData,
		"litdata/testdata/tuple":    open.LitData, "litdata/testdata/bytes": open.LitData, "mds/testdata/mixed": open.MDS,
		"mds/testdata/fixed": open.MDS, "litdata/testdata/tokens": open.LitData, "litdata/testdata/numpy": open.LitData} {
		place := open.Local{}
		d := must(t, place, open.Options{}, filepath.Join("..", dir))
		if d.Format != want {
			t.Errorf("%s: format %s, expected %s", dir, d.Format, want)
		}
		text, err := os.ReadFile(filepath.Join("..", dir, "samples.txt"))
		check(t, err)
		rows := rowsOf(t, text, d.Set.Columns())
		if int64(len(rows)) != d.Set.Len() {
			t.Errorf("%s: %d samples, expected %d", dir, d.Set.Len(), len(rows))
			continue
		}
		for n, row := range rows {
			for c, want := range row {
				if got := part(t, place, d, int64(n), c); hex.EncodeToString(got) != want {
					t.Errorf("%s: sample %d, column %d: %x, expected %s", dir, n, c, got, want)
				}
			}
		}
	}
	for _, name := range []string{"webdataset", "gnutar-posix", "dali"} {
		raw, err := os.Open("../wds/testdata/" + name + ".tar.gz")
		check(t, err)
		z, err := gzip.NewReader(raw)
		check(t, err)
		tar, err := io.ReadAll(z)
		check(t, err)
		check(t, raw.Close())
		m := memory{"x.tar": tar}
		scanned := texts(t, m, must(t, m, open.Options{}, "x.tar"))
		if len(scanned) == 0 {
			t.Errorf("%s has no samples", name)
		}
		if name == "dali" {
			index, err := os.ReadFile("../wds/testdata/dali.idx")
			check(t, err)
			m["x.idx"] = index
			same(t, texts(t, m, must(t, m, open.Options{}, "x.tar")), scanned...)
		}
	}
	for _, name := range []string{"u16", "i64", "merged", "modes"} {
		d := must(t, open.Local{}, open.Options{}, "../megatron/testdata/"+name)
		if d.Format != open.Megatron || d.Set.Len() == 0 || d.Columns[0].DType == "" {
			t.Errorf("%s: %s, %d samples, %+v", name, d.Format, d.Set.Len(), d.Columns)
		}
	}
	for _, name := range []string{"tensorflow", "pip"} {
		d := must(t, open.Local{}, open.Options{Verify: true}, "../tfrecord/testdata/"+name+".tfrecord")
		if d.Format != open.TFRecord || d.Set.Len() == 0 || d.Verified != 1 {
			t.Errorf("%s: %s, %d samples, %d verified", name, d.Format, d.Set.Len(), d.Verified)
		}
	}
	refused(t, open.Local{}, open.Options{}, errs.Unsupported, "../tfrecord/testdata/gzip.tfrecord", "GZIP", "gunzip")
	refused(t, open.Local{}, open.Options{}, errs.Unsupported, "../mds/testdata/zstd", "zstd")
	refused(t, open.Local{}, open.Options{}, errs.Unsupported, "../litdata/testdata/zstd-file", "zstd")
}

// rowsOf returns the parts of samples in hexadecimal digits, by sample and by column.
func rowsOf(t *testing.T, text []byte, columns []string) [][]string {
	t.Helper()
	var rows [][]string
	if json.Unmarshal(text, &rows) == nil {
		return rows
	}
	rows = nil
	var named []map[string]string
	check(t, json.Unmarshal(text, &named))
	for _, n := range named {
		var row []string
		for _, c := range columns {
			row = append(row, n[c])
		}
		rows = append(rows, row)
	}
	return rows
}

func part(t *testing.T, p open.Place, d *open.Data, n int64, column int) []byte {
	t.Helper()
	file, e, _ := d.Set.Part(n, column)
	name, _ := d.Set.File(file)
	got, fails := p.Open(t.Context(), []string{name})
	check(t, fails[0])
	defer got[0].File.Close()
	b := make([]byte, e.Size)
	_, err := got[0].File.ReadAt(b, e.Offset)
	check(t, err)
	return b
}

// TestBlocks makes samples of equal size from tokens.
func TestBlocks(t *testing.T) {
	tar, _, _ := archive(t, "a.tar", "1")
	bin, idx := tokens(t, "aabb", "ccddee", "ff")
	m := memory{"m.bin": bin, "m.idx": idx}
	d := must(t, m, open.Options{Block: 2}, "m")
	same(t, texts(t, m, d), " tokens=aabb", " tokens=ccdd", " tokens=eeff")
	if c := d.Columns[0]; c.DType != "uint16" || !c.Fixed || !slices.Equal(c.Shape, []int64{2}) {
		t.Errorf("%+v", c)
	}
	same(t, texts(t, m, must(t, m, open.Options{Block: 4}, "m")), " tokens=aabbccdd") // the rest is left out
	refused(t, m, open.Options{Block: 7}, errs.Invalid, "m", "m.bin", "block of 7 tokens")
	refused(t, m, open.Options{Block: -1}, errs.Invalid, "m", "blocks of -1 tokens")
	refused(t, m, open.Options{Block: 1 << 40}, errs.Invalid, "m", "expected 0 to")
	refused(t, m, open.Options{Block: 2, Format: open.Tar}, errs.Invalid, "m.bin", "blocks of 2 tokens of the format tar")
	refused(t, memory{"a.tar": tar}, open.Options{Block: 2}, errs.Invalid, "a.tar", "format tar", "blocks")

	d = must(t, open.Local{}, open.Options{Block: 5}, "../litdata/testdata/tokens")
	text, err := os.ReadFile("../litdata/testdata/tokens/blocks.txt")
	check(t, err)
	var want []string
	check(t, json.Unmarshal(text, &want))
	if d.Set.Len() != int64(len(want)) || !d.Columns[0].Fixed {
		t.Fatalf("%d blocks, expected %d; %+v", d.Set.Len(), len(want), d.Columns)
	}
	for n, block := range want {
		if got := part(t, open.Local{}, d, int64(n), 0); hex.EncodeToString(got) != block {
			t.Errorf("block %d: %x, expected %s", n, got, block)
		}
	}
	refused(t, open.Local{}, open.Options{Block: 5}, errs.Unsupported, "../litdata/testdata/tree", "tokens")
}

// TestRowsOfTensors covers files whose tensors are no samples.
func TestRowsOfTensors(t *testing.T) {
	o := open.Options{Format: open.SafeTensors}
	for says, file := range map[string][]byte{
		`"y" has the shape [3 2], expected 2 rows as the tensor "x" has`: tensors(t,
			format.Tensor{Name: "x", DType: format.U8, Shape: []int64{2}},
			format.Tensor{Name: "y", DType: format.U8, Shape: []int64{3, 2}}),
		"single number":       tensors(t, format.Tensor{Name: "x", DType: format.F32, Shape: []int64{}}),
		"has no tensors":      tensors(t),
		"too few bytes":       tensors(t, format.Tensor{Name: "x", DType: format.F32, Shape: []int64{1 << 28, 0}}),
		"do not begin at who": tensors(t, format.Tensor{Name: "x", DType: format.F4, Shape: []int64{2, 3}}),
		"at most 268435456":   tensors(t, format.Tensor{Name: "x", DType: format.F32, Shape: []int64{1 << 29, 0}}),
	} {
		refused(t, memory{"x.safetensors": file}, o, errs.Unsupported, "x.safetensors", "x.safetensors", says, "format files")
	}
	none := tensors(t, format.Tensor{Name: "x", DType: format.F32, Shape: []int64{0, 4}})
	refused(t, memory{"x.safetensors": none}, o, errs.Invalid, "x.safetensors", "no samples")

	d := must(t, memory{"x.safetensors": tensors(t,
		format.Tensor{Name: "f4", DType: format.F4, Shape: []int64{2, 8}},
		format.Tensor{Name: "bf", DType: format.BF16, Shape: []int64{2, 3}},
		format.Tensor{Name: "f8", DType: format.F8E4M3, Shape: []int64{2, 2, 2}})}, o, "x.safetensors")
	want := []open.Column{{Name: "f4", Encoding: "F4", Shape: []int64{4}, Fixed: true},
		{Name: "bf", Encoding: "BF16", DType: "bfloat16", Shape: []int64{3}, Fixed: true},
		{Name: "f8", Encoding: "F8_E4M3", Shape: []int64{4}, Fixed: true}}
	if !reflect.DeepEqual(d.Columns, want) {
		t.Errorf("%+v\nexpected %+v", d.Columns, want)
	}
}

// TestColumnsOfSeveralFiles joins files that describe a column differently.
func TestColumnsOfSeveralFiles(t *testing.T) {
	m := memory{"a.npy": array(t, "abc", "def"), "b.npy": array(t, "ghi"), "c.npy": array(t, "four")}
	d := must(t, m, open.Options{}, "a.npy", "b.npy")
	if c := d.Columns[0]; c.DType != "uint8" || !c.Fixed || !slices.Equal(c.Shape, []int64{3}) {
		t.Errorf("equal rows: %+v", c)
	}
	d = must(t, m, open.Options{Format: open.NPY}, "{a,b,c}.npy")
	if c := d.Columns[0]; c.DType != "uint8" || c.Fixed || c.Shape != nil {
		t.Errorf("different rows: %+v", c)
	}
	same(t, texts(t, m, d), " row=abc", " row=def", " row=ghi", " row=four")
}

// TestAnIndexSavesTheScan reads an archive by its index: the samples are those of a scan.
func TestAnIndexSavesTheScan(t *testing.T) {
	tar, index, dali := archive(t, "d/a.tar", "1", "2", "ünï")
	want := []string{"1 cls=7 txt=text of 1", "2 cls=7 txt=text of 2", "ünï cls=7 txt=text of ünï"}
	for name, m := range map[string]memory{"scan": {"d/a.tar": tar}, "index": {"d/a.tar": tar, "d/a.tar.nbx": index},
		"DALI's index": {"d/a.tar": tar, "d/a.idx": dali}, "something else": {"d/a.tar": tar, "d/a.idx": []byte("MMIDIDX")}} {
		t.Run(name, func(t *testing.T) {
			same(t, texts(t, m, must(t, m, open.Options{}, "d/a.tar")), want...)
			same(t, texts(t, m, must(t, m, open.Options{}, "d")), want...)
		})
	}
}
