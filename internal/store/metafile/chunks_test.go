// SPDX-License-Identifier: Apache-2.0

package metafile

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
)

// The scanner of chunks finds what Pebble wrote, and behind damage all that follows in later blocks.
func TestScanChunks(t *testing.T) {
	var file bytes.Buffer
	w := record.NewWriter(&file)
	var want [][]byte
	var count Counter
	for i := range 300 {
		b := bytes.Repeat([]byte{byte(i)}, i*7+1)
		want = append(want, b)
		if _, err := w.WriteRecord(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text := file.Bytes()
	count.Wrote(text)
	var got [][]byte
	scan, err := Scan(bytes.NewReader(text), false, 0, func(b []byte) error {
		got = append(got, bytes.Clone(b))
		return nil
	})
	if err != nil || scan.Records != 300 || scan.Before != 300 || count.Records != 300 || len(scan.Damaged) != 0 ||
		scan.End != int64(len(text)) {
		t.Fatalf("%+v, counted %d, %v", scan, count.Records, err)
	}
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			t.Fatalf("record %d differs", i)
		}
	}
	bad := bytes.Clone(text)
	bad[chunkBlock+100] ^= 4
	scan, err = Scan(bytes.NewReader(bad), false, 0, nil)
	if err != nil || scan.Before >= scan.Records || scan.Records >= 300 || len(scan.Damaged) != 1 {
		t.Errorf("with damage: %+v, %v", scan, err)
	}
}

func FuzzScanChunks(f *testing.F) {
	var file bytes.Buffer
	w := record.NewWriter(&file)
	_, _ = w.WriteRecord([]byte("one"))
	_, _ = w.WriteRecord(bytes.Repeat([]byte("two"), 20000))
	f.Add(file.Bytes(), false)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 5, 2, 0, 0, 0}, true)
	// damage, then what looks like a short chunk
	f.Add([]byte{9, 9, 9, 9, 0, 0, 9, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 3}, true)
	f.Fuzz(func(t *testing.T, b []byte, log bool) {
		n := int64(0)
		scan, err := Scan(bytes.NewReader(b), log, 1, func([]byte) error { n++; return nil })
		if err != nil || n != scan.Records || scan.Before > scan.Records || scan.End > int64(len(b)) || scan.Stopped < 0 ||
			scan.Stopped > int64(len(b)) {
			t.Fatalf("%+v of %d bytes, %v", scan, len(b), err)
		}
		if log {
			return
		}
		// Whatever a manifest says, it is decoded or refused, and nothing is allocated beyond its length.
		_, _, _ = ReadManifest(bytes.NewReader(b))
		_ = NewManifest().apply(b)
	})
}
