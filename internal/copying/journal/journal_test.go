// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/nebulaio/nebulaio/internal/copying/journal"
	"github.com/nebulaio/nebulaio/internal/object"
)

var thing = object.Identity{Origin: "http://localhost:9000", Key: "b/k", ETag: "e", Size: 5<<20 + 1}

// folder opens the directory of a file.
func folder(t testing.TB, path string) *os.Root {
	t.Helper()
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

// write makes a journal with a record of each sum, and returns its path.
func write(t *testing.T, sums journal.Sums) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "j")
	j, err := journal.Create(folder(t, path), "j", thing)
	if err != nil {
		t.Fatal(err)
	}
	for block, sum := range sums {
		j.Add(block, sum)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRecordsSurvive(t *testing.T) {
	want := journal.Sums{0: 7, 3: 1 << 63, 5: 0}
	path := write(t, want)
	j, got, err := journal.Open(folder(t, path), "j", thing)
	if err != nil || j == nil || !maps.Equal(got, want) {
		t.Fatalf("%v, %v, %v; expected %v", j, got, err, want)
	}
	j.Add(4, 9)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, got, err = journal.Open(folder(t, path), "j", thing)
	if want[4] = 9; err != nil || j == nil || !maps.Equal(got, want) {
		t.Fatalf("%v, %v; expected %v", got, err, want)
	}
	j.Close()
}

// TestOtherContentIsNotResumed changes each part of the identity.
func TestOtherContentIsNotResumed(t *testing.T) {
	path := write(t, journal.Sums{0: 7})
	for _, change := range []func(*object.Identity){
		func(i *object.Identity) { i.ETag = "f" }, func(i *object.Identity) { i.Size-- },
		func(i *object.Identity) { i.Version = "1" }, func(i *object.Identity) { i.Key += "x" },
		func(i *object.Identity) { i.Origin += "x" }} {
		other := thing
		change(&other)
		if j, _, err := journal.Open(folder(t, path), "j", other); j != nil || err != nil {
			t.Errorf("%+v: %v, %v", other, j, err)
		}
	}
	if j, _, err := journal.Open(folder(t, path), "x", thing); j != nil || err != nil {
		t.Errorf("a missing journal: %v, %v", j, err)
	}
}

// TestDamageLosesOnlyRecords cuts the journal at every byte and changes every byte: the records that remain are those
// that were written.
func TestDamageLosesOnlyRecords(t *testing.T) {
	want := journal.Sums{0: 7, 1: 8, 2: 9}
	path := write(t, want)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte) {
		id, _, sums, _, err := journal.Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		for block, sum := range sums {
			if want[block] != sum {
				t.Errorf("%s: block %d has the sum %d", what, block, sum)
			}
		}
		if id != thing {
			t.Errorf("%s: the identity is %+v", what, id)
		}
	}
	for i := range whole {
		check("cut", whole[:i])
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		check("changed", b)
	}
	if err := os.WriteFile(path, whole[:len(whole)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	j, sums, err := journal.Open(folder(t, path), "j", thing)
	if err != nil || len(sums) != 2 {
		t.Fatalf("%v, %v", sums, err)
	}
	j.Add(4, 1)
	j.Close()
	if _, sums, _ = journal.Open(folder(t, path), "j", thing); len(sums) != 3 {
		t.Errorf("after a torn record and a new one: %v", sums)
	}
}

func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "j")
	j, err := journal.Create(folder(f, path), "j", thing)
	if err != nil {
		f.Fatal(err)
	}
	j.Add(1, 2)
	j.Close()
	b, _ := os.ReadFile(path)
	f.Add(b)
	f.Add([]byte("NIOCOPY1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, _, sums, torn, err := journal.Read(bytes.NewReader(b))
		if err == nil && (int64(len(sums)) > journal.Blocks(id.Size) || torn >= 24) {
			t.Errorf("%d sums of %d bytes, %d torn", len(sums), id.Size, torn)
		}
	})
}
