// SPDX-License-Identifier: Apache-2.0

package mds_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const goodIndex = `{"version": 2, "shards": [{"version": 2, "format": "mds", "column_names": ["a"],
"column_encodings": ["bytes"], "column_sizes": [null], "compression": null, "hashes": [], "size_limit": "64mb",
"samples": 1, "raw_data": {"basename": "shard.00000.mds", "bytes": 200, "hashes": {}}, "zip_data": null}]}`

func TestBadIndexesAreRefused(t *testing.T) {
	if x, err := mds.ParseIndex([]byte(goodIndex), "index.json"); err != nil || x.Shards[0].SizeLimit != 0 {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		kind     errs.Kind
		says     string
	}{
		{goodIndex, "", errs.Corrupt, "it is not an index in JSON"},
		{goodIndex, "[]", errs.Corrupt, "it is not an index in JSON"},
		{goodIndex, goodIndex + "x", errs.Corrupt, "it is not an index in JSON"},
		{`{"version": 2, "sh`, `{"version": 1, "sh`, errs.Unsupported, "version 1, expected version 2"},
		{`[{"version": 2`, `[{"version": 3`, errs.Unsupported, "shard 0: version 3, expected version 2"},
		{`"format": "mds"`, `"format": "csv"`, errs.Unsupported, `shard 0: format "csv", expected "mds"`},
		{`["a"]`, `[]`, errs.Corrupt, "shard 0: it has no columns"},
		{`["a"]`, `["a", "b"]`, errs.Corrupt, "2 column names, 1 encodings and 1 sizes"},
		{`["a"]`, `[7]`, errs.Corrupt, "it is not an index in JSON"},
		{`["a"],
"column_encodings": ["bytes"], "column_sizes": [null]`, `["a", "a"],
"column_encodings": ["bytes", "str"], "column_sizes": [null, 1]`, errs.Corrupt, `column "a" is there twice`},
		{`[null]`, `[0]`, errs.Corrupt, `column "a" has size 0, expected 1 to 4294967295 or null`},
		{`[null]`, `[-8]`, errs.Corrupt, `column "a" has size -8`},
		{`[null]`, `[4294967296]`, errs.Corrupt, `column "a" has size 4294967296`},
		{`"samples": 1`, `"samples": -1`, errs.Corrupt, "samples is -1, expected 0 to 4294967295"},
		{`"samples": 1`, `"samples": 1152921504606846976`, errs.Corrupt, "samples is 1152921504606846976"},
		{`"samples": 1,`, ``, errs.Corrupt, "samples is missing"},
		{`"bytes": 200`, `"bytes": -200`, errs.Corrupt, "bytes is -200, expected 0 or more"},
		{`"bytes": 200, `, ``, errs.Corrupt, "bytes is missing"},
		{`"raw_data"`, `"raw"`, errs.Corrupt, "it has no raw_data"},
		{`"zip_data": null`, `"zip_data": {"basename": "../x", "bytes": 1}`, errs.Corrupt, `zip_data: basename "../x"`},
		{`shard.00000.mds`, ``, errs.Corrupt, `raw_data: basename "", expected a file in the directory of the index`},
		{`shard.00000.mds`, `/etc/passwd`, errs.Corrupt, `basename "/etc/passwd"`},
		{`shard.00000.mds`, `..`, errs.Corrupt, `basename ".."`},
		{`shard.00000.mds`, `.`, errs.Corrupt, `basename "."`},
		{`shard.00000.mds`, `a/../../x`, errs.Corrupt, `basename "a/../../x"`},
		{`shard.00000.mds`, `a/../x`, errs.Corrupt, `basename "a/../x"`},
		{`shard.00000.mds`, `a/`, errs.Corrupt, `basename "a/"`},
		{`shard.00000.mds`, `..\\x`, errs.Corrupt, `basename "..\\x"`},
		{`shard.00000.mds`, `C:x`, errs.Corrupt, `basename "C:x"`},
		{`shard.00000.mds`, `a\u0000`, errs.Corrupt, `basename "a\x00"`},
	} {
		if !strings.Contains(goodIndex, c.from) {
			t.Fatalf("the index has no %s", c.from)
		}
		_, err := mds.ParseIndex([]byte(strings.Replace(goodIndex, c.from, c.to, 1)), "d/index.json")
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || errs.FixOf(err) == "" ||
			!strings.Contains(err.Error(), "d/index.json") {
			t.Errorf("%q for %q: %v, expected %q", c.to, c.from, err, c.says)
		}
	}
}

// u32 returns data with one number replaced.
func u32(data []byte, at int, value uint32) []byte {
	data = bytes.Clone(data)
	binary.LittleEndian.PutUint32(data[at:], value)
	return data
}

func TestBadShardsAreRefused(t *testing.T) {
	s := parse(t, "mixed").Shards[0]
	data := load(t, "mixed", s.Raw.Basename)
	n := int(s.Samples)
	first := int(binary.LittleEndian.Uint32(data[4:]))
	second := binary.LittleEndian.Uint32(data[8:])
	config := 4 + 4*(n+1)
	for _, c := range []struct {
		name string
		data []byte
		says string
	}{
		{"empty", nil, "it has 0 bytes, expected at least 8"},
		{"short", data[:7], "it has 7 bytes, expected at least 8"},
		{"count", u32(data, 0, 1<<32-1), "it says that it has 4294967295 samples"},
		{"count of other table", u32(data, 0, uint32(n-1)), "its samples end at offset"},
		{"truncated", data[:len(data)-1], "its samples end at offset 645, but the file has 644 bytes"},
		{"longer", append(bytes.Clone(data), 0), "its samples end at offset 645, but the file has 646 bytes"},
		{"offset into the table", u32(data, 4, uint32(config-1)), "offset 0 of the table is"},
		{"offset back", u32(data, 8, uint32(first-1)), "offset 1 of the table is"},
		{"offset past the next", u32(data, 8, 1<<32-1), "offset 2 of the table is"},
		{"offset past the file", u32(data, 4*(n+1), uint32(len(data)+1)),
			"its samples end at offset 646, but the file has 645"},
		{"sample too short", u32(data, 8, uint32(first+3)), "sample 0 at offset"},
		{"head too large", u32(data, first, 1<<32-1), "but the sizes in its head add up to"},
		{"head too small", u32(data, first+4, 0), "but the sizes in its head add up to"},
		{"moved border", u32(data, 8, second+1), "but the sizes in its head add up to"},
		{"config cut", u32(data, 4, uint32(first-1)), "is not JSON"},
		{"config of other version", bytes.Replace(data, []byte(`"version": 2`), []byte(`"version": 3`), 1), "version 3"},
		{"config of other sizes", bytes.Replace(data, []byte(`[24, null, 8`), []byte(`[25, null, 8`), 1),
			"has size 25, but the index says"},
	} {
		shard := s
		shard.Raw.Bytes = int64(len(c.data))
		for _, info := range []*mds.Shard{&shard, nil} {
			_, err := open(c.data, info)
			switch {
			case info == nil && c.name == "config of other sizes":
				if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "add up to") {
					t.Errorf("%s: %v", c.name, err)
				}
			case !errs.Is(err, errs.Corrupt) && c.name != "config of other version" || err == nil ||
				!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "x.mds") || errs.FixOf(err) == "":
				t.Errorf("%s: %v, expected %q", c.name, err, c.says)
			}
		}
	}
}

func TestTheIndexIsComparedWithTheShard(t *testing.T) {
	data := load(t, "mixed", "shard.00000.mds")
	for _, c := range []struct {
		change func(s *mds.Shard)
		kind   errs.Kind
		says   string
	}{
		{func(s *mds.Shard) { s.Samples++ }, errs.Corrupt, "samples, but the index says"},
		{func(s *mds.Shard) { s.Raw.Bytes++ }, errs.Corrupt, "it has 645 bytes, but the index says 646"},
		{func(s *mds.Shard) { s.Columns = s.Columns[1:] }, errs.Corrupt, "it has 4 columns, but the index says 3"},
		{func(s *mds.Shard) { s.Columns = nil }, errs.Invalid, "the entry of the index has no columns"},
	} {
		s := parse(t, "mixed").Shards[0]
		c.change(&s)
		if _, err := open(data, &s); !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, expected %q", err, c.says)
		}
	}

	// A shard without a configuration: 1 sample with the part "hi".
	bare := []byte{1, 0, 0, 0, 12, 0, 0, 0, 18, 0, 0, 0, 2, 0, 0, 0, 'h', 'i'}
	if _, err := open(bare, nil); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "does not describe its columns") {
		t.Errorf("%v", err)
	}
	s := mds.Shard{Columns: []mds.Column{{Name: "a"}}, Samples: 1, Raw: mds.File{Bytes: 18}}
	table, err := open(bare, &s)
	if err != nil || string(values(table, bare)[0]["a"]) != "hi" {
		t.Errorf("%v", err)
	}
}

// A count of samples that the file has no room for allocates no table.
func TestHostileCountsAllocateNothing(t *testing.T) {
	data := make([]byte, 1<<20) // all samples are empty, between two equal offsets
	n := uint32(len(data)/4 - 2)
	for i := range n + 2 {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(len(data)))
	}
	binary.LittleEndian.PutUint32(data, n)
	s := mds.Shard{Samples: int64(n), Raw: mds.File{Bytes: int64(len(data))}}
	for i := range 1000 {
		s.Columns = append(s.Columns, mds.Column{Name: string(rune('a' + i))})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := open(data, &s)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; !errs.Is(err, errs.Corrupt) || got > 8<<20 {
		t.Errorf("%d bytes were allocated for a file of %d bytes: %v", got, len(data), err)
	}
}

// reads counts reads, and fails after some.
type reads struct {
	io.ReaderAt
	count, bytes, fail int
}

func (r *reads) ReadAt(p []byte, at int64) (int, error) {
	if r.count++; r.count == r.fail {
		return 0, errors.New("unplugged")
	}
	r.bytes += len(p)
	return r.ReaderAt.ReadAt(p, at)
}

// Small samples are read in large pieces, and of large samples only the heads are read.
func TestReadsAreFew(t *testing.T) {
	columns := []mds.Column{{"a", "bytes", 0}, {"b", "bytes", 0}}
	for _, c := range []struct{ samples, size, mostReads, mostBytes int }{
		{50_000, 20, 3 + 6, 3 << 20},
		{20, 200 << 10, 3 + 20, 200 << 10},
	} {
		w, err := mds.NewWriter(columns, mds.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range c.samples {
			if err := w.Add(make([]byte, c.size), nil); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		shard, err := w.Flush(&out, "a.mds")
		if err != nil {
			t.Fatal(err)
		}
		r := &reads{ReaderAt: bytes.NewReader(out.Bytes())}
		table, err := mds.Open(r, shard.Raw.Bytes, "a.mds", &shard)
		if err != nil || table.Len() != c.samples || r.count > c.mostReads || r.bytes > c.mostBytes {
			t.Errorf("%d samples: %d reads of %d bytes: %v", c.samples, r.count, r.bytes, err)
		}
		for i := 1; i <= r.count; i++ {
			failing := &reads{ReaderAt: bytes.NewReader(out.Bytes()), fail: i}
			if _, err := mds.Open(failing, shard.Raw.Bytes, "a.mds", &shard); err == nil ||
				!strings.HasPrefix(err.Error(), "read MDS shard a.mds: ") || !strings.HasSuffix(err.Error(), "unplugged") {
				t.Errorf("read %d fails: %v", i, err)
			}
		}
	}
}
