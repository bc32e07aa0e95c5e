// SPDX-License-Identifier: Apache-2.0

package dataset_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestBatchesHaveTheBytesOfTheirSamples gathers random batches, copies their pieces, and compares every sample.
func TestBatchesHaveTheBytesOfTheirSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	var contents [][]byte
	var files []*sample.Table
	for range 3 {
		content := make([]byte, 1<<16)
		for i := range content {
			content[i] = byte(rng.Uint32())
		}
		f := sample.NewTable("f", int64(len(content)), []string{"x"}, 0)
		for at := int64(0); at < int64(len(content)); {
			n := min(rng.Int64N(500), int64(len(content))-at)
			if rng.IntN(3) == 0 {
				n = 0
			}
			if err := f.Add("", sample.Extent{Offset: at, Size: n}); err != nil {
				t.Fatal(err)
			}
			at += n + rng.Int64N(2)*rng.Int64N(10) // some follow each other
		}
		contents, files = append(contents, content), append(files, f)
	}
	s := mustSet(t, files...)
	var b dataset.Batch
	joined := 0
	for range 500 {
		samples := make([]int64, rng.IntN(50))
		for i := range samples {
			samples[i] = rng.Int64N(s.Len())
			if i > 0 && rng.IntN(2) == 0 {
				samples[i] = min(samples[i-1]+1, s.Len()-1)
			}
		}
		if err := s.Gather(samples, 0, 1<<20, &b); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, b.Size)
		for _, p := range b.Pieces {
			copy(got[p.At:p.At+p.Size], contents[p.File][p.Offset:])
		}
		start, parts := int64(0), 0
		for i, n := range samples {
			file, e, _ := s.Part(n, 0)
			if !bytes.Equal(got[start:b.Ends[i]], contents[file][e.Offset:e.Offset+e.Size]) {
				t.Fatalf("sample %d differs", n)
			}
			if start = b.Ends[i]; e.Size > 0 {
				parts++
			}
		}
		if start != b.Size || len(b.Ends) != len(samples) {
			t.Fatalf("%d samples end at %d of %d", len(b.Ends), start, b.Size)
		}
		joined += parts - len(b.Pieces)
	}
	if joined == 0 {
		t.Error("no samples that follow each other were joined")
	}
}

func TestEqualSizes(t *testing.T) {
	for _, c := range []struct {
		ends []int64
		each int64
		same bool
	}{{nil, 0, false}, {[]int64{7}, 7, true}, {[]int64{7, 14, 21}, 7, true}, {[]int64{7, 14, 20}, 0, false},
		{[]int64{0, 0}, 0, true}, {[]int64{6, 14}, 0, false}} {
		b := dataset.Batch{Ends: c.ends}
		if each, same := b.Same(); each != c.each || same != c.same {
			t.Errorf("%v: %d, %v", c.ends, each, same)
		}
	}
}

func TestBatchesThatCannotBeMade(t *testing.T) {
	f := sample.NewTable("x.tar", 100, []string{"jpg", "cls"}, 0)
	for i, cls := range []sample.Extent{{Offset: 1, Size: 1}, sample.Absent()} {
		if err := f.Add([]string{"a", "b"}[i], sample.Extent{Offset: 10, Size: 60}, cls); err != nil {
			t.Fatal(err)
		}
	}
	s := mustSet(t, f)
	for _, c := range []struct {
		column int
		limit  int64
		kind   errs.Kind
		says   string
	}{
		{1, 1000, errs.NotFound, `sample 1 ("b", number 1 of x.tar): has no part "cls"`},
		{0, 119, errs.Invalid, "and the samples before it have 120 bytes, and a batch can have 119"},
	} {
		b := dataset.Batch{Size: 5}
		err := s.Gather([]int64{0, 1}, c.column, c.limit, &b)
		if errs.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || b.Size != 0 || len(b.Ends) != 0 {
			t.Errorf("%v, expected %q; %+v", err, c.says, b)
		}
	}
	if err := s.Gather([]int64{0, 1}, 0, 120, &dataset.Batch{}); err != nil {
		t.Errorf("a batch of the limit: %v", err)
	}
}
