// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// shape builds a space without files: sizes of each group's files.
func shape(size int64, groups ...[]int64) *space {
	sp := &space{size: size, even: -1}
	for _, sizes := range groups {
		gs := groupSpace{sizes: sizes}
		n := int64(0)
		for _, s := range sizes {
			n += (s + size - 1) / size
			gs.ends = append(gs.ends, n)
		}
		sp.groups = append(sp.groups, gs)
		if sp.even < 0 || n < sp.even {
			sp.even = n
		}
	}
	sp.number()
	return sp
}

// Every byte of every file is in exactly one block, whatever the shape.
func TestSpaceCoversEveryByteOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		size := int64(1 + r.IntN(10))
		var groups [][]int64
		for range 1 + r.IntN(4) {
			var files []int64
			for range 1 + r.IntN(4) {
				files = append(files, int64(1+r.IntN(40)))
			}
			groups = append(groups, files)
		}
		sp := shape(size, groups...)
		seen := map[string]int{}
		for i := range sp.total {
			b := sp.block(i)
			if b.len < 1 || b.len > size {
				t.Fatalf("round %d: block %d has %d bytes", round, i, b.len)
			}
			for k := range b.len {
				seen[fmt.Sprint(b.group, b.file, b.off+k)]++
			}
		}
		var all int64
		for g, files := range groups {
			for f, n := range files {
				all += n
				for k := range n {
					if seen[fmt.Sprint(g, f, k)] != 1 {
						t.Fatalf("round %d, %v in blocks of %d: byte %d of file %d of group %d is in %d blocks", round, groups, size, k,
							f, g, seen[fmt.Sprint(g, f, k)])
					}
				}
			}
		}
		if int64(len(seen)) != all {
			t.Fatalf("round %d: %d bytes, expected %d", round, len(seen), all)
		}
	}
}

// Neighbouring blocks lie in different groups as long as all have some.
func TestSpaceIsAStripe(t *testing.T) {
	sp := shape(4, []int64{16}, []int64{16}, []int64{40})
	for i := range int64(12) {
		if b := sp.block(i); b.group != int(i%3) || b.off != i/3*4 {
			t.Errorf("block %d is %+v", i, b)
		}
	}
	if b := sp.block(12); b.group != 2 || b.off != 16 {
		t.Errorf("the rest begins with %+v", b)
	}
}

func TestSeriesStaysBoundedAndKeepsTheMean(t *testing.T) {
	s := series{}
	const n = 10 * maxPoints
	for i := range n {
		s.add(time.Duration(i+1)*sampleEvery, float64(i%2))
	}
	if len(s.points) > maxPoints {
		t.Errorf("%d points", len(s.points))
	}
	for _, p := range s.points {
		if p.GBps < 0.4 || p.GBps > 0.6 {
			t.Fatalf("a merged point is %v", p)
		}
	}
	if last := s.points[len(s.points)-1].At; last < (n-64)*sampleEvery.Seconds() {
		t.Errorf("the series ends at %v", last)
	}
}

func TestStable(t *testing.T) {
	var s series
	for range stableWindow - 1 {
		s.add(0, 10)
	}
	if ok, _ := s.stable(0.05); ok {
		t.Error("stable before the window is full")
	}
	s.add(0, 10)
	if ok, spread := s.stable(0.05); !ok || spread != 0 {
		t.Errorf("a flat line: %v, %v", ok, spread)
	}
	for range stableWindow / 2 {
		s.add(0, 12)
	}
	if ok, spread := s.stable(0.05); ok || spread < 0.1 {
		t.Errorf("a step: %v, %v", ok, spread)
	}
}
