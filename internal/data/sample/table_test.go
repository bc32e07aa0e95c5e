// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestPartsComeBack adds random samples and reads all of them back.
func TestPartsComeBack(t *testing.T) {
	for _, keys := range []bool{true, false} {
		rng := rand.New(rand.NewPCG(1, 2))
		const size = 1 << 40
		columns := []string{"cls", "jpg", "txt"}
		table := sample.NewTable("x.tar", size, columns, 10)
		var want [][]sample.Extent
		for i := range 1000 {
			parts := make([]sample.Extent, len(columns))
			for j := range parts {
				parts[j] = sample.Extent{Offset: rng.Int64N(size - sample.MaxPart), Size: rng.Int64N(sample.MaxPart + 1)}
				if rng.IntN(4) == 0 {
					parts[j] = sample.Absent()
				}
			}
			key := ""
			if keys {
				key = strconv.Itoa(i)
			}
			if err := table.Add(key, parts...); err != nil {
				t.Fatal(err)
			}
			want = append(want, parts)
		}
		if table.Len() != len(want) || table.File() != "x.tar" || table.Size() != size {
			t.Fatalf("%d samples of %s with %d bytes", table.Len(), table.File(), table.Size())
		}
		for i, parts := range want {
			for j, p := range parts {
				got, ok := table.Part(i, j)
				if ok != (p != sample.Absent()) || got != p {
					t.Fatalf("sample %d, column %d: %v, %v, expected %v", i, j, got, ok, p)
				}
			}
			if want := map[bool]string{true: strconv.Itoa(i), false: ""}[keys]; table.Key(i) != want {
				t.Fatalf("key %q, expected %q", table.Key(i), want)
			}
		}
		if table.Column("txt") != 2 || table.Column("png") != -1 || len(table.Columns()) != 3 {
			t.Errorf("columns %v", table.Columns())
		}
	}
}

func TestPartsOutsideOfTheFileAreRefused(t *testing.T) {
	for _, c := range []struct {
		part sample.Extent
		says string
	}{
		{sample.Extent{Offset: 90, Size: 11},
			`sample 1 ("b"), part "jpg": 11 bytes at offset 90 end after the file, which has 100 bytes`},
		{sample.Extent{Offset: 101}, "0 bytes at offset 101 end after the file"},
		{sample.Extent{Offset: 1<<63 - 1, Size: 2}, "end after the file"},
		{sample.Extent{Offset: -2, Size: 2}, "2 bytes at offset -2 are no range"},
		{sample.Extent{Offset: 0, Size: -1}, "-1 bytes at offset 0 are no range"},
		{sample.Extent{Offset: 0, Size: 1 << 32}, "it has 4294967296 bytes, at most 4294967295 are possible"},
	} {
		table := sample.NewTable("x.tar", 100, []string{"jpg"}, 0)
		if err := table.Add("a", sample.Extent{Offset: 100}); err != nil {
			t.Fatal(err)
		}
		err := table.Add("b", c.part)
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), c.says) || table.Len() != 1 {
			t.Errorf("%v: %v, expected %q; %d samples", c.part, err, c.says, table.Len())
		}
	}
}

func TestMixedSamplesAreRefused(t *testing.T) {
	table := sample.NewTable("x.tar", 100, []string{"jpg"}, 0)
	if table.Add("a", sample.Extent{}, sample.Extent{}) == nil {
		t.Error("two parts were accepted for one column")
	}
	if err := table.Add("a", sample.Extent{}); err != nil {
		t.Fatal(err)
	}
	if table.Add("", sample.Extent{}) == nil || table.Len() != 1 {
		t.Error("a sample without a key was accepted after one with a key")
	}
}
