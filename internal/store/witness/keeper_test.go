// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// A slot of the witness says what was written to it, or nothing.
func TestReachSlots(t *testing.T) {
	want := State{uuid: layout.NewUUID(), count: 7, manifest: 3, files: []promise{{true, 12, 345, 6}, {false, 3, 99, 2}}}
	b := want.encode()
	got, ok := decodeReach(b)
	if !ok || got.uuid != want.uuid || got.count != 7 || got.manifest != 3 || len(got.files) != 2 ||
		got.files[0] != want.files[0] || got.files[1] != want.files[1] {
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
	r := NewKeeper(mem, func(err error) { t.Errorf("failed: %v", err) })
	uuid := layout.NewUUID()
	if err := r.Start("store", uuid); err != nil {
		t.Fatal(err)
	}
	if err := layout.SyncDir(mem, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := r.promised(promise{log: true, number: 5, bytes: int64(i + 1), records: int64(i)}); err != nil {
			t.Fatal(err)
		}
		if i == 9 {
			if err := r.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		s, whole, err := Read(mem.CrashClone(vfs.CrashCloneCfg{}), "store", uuid)
		if err != nil || whole.Count() != 2 {
			t.Fatalf("after %d: %d copies, %v", i, whole.Count(), err)
		}
		if i >= 9 && (len(s.files) != 1 || s.files[0].bytes < 10) {
			t.Fatalf("after %d: %+v", i, s)
		}
	}
	if err := r.Close(true); err != nil {
		t.Fatal(err)
	}
	s, _, _ := Read(mem.CrashClone(vfs.CrashCloneCfg{}), "store", uuid)
	if len(s.files) != 1 || s.files[0].bytes != 20 {
		t.Errorf("after the end: %+v", s)
	}
}

func FuzzDecodeReach(f *testing.F) {
	s := State{uuid: "u", count: 1, files: []promise{{true, 1, 2, 3}}}
	f.Add(s.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := decodeReach(b); ok {
			if again, ok := decodeReach(s.encode()); !ok || again.count != s.count || len(again.files) != len(s.files) {
				t.Fatalf("%+v became %+v", s, again)
			}
		}
	})
}
