// SPDX-License-Identifier: Apache-2.0

package mds_test

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/mds"
)

// FuzzOpen opens arbitrary bytes. The parts of an accepted shard cover its samples exactly, and writing the samples
// again gives an equal table.
func FuzzOpen(f *testing.F) {
	for _, name := range [][]string{{"mixed", "shard.00000.mds"}, {"fixed", "shard.00000.mds"},
		{"merged", "00001", "shard.00000.mds"}, {"zstd", "shard.00000.mds.zstd"}} {
		f.Add(load(f, name...))
	}
	f.Add([]byte{1, 0, 0, 0, 12, 0, 0, 0, 18, 0, 0, 0, 2, 0, 0, 0, 'h', 'i'})
	f.Add([]byte{0, 0, 0, 0, 8, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		bare := mds.Shard{Columns: []mds.Column{{"a", "bytes", 0}, {"b", "int", 8}}, Raw: mds.File{Bytes: int64(len(data))}}
		if len(data) >= 4 {
			bare.Samples = int64(data[0]) | int64(data[1])<<8
		}
		for _, shard := range []*mds.Shard{nil, &bare} {
			table, err := open(data, shard)
			if err != nil {
				continue
			}
			parts := int64(0)
			for i := range table.Len() {
				for j := range table.Columns() {
					p, ok := table.Part(i, j)
					if !ok || p.Offset < 8 || p.Size < 0 || p.Offset+p.Size > int64(len(data)) {
						t.Fatalf("sample %d, column %d is %v in a file of %d bytes", i, j, p, len(data))
					}
					parts += p.Size
				}
			}
			if parts+4*int64(table.Len()+1) > int64(len(data)) {
				t.Fatalf("%d samples have %d bytes in a file of %d bytes", table.Len(), parts, len(data))
			}
			again(t, data, shard)
		}
	})
}

// again writes the samples of an accepted shard, and compares them.
func again(t *testing.T, data []byte, shard *mds.Shard) {
	table, _ := open(data, shard)
	if table.Len() == 0 {
		return
	}
	columns := make([]mds.Column, len(table.Columns()))
	for j, name := range table.Columns() {
		columns[j] = mds.Column{Name: name, Encoding: "bytes"}
	}
	w, err := mds.NewWriter(columns, mds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	samples := values(table, data)
	for _, row := range samples {
		var parts [][]byte
		for _, c := range columns {
			parts = append(parts, row[c.Name])
		}
		if err := w.Add(parts...); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	entry, err := w.Flush(&out, "a.mds")
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range []*mds.Shard{&entry, nil} {
		table, err := open(out.Bytes(), shard)
		if err != nil || !slices.EqualFunc(values(table, out.Bytes()), samples, same) {
			t.Fatalf("the samples differ after writing: %v", err)
		}
	}
}

// FuzzParseIndex parses arbitrary bytes. An accepted index is equal after it was written and parsed again.
func FuzzParseIndex(f *testing.F) {
	for _, dataset := range []string{"mixed", "fixed", "merged", "zstd"} {
		f.Add(load(f, dataset, mds.IndexName))
	}
	f.Add([]byte(goodIndex))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := mds.ParseIndex(data, "index.json")
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := mds.WriteIndex(&out, x.Shards); err != nil {
			t.Fatal(err)
		}
		y, err := mds.ParseIndex(out.Bytes(), "index.json")
		if err != nil {
			t.Fatalf("%v\n%s", err, out.Bytes())
		}
		for _, x := range []*mds.Index{x, y} {
			for i := range x.Shards {
				tidy(&x.Shards[i])
			}
		}
		if !reflect.DeepEqual(x.Shards, y.Shards) {
			t.Fatalf("%+v\nbecame\n%+v", x.Shards, y.Shards)
		}
	})
}

// tidy makes no distinction between missing and empty hashes.
func tidy(s *mds.Shard) {
	if s.Hashes == nil {
		s.Hashes = []string{}
	}
	for _, f := range []*mds.File{&s.Raw, s.Zip} {
		if f != nil && f.Hashes == nil {
			f.Hashes = map[string]string{}
		}
	}
}
