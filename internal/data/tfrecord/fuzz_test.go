// SPDX-License-Identifier: Apache-2.0

package tfrecord_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// FuzzOpen checks that no file makes Open panic, and that the records of an accepted file fill the file. If the data
// has its CRCs, writing the records again gives the same file and index. The fuzzer cannot guess a CRC, so the
// test also writes a valid file whose records are pieces of the input. Open must accept that file.
func FuzzOpen(f *testing.F) {
	f.Add(unhex(f, golden))
	f.Add(unhex(f, golden)[:40])
	f.Add(patch(f, 28, 'H'))
	f.Add(append(header(1<<60), 0, 0, 0, 0))
	f.Add(readFile(f, "gzip.tfrecord"))
	f.Add([]byte{0x78, 0x9c, 3, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := open(file, false)
		strict, strictErr := open(file, true)
		for _, err := range []error{err, strictErr} {
			if k := errs.KindOf(err); err != nil && (k != errs.Corrupt && k != errs.Unsupported || errs.FixOf(err) == "") {
				t.Fatalf("error is %v of kind %v", err, k)
			}
		}
		if strictErr == nil && (err != nil || !reflect.DeepEqual(s.Table, strict.Table)) {
			t.Fatalf("the check of the data lists other records: %v", err)
		}
		if err == nil {
			end := int64(0)
			bad := -1
			for i := range s.Table.Len() {
				e, ok := s.Table.Part(i, 0)
				if !ok || e.Offset != end+12 || e.Size < 0 || s.Check(i) != nil {
					t.Fatalf("record %d is %v, after byte %d: %v", i, e, end, s.Check(i))
				}
				end = e.Offset + e.Size + 4
				if s.CheckData(i) != nil && bad < 0 {
					bad = i
				}
			}
			if end != int64(len(file)) || (bad < 0) != (strictErr == nil) {
				t.Fatalf("the records end at %d of %d bytes; record %d has a wrong CRC: %v", end, len(file), bad, strictErr)
			}
			if again, _ := write(t, contents(s.Table, file)); bytes.Equal(again, file) != (strictErr == nil) {
				t.Fatalf("written again: %x", again)
			}
		}
		records := bytes.SplitAfter(file, []byte{0})
		made, index := write(t, records)
		s, err = open(made, true)
		if err != nil || !reflect.DeepEqual(contents(s.Table, made), records) {
			t.Fatalf("%q: %v", records, err)
		}
		if x, err := openIndex(index, made); err != nil || !reflect.DeepEqual(x.Table, s.Table) {
			t.Fatalf("the index lists other records: %v", err)
		}
	})
}

// FuzzOpenIndex checks that no index makes OpenIndex panic or list a record outside of the file, and that an accepted
// index that is written again lists the same records.
func FuzzOpenIndex(f *testing.F) {
	for _, seed := range []string{goldenIndex, "", "0 16", "0 16\r\n", "0 15\n", "90 16\n",
		"1 99999999999999999999\n", "0  16\n"} {
		f.Add(seed)
	}
	file := unhex(f, golden)
	f.Fuzz(func(t *testing.T, index string) {
		s, err := openIndex(index, file)
		if err != nil {
			if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Unsupported || errs.FixOf(err) == "" {
				t.Fatalf("error is %v of kind %v", err, k)
			}
			return
		}
		for i := range s.Table.Len() {
			e, ok := s.Table.Part(i, 0)
			if !ok || e.Offset < 12 || e.Size < 0 || e.Offset+e.Size+4 > int64(len(file)) {
				t.Fatalf("record %d is %v", i, e)
			}
			if err := s.CheckData(i); err != nil && !errs.Is(err, errs.Corrupt) {
				t.Fatalf("record %d: %v", i, err)
			}
		}
		var again bytes.Buffer
		if err := tfrecord.WriteIndex(&again, "y.idx", s.Table); err != nil {
			t.Fatal(err)
		}
		x, err := openIndex(again.String(), file)
		if err != nil || !reflect.DeepEqual(x.Table, s.Table) {
			t.Fatalf("written again as %q: %v", again.String(), err)
		}
	})
}
