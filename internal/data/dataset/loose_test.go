// SPDX-License-Identifier: Apache-2.0

package dataset_test

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// loose returns two samples of files; the second has no label.
func loose(t *testing.T, dir string, size int64) *dataset.Set {
	t.Helper()
	l := dataset.NewLoose([]string{"jpg", "cls"})
	add := func(from, to int, files ...int) {
		if err := l.AddSample(from, to, files...); err != nil {
			t.Fatal(err)
		}
	}
	n := len(dir)
	add(n, n+1, l.AddFile(dir+"a.jpg", 10), l.AddFile(dir+"a.cls", 1))
	add(n, n+3, l.AddFile(dir+"d/b.jpg", size), -1)
	s, err := dataset.NewOfFiles(l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSamplesOfWholeFiles(t *testing.T) {
	s := loose(t, "x/", 20)
	if s.Len() != 2 || s.Files() != 3 {
		t.Fatalf("%d samples in %d files", s.Len(), s.Files())
	}
	for n, want := range []struct {
		column int
		file   string
		size   int64
		there  bool
	}{{0, "x/a.jpg", 10, true}, {1, "x/a.cls", 1, true}, {0, "x/d/b.jpg", 20, true}, {1, "", 0, false}} {
		file, e, ok := s.Part(int64(n/2), want.column)
		if ok != want.there || e != (sample.Extent{Size: want.size}) {
			t.Errorf("%v: %v %v", want, e, ok)
		}
		if name, size := s.File(file); ok && (name != want.file || size != want.size) {
			t.Errorf("%v: file %s of %d bytes", want, name, size)
		}
	}
	if a, b := s.Key(0), s.Key(1); a != "a" || b != "d/b" {
		t.Errorf("keys %q and %q", a, b)
	}
	if got, want := s.Name(1), `sample 1 ("d/b")`; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
	var b dataset.Batch
	if err := s.Gather([]int64{1, 0}, 0, 100, &b); err != nil || b.Size != 30 || len(b.Pieces) != 2 {
		t.Errorf("%+v, %v", b, err)
	}
	if err := s.Gather([]int64{1}, 1, 100, &b); !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), `"d/b"`) {
		t.Errorf("the missing part: %v", err)
	}
	if a, b := s.Fingerprint(), loose(t, "elsewhere/", 20).Fingerprint(); a != b {
		t.Error("a copy of the files has another fingerprint")
	}
	if a, b := s.Fingerprint(), loose(t, "x/", 21).Fingerprint(); a == b {
		t.Error("a file of another size has the same fingerprint")
	}
}

func TestFilesThatAreTooLarge(t *testing.T) {
	l := dataset.NewLoose([]string{"file"})
	err := l.AddSample(0, 1, l.AddFile("big", sample.MaxPart+1))
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "big") {
		t.Error(err)
	}
	if err := l.AddSample(0, 1); err == nil {
		t.Error("a sample without files was taken")
	}
}
