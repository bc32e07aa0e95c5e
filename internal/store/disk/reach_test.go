// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A slot of the witness says what was written to it, or nothing.
func TestReachSlots(t *testing.T) {
	want := reachState{uuid: newUUID(), count: 7, manifest: 3, files: []promise{{true, 12, 345, 6}, {false, 3, 99, 2}}}
	b := want.encode()
	got, ok := decodeReach(b)
	if !ok || got.uuid != want.uuid || got.count != 7 || got.manifest != 3 || len(got.files) != 2 || got.files[0] != want.files[0] || got.files[1] != want.files[1] {
		t.Fatalf("%+v, %v", got, ok)
	}
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1
		if _, ok := decodeReach(c); ok {
			t.Fatalf("a flipped bit of byte %d is not noticed", i)
		}
	}
	for range 100 {
		want.files = append(want.files, promise{true, 1 << 62, 1 << 60, 1 << 60})
	}
	if got, ok := decodeReach(want.encode()); !ok || len(got.files) != reachMost {
		t.Errorf("a slot with too many files: %v, %d files", ok, len(got.files))
	}
}

// The durable slot of a copy stays until another one is durable, whatever power takes away.
func TestReachKeepsADurableSlot(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("store", 0o700); err != nil {
		t.Fatal(err)
	}
	r := newReach(mem, func(err error) { t.Errorf("failed: %v", err) })
	uuid := newUUID()
	if err := r.start("store", uuid); err != nil {
		t.Fatal(err)
	}
	if err := syncDir(mem, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := r.promised(promise{log: true, number: 5, bytes: int64(i + 1), records: int64(i)}); err != nil {
			t.Fatal(err)
		}
		if i == 9 {
			if err := r.flush(); err != nil {
				t.Fatal(err)
			}
		}
		s, whole, err := readReach(mem.CrashClone(vfs.CrashCloneCfg{}), "store", uuid)
		if err != nil || whole.count() != 2 {
			t.Fatalf("after %d: %d copies, %v", i, whole.count(), err)
		}
		if i >= 9 && (len(s.files) != 1 || s.files[0].bytes < 10) {
			t.Fatalf("after %d: %+v", i, s)
		}
	}
	if err := r.close(true); err != nil {
		t.Fatal(err)
	}
	s, _, _ := readReach(mem.CrashClone(vfs.CrashCloneCfg{}), "store", uuid)
	if len(s.files) != 1 || s.files[0].bytes != 20 {
		t.Errorf("after the end: %+v", s)
	}
}

// The scanner of chunks finds what Pebble wrote, and behind damage all that follows in later blocks.
func TestScanChunks(t *testing.T) {
	var file bytes.Buffer
	w := record.NewWriter(&file)
	var want [][]byte
	var count chunkCounter
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
	count.wrote(text)
	var got [][]byte
	scan, err := scanChunks(bytes.NewReader(text), false, 0, func(b []byte) error {
		got = append(got, bytes.Clone(b))
		return nil
	})
	if err != nil || scan.Records != 300 || scan.Before != 300 || count.records != 300 || len(scan.Damaged) != 0 || scan.End != int64(len(text)) {
		t.Fatalf("%+v, counted %d, %v", scan, count.records, err)
	}
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			t.Fatalf("record %d differs", i)
		}
	}
	bad := bytes.Clone(text)
	bad[chunkBlock+100] ^= 4
	scan, err = scanChunks(bytes.NewReader(bad), false, 0, nil)
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
	f.Add([]byte{9, 9, 9, 9, 0, 0, 9, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 3}, true) // damage, then what looks like a short chunk
	f.Fuzz(func(t *testing.T, b []byte, log bool) {
		n := int64(0)
		scan, err := scanChunks(bytes.NewReader(b), log, 1, func([]byte) error { n++; return nil })
		if err != nil || n != scan.Records || scan.Before > scan.Records || scan.End > int64(len(b)) || scan.Stopped < 0 || scan.Stopped > int64(len(b)) {
			t.Fatalf("%+v of %d bytes, %v", scan, len(b), err)
		}
		if log {
			return
		}
		// Whatever a manifest says, it is decoded or refused, and nothing is allocated beyond its length.
		_, _, _ = readManifest(bytes.NewReader(b))
		_ = newManifest().apply(b)
	})
}

func FuzzDecodeReach(f *testing.F) {
	s := reachState{uuid: "u", count: 1, files: []promise{{true, 1, 2, 3}}}
	f.Add(s.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := decodeReach(b); ok {
			if again, ok := decodeReach(s.encode()); !ok || again.count != s.count || len(again.files) != len(s.files) {
				t.Fatalf("%+v became %+v", s, again)
			}
		}
	})
}
