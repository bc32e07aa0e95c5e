// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/open"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// flipped returns a copy with one bit changed.
func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 4
	return b
}

// TestBadInput opens data with one mistake. Without SkipBad, the error names the file and what was expected. With
// SkipBad, the rest can be read, and Bad counts what is missing.
func TestBadInput(t *testing.T) {
	a, aIndex, aDALI := archive(t, "d/a.tar", "1", "2", "3")
	b, _, _ := archive(t, "d/b.tar", "4", "55")
	shards := mdsShards(t, "d/")
	r := records(t, "one", "two", "three")
	bin, idx := tokens(t, "aabb", "ccddee")
	without := func(m memory, name string) memory {
		m = maps.Clone(m)
		delete(m, name)
		return m
	}
	past := bytes.Clone(idx) // the second sequence begins far behind the end of the .bin
	binary.LittleEndian.PutUint64(past[34+2*4+8:], 1<<40)
	for name, c := range map[string]struct {
		place memory
		from  string // source, "d" if it is empty
		o     open.Options
		kind  errs.Kind
		says  []string
		left  int64 // samples with SkipBad
		lost  int64 // samples that are known to be missing
	}{
		"truncated tar": {place: memory{"d/a.tar": a[:2*2048+1024+700], "d/b.tar": b}, kind: errs.Corrupt,
			says: []string{"d/a.tar", `"3.txt"`, "the file ends before"}, left: 4},
		"truncated tar between samples": {place: memory{"d/a.tar": a[:2*2048+700], "d/b.tar": b}, kind: errs.Corrupt,
			says: []string{"d/a.tar", `"3.cls"`}, left: 4},
		"truncated to nothing": {place: memory{"d/a.tar": nil, "d/b.tar": b}, kind: errs.Corrupt,
			says: []string{"d/a.tar", "expected a tar archive"}, left: 2},
		"truncated MDS shard": {place: shards.with("d/shard.00001.mds", shards["d/shard.00001.mds"][:90]), kind: errs.Corrupt,
			says: []string{"d/shard.00001.mds", "90 bytes", "the index says 364"}, left: 3, lost: 3},
		"truncated TFRecord": {place: memory{"d/a.tfrecord": r[:len(r)-3], "d/b.tfrecord": r}, kind: errs.Corrupt,
			says: []string{"d/a.tfrecord", "record 2 at offset 38"}, left: 5},
		"truncated .bin": {place: memory{"d/m.bin": bin[:8], "d/m.idx": idx, "d/n.bin": bin, "d/n.idx": idx},
			kind: errs.Corrupt, says: []string{"d/m.idx", "sequence 1", "8"}, left: 2},
		"truncated .npy": {place: memory{"d/a.npy": array(t, "abc", "def")[:132], "d/b.npy": array(t, "ghi")},
			o: open.Options{Format: open.NPY}, kind: errs.Corrupt, says: []string{"d/a.npy", "expected 6"}, left: 1},
		"truncated index": {place: memory{"d/a.tar": a, "d/a.tar.nbx": aIndex[:50], "d/b.tar": b}, kind: errs.Corrupt,
			says: []string{"d/a.tar", "index is damaged", "nebulaio index"}, left: 5},
		"index of another tar": {place: memory{"d/a.tar": a, "d/b.tar": b, "d/b.tar.nbx": aIndex}, kind: errs.Corrupt,
			says: []string{"d/b.tar", "another archive", "fingerprint", "nebulaio index"}, left: 5},
		"index of a truncated tar": {place: memory{"d/a.tar": a[:2*2048+700], "d/b.tar": b, "d/a.tar.nbx": aIndex},
			kind: errs.Corrupt, says: []string{"d/a.tar", "this archive has 4796"}, left: 4},
		"DALI's index of another tar": {place: memory{"d/a.tar": a, "d/b.tar": b, "d/b.idx": aDALI}, kind: errs.Corrupt,
			says: []string{"d/b.idx", "d/b.tar", `its name is "4.cls", expected "1.cls"`}, left: 5},
		"offsets past the end, DALI": {place: memory{"d/a.tar": a, "d/b.tar": b,
			"d/b.idx": []byte("v1.2 1\ncls 1048576 1 4.cls\n")}, kind: errs.Corrupt,
			says: []string{"d/b.idx", `sample 0 ("4")`, "1 bytes at offset 1048576 end after the file"}, left: 5},
		"offsets past the end, Megatron": {place: memory{"d/m.bin": bin, "d/m.idx": past, "d/n.bin": bin, "d/n.idx": idx},
			kind: errs.Corrupt, says: []string{"d/m.idx", "sequence 1", "1099511627776"}, left: 2},
		"missing shard": {place: without(shards, "d/shard.00000.mds"), kind: errs.NotFound,
			says: []string{"d/shard.00000.mds"}, left: 3, lost: 3},
		"missing .bin": {place: memory{"d/m.idx": idx, "d/n.bin": bin, "d/n.idx": idx},
			o: open.Options{Format: open.Megatron}, kind: errs.NotFound, says: []string{"d/m.bin"}, left: 2},
		"missing name of braces": {place: memory{"d/a.tar": a, "d/c.tar": b}, from: "d/{a,b,c}.tar", kind: errs.NotFound,
			says: []string{"d/b.tar"}, left: 5},
		"sample over the limit": {place: memory{"d/a.tar": a, "d/b.tar": b}, o: open.Options{MaxSample: 9},
			kind: errs.Invalid,
			says: []string{`sample 1 ("55") of d/b.tar, part "txt"`, "has 10 bytes, at most 9 are allowed"}, left: 4, lost: 1},
		"file over the limit": {place: memory{"d/a.txt": []byte("large"), "d/b.txt": nil}, o: open.Options{MaxSample: 3},
			kind: errs.Invalid, says: []string{"d/a.txt", "has 5 bytes, at most 3 are allowed"}, left: 1, lost: 1},
		"part of a group over the limit": {place: memory{"d/a.txt": []byte("large"), "d/a.cls": nil, "d/b.txt": nil,
			"d/b.cls": nil}, o: open.Options{MaxSample: 3}, kind: errs.Invalid,
			says: []string{"d/a.txt", "has 5 bytes, at most 3 are allowed"}, left: 1, lost: 1},
		"flipped bit": {place: memory{"d/a.tar": flipped(a, 600), "d/a.tar.crc64nvme": sums(a), "d/b.tar": b},
			o: open.Options{Verify: true}, kind: errs.Corrupt, says: []string{"d/a.tar", "bytes 0 to 10240", "expected"},
			left: 2},
		"flipped bit of an MDS shard": {place: shards.with("d/shard.00001.mds", flipped(shards["d/shard.00001.mds"], 340)),
			o: open.Options{Verify: true}, kind: errs.Corrupt, says: []string{"d/shard.00001.mds", "sha1", "expected"}, left: 3,
			lost: 3},
		"flipped bit of a record": {place: memory{"d/a.tfrecord": flipped(r, 19+12+1)}, o: open.Options{Verify: true},
			kind: errs.Corrupt, says: []string{"d/a.tfrecord", "record 1 at offset 19", "CRC"}, left: 2, lost: 1},
		"flipped bit of a loose file": {place: memory{"d/a.txt": []byte("B"), "d/a.txt.crc64nvme": sums([]byte("A")),
			"d/b.txt": nil}, o: open.Options{Verify: true}, kind: errs.Corrupt, says: []string{"d/a.txt", "expected"}, left: 1,
			lost: 1},
		"sums of another file": {place: memory{"d/a.tar": a, "d/b.tar": b, "d/a.tar.crc64nvme": sums(b[:1000])},
			o: open.Options{Verify: true}, kind: errs.Corrupt, says: []string{"d/a.tar", "1000"}, left: 2},
	} {
		t.Run(name, func(t *testing.T) {
			from := c.from
			if from == "" {
				from = "d"
			}
			refused(t, c.place, c.o, c.kind, from, c.says...)
			o := c.o
			o.SkipBad = true
			d := must(t, c.place, o, from)
			lost := int64(0)
			for _, bad := range d.Bad {
				lost += bad.Samples
			}
			if d.Set.Len() != c.left || len(d.Bad) != 1 || d.BadAll != 1 || lost != c.lost {
				t.Fatalf("%d samples are left and %d lost, expected %d and %d; bad: %v", d.Set.Len(), lost, c.left, c.lost, d.Bad)
			}
			if !errs.Is(d.Bad[0].Why, c.kind) || !strings.Contains(d.Bad[0].Name, strings.Split(c.says[0], " ")[0]) &&
				!strings.Contains(c.says[0], d.Bad[0].Name) && !strings.Contains(d.Bad[0].Why.Error(), c.says[0]) {
				t.Errorf("%q: %v", d.Bad[0].Name, d.Bad[0].Why)
			}
			texts(t, c.place, d) // each sample that is left can be read
		})
	}
}

// TestNothingIsLeft opens data that is all bad: SkipBad does not return an empty data set.
func TestNothingIsLeft(t *testing.T) {
	skip := open.Options{SkipBad: true}
	shards := mdsShards(t, "d/")
	refused(t, memory{"d/index.json": shards["d/index.json"]}, skip, errs.NotFound, "d", "no sample is left", "2 files",
		"d/shard.00000.mds")
	refused(t, memory{"d/a.tar": []byte("x"), "d/b.tar": nil}, skip, errs.Corrupt, "d", "no sample is left", "d/a.tar")
	refused(t, memory{"e": nil}, skip, errs.NotFound, "d-{0..3}.tar", "d-0.tar", "no sample is left: 4 files")
	refused(t, memory{"e": nil}, skip, errs.NotFound, "d", "d")
	refused(t, memory{"d/a.txt": []byte("abc")}, open.Options{SkipBad: true, MaxSample: 1}, errs.Invalid, "d",
		"no sample is left", "at most 1")
}

// TestSeveralSourcesOfWhichOneIsMissing skips the missing one only if the caller says so.
func TestSeveralSourcesOfWhichOneIsMissing(t *testing.T) {
	a, _, _ := archive(t, "a.tar", "1")
	m := memory{"a.tar": a}
	if _, err := open.Open(t.Context(), m, []string{"a.tar", "b.tar"}, open.Options{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
	d := must(t, m, open.Options{SkipBad: true}, "b.tar", "a.tar")
	if d.Set.Len() != 1 || len(d.Bad) != 1 || d.Bad[0].Name != "b.tar" {
		t.Errorf("%d samples, bad: %v", d.Set.Len(), d.Bad)
	}
}

// TestManyBadSamples counts all bad samples and lists the first.
func TestManyBadSamples(t *testing.T) {
	rows := make([]string, 3*open.MostBad)
	for i := range rows {
		rows[i] = "large"
	}
	m := memory{"a.npy": array(t, rows...), "b.npy": array(t, "x")}
	d := must(t, m, open.Options{SkipBad: true, MaxSample: 2}, "a.npy", "b.npy")
	if d.Set.Len() != 1 || d.BadAll != 3*open.MostBad || len(d.Bad) != open.MostBad {
		t.Errorf("%d samples, %d of %d bad ones are listed", d.Set.Len(), len(d.Bad), d.BadAll)
	}
}

// TestHostileIndexes names files outside of the folder, or has absurd numbers.
func TestHostileIndexes(t *testing.T) {
	shards := mdsShards(t, "d/")
	index := string(shards["d/index.json"])
	for _, name := range []string{"../secret", "/etc/passwd", "a/../../x", "..", "", "C:\\x", "a\x00b"} {
		quoted := fmt.Sprintf("%q", name)
		m := shards.with("d/index.json", []byte(strings.Replace(index, `"shard.00000.mds"`, quoted, 1)))
		d, err := open.Open(t.Context(), m, []string{"d"}, open.Options{})
		if err == nil {
			t.Errorf("MDS %q: %d samples", name, d.Set.Len())
		}
	}
	lit := `{"chunks":[{"chunk_bytes":%d,"chunk_size":%d,"dim":null,"filename":%q}],"config":{"chunk_bytes":1,` +
		`"chunk_size":null,"compression":null,"data_format":["int"],"data_spec":"[1,{\"type\":null,\"context\":null}]"}}`
	for _, text := range []string{fmt.Sprintf(lit, 10, 1, "../x.bin"), fmt.Sprintf(lit, 10, 1<<40, "x.bin"),
		fmt.Sprintf(lit, -1, -1, "x.bin"), `{"chunks":null,"config":null}`, `{"chunks":[]}`, `{"chunks":{}}`,
		`{"shards":[],"version":2}`, `{"shards":[{}],"version":2}`, strings.Repeat(`[`, 100000)} {
		m := memory{"d/index.json": []byte(text), "d/x.bin": bytes.Repeat([]byte{1}, 10), "x.bin": []byte("secret")}
		if d, err := open.Open(t.Context(), m, []string{"d"}, open.Options{}); err == nil && d.Format != open.Files {
			t.Errorf("%.60s: %d samples of %s", text, d.Set.Len(), d.Format)
		}
	}
}

// TestTheOrderOfBadFiles does not depend on which file was read first.
func TestTheOrderOfBadFiles(t *testing.T) {
	m := memory{"d/ok.tfrecord": records(t, "x")}
	for i := range 40 {
		m[fmt.Sprintf("d/%02d.tfrecord", i)] = flipped(records(t, "one", "two"), 13)
	}
	d := must(t, m, open.Options{SkipBad: true, Verify: true}, "d")
	if d.Set.Len() != 41 || d.BadAll != 40 || !slices.IsSortedFunc(d.Bad, func(a, b open.Bad) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		t.Errorf("%d samples, %d bad", d.Set.Len(), d.BadAll)
	}
}
