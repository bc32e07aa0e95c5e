// SPDX-License-Identifier: Apache-2.0

package wds_test

import (
	"bytes"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// inside fails unless every extent lies inside of the file, and no two overlap.
func inside(t *testing.T, table *sample.Table, size int64) {
	t.Helper()
	var all []sample.Extent
	for i := range table.Len() {
		for c := range table.Columns() {
			if e, ok := table.Part(i, c); ok {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b sample.Extent) int { return int(a.Offset - b.Offset) })
	at := int64(0)
	for _, e := range all {
		if e.Offset < at+512 || e.Size < 0 || e.Offset+e.Size > size {
			t.Fatalf("extent %+v, after %d, in a file of %d bytes", e, at, size)
		}
		at = e.Offset + e.Size
	}
}

// FuzzOpen opens any bytes. What can be opened has all extents in the file, has an index, and can be written again.
func FuzzOpen(f *testing.F) {
	f.Add(bytes.TrimRight(fixture(f, "dali-odd"), "\x00")) // a small seed: large seeds slow the fuzzer down
	f.Add(fixture(f, "webdataset-times")[:3*512])
	f.Add([]byte(file("p", "14 path=k.jpg\n", 'x') + file("cut", "xyz", '0') + file("k.__bad__", "", '0')))
	f.Add([]byte(file("L", "k.jpg", 'L') + file("cut", "xyz", '0') + end))
	f.Add([]byte(file("K", "t", 'K') + file("L", "k.jpg", 'L') + file("p", "13 comment=x\n", 'x') +
		file("k.txt", "", '0')))
	f.Add([]byte(file("g", "13 comment=x\n", 'g') + file("p", "9 size=3\n", 'x') + file("a.b", "xyz", '0')))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = fixSums(b)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := open(b)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(20*len(b))+2<<20 {
			t.Fatalf("allocated %d bytes for an archive of %d", used, len(b))
		}
		if err != nil {
			if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Unsupported {
				t.Fatalf("error of kind %v: %v", k, err)
			}
			return
		}
		inside(t, s.Table, int64(len(b)))
		checkIndex(t, s)
		rewrite(t, s, b)
	})
}

// fixSums corrects the checksums of the first headers, so that the fuzzer reaches what is behind them.
func fixSums(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; at+512 <= len(b) && at < 64*512; at += 512 {
		if h := b[at : at+512]; h[257] == 'u' && h[258] == 's' {
			sum := 8 * int(' ')
			for i, c := range h {
				if i < 148 || i >= 156 {
					sum += int(c)
				}
			}
			for i := range 6 {
				h[148+i] = '0' + byte(sum>>(3*(5-i))&7)
			}
			h[154], h[155] = 0, ' '
		}
	}
	return b
}

// rewrite writes the samples of an archive again, and expects to read the same. Names that a Writer refuses end the
// test.
func rewrite(t *testing.T, s *wds.Shard, b []byte) {
	t.Helper()
	for _, align := range []int{0, 4096} {
		var out bytes.Buffer
		w, err := wds.NewWriter(&out, "x.tar", wds.Options{Align: align})
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Table.Len() {
			var parts []wds.Part
			var at []int64
			for c, ext := range s.Table.Columns() {
				if e, ok := s.Table.Part(i, c); ok {
					n, _ := slices.BinarySearch(at, e.Offset)
					at = slices.Insert(at, n, e.Offset)
					parts = slices.Insert(parts, n, wds.Part{Ext: ext, Size: e.Size, Data: bytes.NewReader(b[e.Offset:][:e.Size])})
				}
			}
			if _, err := w.Add(s.Table.Key(i), parts...); errs.Is(err, errs.Invalid) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
		shard, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		again, err := open(out.Bytes())
		if err != nil || !reflect.DeepEqual(shard, again) {
			t.Fatalf("%v: the Writer returns\n%+v, and Open\n%+v", err, shard, again)
		}
		if got, want := contents(again.Table, out.Bytes()), contents(s.Table, b); !reflect.DeepEqual(got, want) ||
			!slices.Equal(again.Table.Columns(), s.Table.Columns()) {
			t.Fatalf("read\n%q, wrote\n%q", got, want)
		}
	}
}

// FuzzReadIndex reads any bytes with a correct sum. What can be read can be written and read again.
func FuzzReadIndex(f *testing.F) {
	for _, name := range []string{"dali-odd", "gnutar-gnu", "webdataset"} {
		s, err := open(fixture(f, name))
		if err != nil {
			f.Fatal(err)
		}
		b := index(f, s)
		f.Add(b[:len(b)-8])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := resealed(slices.Clone(body))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := readIndex(b)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(64*len(b))+64<<10 {
			t.Fatalf("allocated %d bytes for an index of %d", used, len(b))
		}
		if err != nil {
			if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Unsupported {
				t.Fatalf("error of kind %v: %v", k, err)
			}
			return
		}
		checkIndex(t, s)
	})
}

// FuzzReadDALI reads any text. What DALI's format can hold is written and read again.
func FuzzReadDALI(f *testing.F) {
	f.Add([]byte("v1.2 2\njpg 512 5 a.jpg txt 1536 0 a.txt\njpg 2048 1 d/b.jpg\n"))
	f.Add([]byte("v1.2 3\njpg 512 5 a.JPG\nREADME 1536 6 README\ncls 2560 5 a.cls\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := wds.ReadDALI(text, "x.idx", "x.tar", 1<<20)
		if err != nil {
			if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Unsupported {
				t.Fatalf("error of kind %v: %v", k, err)
			}
			return
		}
		var b bytes.Buffer
		if err := wds.WriteDALI(&b, table); err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatal(err)
			}
			return
		}
		again, err := wds.ReadDALI(b.Bytes(), "x.idx", "x.tar", 1<<20)
		if err != nil {
			t.Fatalf("%v, of %q", err, &b)
		}
		for i := range table.Len() {
			if i > 0 && table.Key(i) == table.Key(i-1) {
				return // ReadDALI joins adjacent lines with the same key, as Open does with members
			}
		}
		if table.Len() != again.Len() {
			t.Fatalf("%d samples, expected %d, from %q", again.Len(), table.Len(), &b)
		}
		for i := range table.Len() {
			for c, ext := range table.Columns() {
				want, ok := table.Part(i, c)
				if !ok {
					want = sample.Absent()
				}
				got := sample.Absent()
				if c := again.Column(ext); c >= 0 {
					got, _ = again.Part(i, c)
				}
				if got != want || again.Key(i) != table.Key(i) {
					t.Fatalf("sample %d, %q: %v, expected %v, from %q", i, ext, got, want, &b)
				}
			}
		}
	})
}
