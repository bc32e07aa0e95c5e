// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"math/rand/v2"
	"testing"
)

// TestSpansAreASet compares a set of spans with a plain set of numbers.
func TestSpansAreASet(t *testing.T) {
	const most = 60
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var s spans
		plain := map[int64]bool{}
		for range r.IntN(20) {
			from := r.Int64N(most)
			to := from + 1 + r.Int64N(5)
			s = s.with(from, to)
			for n := from; n < to; n++ {
				plain[n] = true
			}
		}
		for i, p := range s {
			if p.from >= p.to || i > 0 && s[i-1].to >= p.from {
				t.Fatalf("the spans are %v", s)
			}
		}
		for n := range int64(most + 10) {
			want := n
			for plain[want] {
				want++
			}
			if got := s.after(n); got != want {
				t.Fatalf("the first number from %d on that is not in %v is %d, expected %d", n, s, got, want)
			}
		}
	}
}
