// SPDX-License-Identifier: Apache-2.0

package dataset_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// table returns a file's table with random samples; some have no part in some columns.
func table(t *testing.T, rng *rand.Rand, name string, n int, columns ...string) *sample.Table {
	t.Helper()
	const size = 1 << 30
	out := sample.NewTable(name, size, columns, n)
	for i := range n {
		parts := make([]sample.Extent, len(columns))
		for j := range parts {
			parts[j] = sample.Extent{Offset: rng.Int64N(size / 2), Size: rng.Int64N(1000)}
			if rng.IntN(5) == 0 {
				parts[j] = sample.Absent()
			}
		}
		if err := out.Add(fmt.Sprintf("%s-%d", name, i), parts...); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func mustSet(t *testing.T, files ...*sample.Table) *dataset.Set {
	t.Helper()
	s, err := dataset.New(files)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSamplesAreNumberedThrough joins files with different columns, one of them without samples.
func TestSamplesAreNumberedThrough(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	files := []*sample.Table{table(t, rng, "a.tar", 10, "jpg", "cls"), table(t, rng, "b.tar", 0, "jpg"),
		table(t, rng, "c.tar", 7, "txt", "jpg"), table(t, rng, "d.tar", 1, "cls")}
	s := mustSet(t, files...)
	if want := []string{"jpg", "cls", "txt"}; s.Len() != 18 || !slices.Equal(s.Columns(), want) || s.Files() != 4 {
		t.Fatalf("%d samples with %v", s.Len(), s.Columns())
	}
	n := int64(0)
	for f, file := range files {
		for i := range file.Len() {
			if got, want := s.Key(n), file.Key(i); got != want {
				t.Fatalf("sample %d has the key %q, expected %q", n, got, want)
			}
			for c, name := range s.Columns() {
				gotFile, got, ok := s.Part(n, c)
				want, there := sample.Extent{}, false
				if own := file.Column(name); own >= 0 {
					want, there = file.Part(i, own)
				}
				if gotFile != f || ok != there || ok && got != want {
					t.Fatalf("sample %d, %s: %v %v in %d, expected %v %v in %d", n, name, got, ok, gotFile, want, there, f)
				}
			}
			n++
		}
		if name, size := s.File(f); name != file.File() || size != file.Size() {
			t.Errorf("file %d is %s of %d bytes, expected %s of %d", f, name, size, file.File(), file.Size())
		}
	}
	if got, want := s.Name(11), `sample 11 ("c.tar-1", number 1 of c.tar)`; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
	if i, err := s.Column("txt"); i != 2 || err != nil {
		t.Errorf("column txt: %d, %v", i, err)
	}
	if _, err := s.Column("png"); !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), `["jpg" "cls" "txt"]`) {
		t.Errorf("column png: %v", err)
	}
}

func TestEmptySetsAreRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	many := make([]string, 1<<20) // with a search among all of them for each, New would not end
	for i := range many {
		many[i] = fmt.Sprint("c", i)
	}
	for says, files := range map[string][]*sample.Table{
		"0 files have no samples":   nil,
		"1 files have no samples":   {table(t, rng, "a.tar", 0, "jpg")},
		"more than 1024 columns":    {table(t, rng, "a.tar", 1, many...)},
		"a.tar: 2 files have no sa": {table(t, rng, "a.tar", 0), table(t, rng, "b.tar", 0)},
	} {
		if _, err := dataset.New(files); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, expected %q", err, says)
		}
	}
}

// TestFingerprints changes one thing at a time.
func TestFingerprints(t *testing.T) {
	make1 := func(name, column, key string, size, offset, n int64, more int) *dataset.Set {
		out := sample.NewTable(name, size, []string{column, "txt"}, 0)
		for range 1 + more {
			if err := out.Add(key, sample.Extent{Offset: offset, Size: n}, sample.Absent()); err != nil {
				t.Fatal(err)
			}
		}
		return mustSet(t, out)
	}
	base := make1("a/x.tar", "jpg", "k", 100, 10, 20, 0).Fingerprint()
	if got := make1("s3://other/x.tar", "jpg", "k", 100, 10, 20, 0).Fingerprint(); got != base || len(got) != 32 {
		t.Errorf("a copy in another directory has the fingerprint %s, not %s", got, base)
	}
	for name, s := range map[string]*dataset.Set{
		"name": make1("a/y.tar", "jpg", "k", 100, 10, 20, 0), "column": make1("a/x.tar", "png", "k", 100, 10, 20, 0),
		"key": make1("a/x.tar", "jpg", "l", 100, 10, 20, 0), "size": make1("a/x.tar", "jpg", "k", 101, 10, 20, 0),
		"offset": make1("a/x.tar", "jpg", "k", 100, 11, 20, 0), "length": make1("a/x.tar", "jpg", "k", 100, 10, 21, 0),
		"count": make1("a/x.tar", "jpg", "k", 100, 10, 20, 1),
	} {
		if s.Fingerprint() == base {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
}
