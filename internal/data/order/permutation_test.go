// SPDX-License-Identifier: Apache-2.0

package order_test

import (
	"math"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/test/effort"
)

func TestEachElementHasOnePosition(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 4, 5, 7, 64, 100, 255, 256, 257, 1000, 4097} {
		for seed := range uint64(20) {
			p := order.NewPermutation(n, seed)
			seen := make([]bool, n)
			for i := range n {
				at := p.At(i)
				if at < 0 || at >= n || seen[at] {
					t.Fatalf("n %d, seed %d: position %d has %d", n, seed, i, at)
				}
				seen[at] = true
				if back := p.Find(at); back != i {
					t.Fatalf("n %d, seed %d: element %d is found at %d, not at %d", n, seed, at, back, i)
				}
			}
		}
	}
}

// TestTenMillion visits every element of a large permutation once.
func TestTenMillion(t *testing.T) {
	effort.SingleThreaded(t)
	const n = 10_000_000
	p := order.NewPermutation(n, 42)
	seen := make([]uint64, n/64+1)
	for i := range int64(n) {
		at := p.At(i)
		if bit := uint64(1) << (at % 64); at < 0 || at >= n || seen[at/64]&bit != 0 {
			t.Fatalf("position %d has %d", i, at)
		} else {
			seen[at/64] |= bit
		}
	}
	if allocated := testing.AllocsPerRun(100, func() { p.At(1) }); allocated != 0 {
		t.Errorf("%v allocations for each element", allocated)
	}
}

func TestASeedIsAnOrder(t *testing.T) {
	for _, n := range []int64{1000, 1 << 40, 1<<62 + 1} {
		a, b, c := order.NewPermutation(n, 1), order.NewPermutation(n, 1), order.NewPermutation(n, 2)
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
			t.Errorf("n %d: two seeds agree in %d of 100 positions", n, same)
		}
	}
}

// critical returns the value that a chi-square statistic exceeds with probability 0.001, by Wilson and Hilferty.
func critical(freedom float64) float64 {
	const z = 3.0902 // of the normal distribution
	x := 1 - 2/(9*freedom) + z*math.Sqrt(2/(9*freedom))
	return freedom * x * x * x
}

// TestPositionsAreUniform compares where elements of ten million stand with chance, for 100 seeds.
func TestPositionsAreUniform(t *testing.T) {
	effort.SingleThreaded(t)
	const n, parts, drawn = 10_000_000, 16, 1600
	limit, above := critical(parts*(parts-1)), 0
	for seed := range uint64(100) {
		p := order.NewPermutation(n, seed)
		var chi float64
		for part := range int64(parts) {
			var found [parts]float64
			for i := range int64(drawn) {
				found[p.At((part*drawn+i)*(n/parts/drawn))*parts/n]++
			}
			for _, f := range found {
				chi += (f - drawn/parts) * (f - drawn/parts) / (drawn / parts)
			}
		}
		if chi > limit {
			above++
			t.Logf("seed %d: chi-square %.1f, limit %.1f", seed, chi, limit)
		}
	}
	if above > 2 { // 0.1 are expected
		t.Errorf("%d of 100 seeds are above the limit %.1f", above, limit)
	}
}

// TestFewElementsAreUniform compares every order of few elements with chance.
func TestFewElementsAreUniform(t *testing.T) {
	for _, n := range []int64{2, 3, 4, 5} {
		const seeds = 20_000
		found := map[int64]float64{}
		orders := 1.0
		for i := range n {
			orders *= float64(i + 1)
		}
		for seed := range uint64(seeds) {
			p := order.NewPermutation(n, seed)
			var code int64
			for i := range n {
				code = code*n + p.At(i)
			}
			found[code]++
		}
		var chi float64
		for _, f := range found {
			chi += (f - seeds/orders) * (f - seeds/orders) / (seeds / orders)
		}
		if limit := critical(orders - 1); len(found) != int(orders) || chi > limit {
			t.Errorf("n %d: %d of %.0f orders, chi-square %.1f, limit %.1f", n, len(found), orders, chi, limit)
		}
	}
}

func BenchmarkAt(b *testing.B) {
	p := order.NewPermutation(10_000_000, 1)
	var sum int64
	for i := range b.N {
		sum += p.At(int64(i) % 10_000_000)
	}
	_ = sum
}
