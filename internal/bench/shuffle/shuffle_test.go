// SPDX-License-Identifier: Apache-2.0

package shuffle_test

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/shuffle"
)

func TestEachStandsOnce(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 7, 64, 100, 1000, 4097} {
		o := shuffle.New(n, uint64(n))
		seen := make([]bool, n)
		inOrder := 0
		for i := range n {
			at := o.At(i)
			if at < 0 || at >= n || seen[at] {
				t.Fatalf("n %d: place %d has %d", n, i, at)
			}
			seen[at] = true
			if at == i {
				inOrder++
			}
		}
		if n >= 64 && inOrder > int(n/8) {
			t.Errorf("n %d: %d stayed in their place", n, inOrder)
		}
	}
}

func TestASeedIsAnOrder(t *testing.T) {
	for _, n := range []int64{1000, 1 << 40, 1<<62 + 1} {
		a, b, c := shuffle.New(n, 1), shuffle.New(n, 1), shuffle.New(n, 2)
		same := 0
		for i := range int64(100) {
			if a.At(i) != b.At(i) {
				t.Fatalf("n %d: one seed, two orders", n)
			}
			if a.At(i) == c.At(i) {
				same++
			}
		}
		if same > 10 {
			t.Errorf("n %d: two seeds agree in %d of 100 places", n, same)
		}
	}
}
