// SPDX-License-Identifier: Apache-2.0

package order_test

import (
	"math"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func mustSequence(t *testing.T, n int64, m order.Mixing, seed uint64, epoch int64) *order.Sequence {
	t.Helper()
	s, err := order.NewSequence(n, m, seed, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEachSampleComesOnce tries all shuffles with data sets that end inside of blocks and windows.
func TestEachSampleComesOnce(t *testing.T) {
	mixings := []order.Mixing{{Shuffle: order.Stored}, {Shuffle: order.Full}, {Shuffle: order.Blocks}}
	for _, block := range []int64{1, 3, 8, 1000} {
		for _, window := range []int64{1, 2, 5, 100} {
			mixings = append(mixings, order.Mixing{Shuffle: order.Blocks, Block: block, Window: window})
		}
	}
	for _, m := range mixings {
		for _, n := range []int64{1, 2, 7, 8, 9, 15, 16, 17, 100, 257, 1000} {
			for epoch := range int64(5) {
				s := mustSequence(t, n, m, 7, epoch)
				seen := make([]bool, n)
				for i := range n {
					at := s.At(i)
					if at < 0 || at >= n || seen[at] {
						t.Fatalf("%+v, %d samples, epoch %d: position %d has %d", m, n, epoch, i, at)
					}
					seen[at] = true
				}
			}
		}
	}
}

// TestBlocksStayTogether checks that a window has the samples of its blocks alone, and that these are mixed.
func TestBlocksStayTogether(t *testing.T) {
	const n, block, window, batch = 100_000, 50, 20, 64
	m := order.Mixing{Shuffle: order.Blocks, Block: block, Window: window}
	s := mustSequence(t, n, m, 3, 1)
	neighbours := 0
	for start := int64(0); start < n; start += block * window {
		blocks := map[int64]bool{}
		for i := start; i < start+block*window; i++ {
			blocks[s.At(i)/block] = true
			if i > start && s.At(i) == s.At(i-1)+1 {
				neighbours++
			}
		}
		if len(blocks) != window {
			t.Fatalf("the window at %d has samples of %d blocks, expected %d", start, len(blocks), window)
		}
	}
	if neighbours > n/100 {
		t.Errorf("%d of %d samples follow their neighbour", neighbours, n)
	}
	if got, want := distinct(s, block, batch), m.Distinct(n, batch); math.Abs(got-want) > 0.02*want {
		t.Errorf("a batch has samples of %.2f blocks, Distinct says %.2f", got, want)
	}
}

// distinct measures how many blocks the batches of a sequence have samples of, on average. Batches that end in another
// window are left out.
func distinct(s *order.Sequence, block, batch int64) float64 {
	total, batches := 0, 0
	for start := int64(0); start+batch <= s.Len(); start += batch {
		if start/1000 != (start+batch-1)/1000 {
			continue
		}
		blocks := map[int64]bool{}
		for i := range batch {
			blocks[s.At(start+i)/block] = true
		}
		total += len(blocks)
		batches++
	}
	return float64(total) / float64(batches)
}

func TestDistinctBlocksOfOtherShuffles(t *testing.T) {
	const n, batch = 1 << 20, 256
	full := order.Mixing{Shuffle: order.Full}
	s := mustSequence(t, n, full, 1, 0)
	if got, want := distinct(s, order.DefaultBlock, batch), full.Distinct(n, batch); math.Abs(got-want) > 0.02*want {
		t.Errorf("full: %.2f blocks, Distinct says %.2f", got, want)
	}
	if got := (order.Mixing{Shuffle: order.Stored}).Distinct(n, batch); got < 1 || got > 2 {
		t.Errorf("stored: %.2f blocks", got)
	}
}

func TestEpochsAndSeedsDiffer(t *testing.T) {
	for _, shuffle := range []order.Shuffle{order.Full, order.Blocks} {
		const n = 10_000
		first := mustSequence(t, n, order.Mixing{Shuffle: shuffle}, 1, 0)
		for name, other := range map[string]*order.Sequence{"seed": mustSequence(t, n, order.Mixing{Shuffle: shuffle}, 2, 0),
			"epoch": mustSequence(t, n, order.Mixing{Shuffle: shuffle}, 1, 1)} {
			same := 0
			for i := range int64(n) {
				if first.At(i) == other.At(i) {
					same++
				}
			}
			if same > 20 {
				t.Errorf("%s: another %s has the same sample at %d of %d positions", shuffle, name, same, n)
			}
		}
	}
}

func TestWrongMixingsAreRefused(t *testing.T) {
	for _, c := range []struct {
		n     int64
		m     order.Mixing
		epoch int64
		says  string
	}{
		{0, order.Mixing{Shuffle: order.Full}, 0, "there are 0 samples, expected 1 to"},
		{order.MaxSamples + 1, order.Mixing{Shuffle: order.Full}, 0, "expected 1 to 72057594037927936"},
		{1, order.Mixing{Shuffle: order.Full}, -1, "epoch -1, expected 0 or more"},
		{1, order.Mixing{Shuffle: "random"}, 0, `shuffle "random", expected one of ["stored" "full" "blocks"]`},
		{1, order.Mixing{Shuffle: order.Full, Block: 4}, 0, `block 4 and window 0 are for the shuffle "blocks" alone`},
		{1, order.Mixing{Shuffle: order.Blocks, Window: -1}, 0, "block 0 and window -1, expected numbers from 1 to"},
	} {
		_, err := order.NewSequence(c.n, c.m, 1, c.epoch)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, expected %q", c.m, err, c.says)
		}
	}
}
