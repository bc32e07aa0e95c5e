// SPDX-License-Identifier: Apache-2.0

package mds_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// The files below testdata are from mosaicml-streaming 0.13.0, which testdata/make.py calls. The file samples.txt of
// each dataset has the encoded values of every sample.

// peerSamples returns the samples of a dataset below testdata, by column.
func peerSamples(t testing.TB, dataset string) (samples []map[string][]byte) {
	t.Helper()
	var texts []map[string]string
	if err := json.Unmarshal(load(t, dataset, "samples.txt"), &texts); err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		values := map[string][]byte{}
		for name, digits := range text {
			value, err := hex.DecodeString(digits)
			if err != nil {
				t.Fatal(err)
			}
			values[name] = value
		}
		samples = append(samples, values)
	}
	return samples
}

func load(t testing.TB, names ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, names...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t testing.TB, dataset string) *mds.Index {
	t.Helper()
	x, err := mds.ParseIndex(load(t, dataset, mds.IndexName), dataset)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func open(data []byte, shard *mds.Shard) (*sample.Table, error) {
	return mds.Open(bytes.NewReader(data), int64(len(data)), "x.mds", shard)
}

// values returns the samples of a table with the bytes of data, by column.
func values(table *sample.Table, data []byte) (samples []map[string][]byte) {
	for i := range table.Len() {
		row := map[string][]byte{}
		for j, name := range table.Columns() {
			if p, ok := table.Part(i, j); ok {
				row[name] = data[p.Offset:][:p.Size]
			}
		}
		samples = append(samples, row)
	}
	return samples
}

func same(a, b map[string][]byte) bool {
	for name, v := range a {
		if w, ok := b[name]; !ok || !bytes.Equal(v, w) {
			return false
		}
	}
	return len(a) == len(b)
}

func TestShardsOfThePeerAreRead(t *testing.T) {
	for _, dataset := range []string{"mixed", "fixed", "merged", "merged/00000"} {
		x := parse(t, dataset)
		var got []map[string][]byte
		for i := range x.Shards {
			data := load(t, dataset, x.Shards[i].Raw.Basename)
			for _, shard := range []*mds.Shard{&x.Shards[i], nil} {
				table, err := open(data, shard)
				if err != nil {
					t.Fatalf("%s, shard %d: %v", dataset, i, err)
				}
				if table.Len() != int(x.Shards[i].Samples) {
					t.Errorf("%s, shard %d: %d samples, expected %d", dataset, i, table.Len(), x.Shards[i].Samples)
				}
				if shard != nil {
					got = append(got, values(table, data)...)
				} else if !slices.EqualFunc(values(table, data), got[len(got)-table.Len():], same) {
					t.Errorf("%s, shard %d: without the index, the samples differ", dataset, i)
				}
			}
		}
		var want []map[string][]byte
		if dataset == "merged" {
			want = append(peerSamples(t, "merged/00000"), peerSamples(t, "merged/00001")...)
		} else {
			want = peerSamples(t, dataset)
		}
		if !slices.EqualFunc(got, want, same) {
			t.Errorf("%s: %d samples\n%x\nexpected\n%x", dataset, len(got), got, want)
		}
	}
}

func TestTheIndexOfThePeerIsRead(t *testing.T) {
	x := parse(t, "mixed")
	s := x.Shards[0]
	want := []mds.Column{{"box", "ndarray:float32:2,3", 24}, {"image", "bytes", 0},
		{"naïve 🙂", "int", 8}, {"text", "str", 0}}
	if !slices.Equal(s.Columns, want) || s.SizeLimit != 700 || s.Compressed() || s.Zip != nil ||
		!slices.Equal(s.Hashes, []string{"sha1", "sha256"}) || len(s.Raw.Hashes["sha1"]) != 40 {
		t.Errorf("%+v", s)
	}
	for _, c := range s.Columns {
		if size, known := mds.EncodingSize(c.Encoding); !known || size != c.Size {
			t.Errorf("encoding %q has size %d, expected %d", c.Encoding, size, c.Size)
		}
	}
	if s := parse(t, "fixed").Shards[0]; s.SizeLimit != 0 || s.Samples != 5 {
		t.Errorf("%+v", s)
	}
}

// A compressed shard is refused with the names of both files, and what decompressing gives is read.
func TestCompressedShards(t *testing.T) {
	s := parse(t, "zstd").Shards[0]
	if !s.Compressed() || s.Compression != "zstd:7" || s.Zip == nil || s.Zip.Basename != "shard.00000.mds.zstd" {
		t.Fatalf("%+v", s)
	}
	_, err := open(load(t, "zstd", s.Zip.Basename), &s)
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(),
		`the shard is compressed (zstd:7) (fix: decompress "shard.00000.mds.zstd" to "shard.00000.mds"`) {
		t.Errorf("%v", err)
	}

	raw, again := repack(t, s, peerSamples(t, "zstd"))
	again.Compression, again.Zip = s.Compression, s.Zip
	table, err := open(raw, &again)
	if err != nil || !slices.EqualFunc(values(table, raw), peerSamples(t, "zstd"), same) {
		t.Errorf("%v", err)
	}
}

// repack writes samples into one shard with the columns of another one.
func repack(t testing.TB, s mds.Shard, samples []map[string][]byte) ([]byte, mds.Shard) {
	t.Helper()
	w, err := mds.NewWriter(s.Columns, mds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range samples {
		var parts [][]byte
		for _, c := range s.Columns {
			parts = append(parts, row[c.Name])
		}
		if err := w.Add(parts...); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	size := w.Size()
	shard, err := w.Flush(&out, mds.ShardName(0))
	if err != nil || int64(out.Len()) != size {
		t.Fatalf("%d bytes, expected %d: %v", out.Len(), size, err)
	}
	return out.Bytes(), shard
}
