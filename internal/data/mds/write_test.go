// SPDX-License-Identifier: Apache-2.0

package mds_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// writeAll writes samples into as many shards as the size limit asks for.
func writeAll(t testing.TB, columns []mds.Column, options mds.Options,
	samples []map[string][]byte) (files [][]byte, shards []mds.Shard) {
	t.Helper()
	w, err := mds.NewWriter(columns, options)
	if err != nil {
		t.Fatal(err)
	}
	flush := func() {
		var out bytes.Buffer
		shard, err := w.Flush(&out, mds.ShardName(len(files)))
		if err != nil {
			t.Fatal(err)
		}
		files, shards = append(files, out.Bytes()), append(shards, shard)
	}
	for _, row := range samples {
		var parts [][]byte
		for _, c := range columns {
			parts = append(parts, row[c.Name])
		}
		if !w.Fits(parts...) && w.Len() > 0 {
			flush()
		}
		if err := w.Add(parts...); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	return files, shards
}

// Shards and the index are equal to those of mosaicml-streaming, byte by byte.
func TestWritesWhatThePeerWrites(t *testing.T) {
	for _, c := range []struct {
		dataset string
		options mds.Options
	}{
		{"mixed", mds.Options{SizeLimit: 700, Hashes: []string{"sha256", "sha1"}}},
		{"fixed", mds.Options{}},
		{"merged/00000", mds.Options{SizeLimit: mds.DefaultSizeLimit}},
	} {
		columns := slices.Clone(parse(t, c.dataset).Shards[0].Columns)
		slices.Reverse(columns) // the order of the caller does not matter
		files, shards := writeAll(t, columns, c.options, peerSamples(t, c.dataset))
		var index bytes.Buffer
		if err := mds.WriteIndex(&index, shards); err != nil {
			t.Fatal(err)
		}
		if want := load(t, c.dataset, mds.IndexName); !bytes.Equal(index.Bytes(), want) {
			t.Errorf("%s: index\n%s\nexpected\n%s", c.dataset, index.Bytes(), want)
		}
		for i, got := range files {
			if want := load(t, c.dataset, mds.ShardName(i)); !bytes.Equal(got, want) {
				t.Errorf("%s, shard %d:\n%q\nexpected\n%q", c.dataset, i, got, want)
			}
		}
	}
}

func TestAnIndexIsWrittenAsItWasRead(t *testing.T) {
	for _, dataset := range []string{"mixed", "fixed", "zstd"} {
		var out bytes.Buffer
		if err := mds.WriteIndex(&out, parse(t, dataset).Shards); err != nil {
			t.Fatal(err)
		}
		if want := load(t, dataset, mds.IndexName); !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s: %s\nexpected\n%s", dataset, out.Bytes(), want)
		}
	}
}

// What is written is read again, for random columns and sizes.
func TestSamplesComeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var columns []mds.Column
		for i := range 1 + rng.IntN(5) {
			c := mds.Column{Name: fmt.Sprintf("%c\"\\\n\x7f%d", rune(rng.IntN(0x3000)), i), Encoding: "bytes"}
			if rng.IntN(3) == 0 {
				c.Size = 1 + rng.Int64N(50)
				c.Encoding = fmt.Sprintf("ndarray:uint8:%d", c.Size)
			}
			columns = append(columns, c)
		}
		var samples []map[string][]byte
		for range 1 + rng.IntN(40) {
			row := map[string][]byte{}
			for _, c := range columns {
				size := c.Size
				if size == 0 && rng.IntN(3) > 0 {
					size = rng.Int64N(300)
				}
				value := make([]byte, size)
				for i := range value {
					value[i] = byte(rng.Uint32())
				}
				row[c.Name] = value
			}
			samples = append(samples, row)
		}
		options := mds.Options{SizeLimit: rng.Int64N(5000)}
		files, shards := writeAll(t, columns, options, samples)

		var index bytes.Buffer
		if err := mds.WriteIndex(&index, shards); err != nil {
			t.Fatal(err)
		}
		x, err := mds.ParseIndex(index.Bytes(), "index.json")
		if err != nil {
			t.Fatal(err)
		}
		var got []map[string][]byte
		for i, data := range files {
			if options.SizeLimit > 0 && int64(len(data)) > options.SizeLimit && shards[i].Samples > 1 {
				t.Errorf("shard %d has %d bytes, the limit is %d", i, len(data), options.SizeLimit)
			}
			table, err := open(data, &x.Shards[i])
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, values(table, data)...)
		}
		if !slices.EqualFunc(got, samples, same) {
			t.Fatalf("%x\nexpected\n%x", got, samples)
		}
	}
}

func TestBadWritersAreRefused(t *testing.T) {
	a := mds.Column{Name: "a", Encoding: "bytes"}
	for _, c := range []struct {
		columns []mds.Column
		options mds.Options
		says    string
	}{
		{nil, mds.Options{}, "there are no columns"},
		{[]mds.Column{a, a}, mds.Options{}, `column "a" is there twice`},
		{[]mds.Column{{"a", "int", 4}}, mds.Options{}, `column "a" with encoding "int" has size 4, expected 8`},
		{[]mds.Column{{"a", "ndarray:float16:3,2", 0}}, mds.Options{}, `has size 0, expected 12`},
		{[]mds.Column{{"a", "own", -1}}, mds.Options{}, `column "a" has size -1`},
		{[]mds.Column{{"a\xff", "bytes", 0}}, mds.Options{}, "is not UTF-8"},
		{[]mds.Column{a}, mds.Options{SizeLimit: 1 << 32}, "the size limit is 4294967296 bytes"},
		{[]mds.Column{a}, mds.Options{Hashes: []string{"xxh64"}}, `hash "xxh64" is unknown`},
		{[]mds.Column{a}, mds.Options{Hashes: []string{"sha1", "sha1"}}, `hash "sha1" is unknown, or is there twice`},
	} {
		if _, err := mds.NewWriter(c.columns, c.options); !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" {
			t.Errorf("%v, expected %q", err, c.says)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestBadSamplesAreRefused(t *testing.T) {
	w, err := mds.NewWriter([]mds.Column{{"n", "int", 8}, {"a", "bytes", 0}}, mds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := w.Flush(&out, "a.mds"); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "no samples") {
		t.Errorf("%v", err)
	}
	for _, parts := range [][][]byte{nil, {nil}, {nil, nil}, {make([]byte, 9), nil}, {make([]byte, 8), nil, nil}} {
		if err := w.Add(parts...); !errs.Is(err, errs.Invalid) || w.Len() != 0 {
			t.Errorf("%d parts: %v", len(parts), err)
		}
	}
	if err := w.Add(make([]byte, 8), []byte("hi")); err != nil {
		t.Fatal(err)
	}
	for _, basename := range []string{"", "../a.mds", "/a.mds"} {
		if _, err := w.Flush(&out, basename); !errs.Is(err, errs.Invalid) || out.Len() > 0 {
			t.Errorf("%q: %v", basename, err)
		}
	}
	if _, err := w.Flush(broken{}, "a.mds"); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%v", err)
	}
	shard, err := w.Flush(&out, "a.mds") // the samples are still there
	if err != nil || w.Len() != 0 || shard.Raw.Bytes != int64(out.Len()) {
		t.Errorf("%+v: %v", shard, err)
	}

	for _, change := range []func(s *mds.Shard){
		func(s *mds.Shard) { s.Raw.Basename = "../a" },
		func(s *mds.Shard) { s.Zip = &mds.File{} },
		func(s *mds.Shard) { s.Samples = -1 },
		func(s *mds.Shard) { s.Columns = nil },
		func(s *mds.Shard) { s.Columns = append(slices.Clone(s.Columns), s.Columns[0]) },
	} {
		bad := shard
		change(&bad)
		if err := mds.WriteIndex(&out, []mds.Shard{bad}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := mds.WriteIndex(broken{}, []mds.Shard{shard}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%v", err)
	}
}

func TestEncodingSizes(t *testing.T) {
	for encoding, want := range map[string]int64{"bytes": 0, "str": 0, "int": 8, "uint8": 1, "float16": 2, "int32": 4,
		"float64": 8, "ndarray": 0, "ndarray:int16": 0, "ndarray:int16:3": 6, "ndarray:float32:2,3": 24, "list[png]": 0} {
		if size, known := mds.EncodingSize(encoding); !known || size != want {
			t.Errorf("%q: %d, %v, expected %d", encoding, size, known, want)
		}
	}
	for _, encoding := range []string{"", "own", "int:8", "ndarray:text", "ndarray:int8:0", "ndarray:int8:x",
		"ndarray:int64:4294967296,4294967296", "ndarray:int8:1:2"} {
		if size, known := mds.EncodingSize(encoding); known {
			t.Errorf("%q has size %d", encoding, size)
		}
	}
}
