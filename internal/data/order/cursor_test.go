// SPDX-License-Identifier: Apache-2.0

package order_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// run lets all ranks read at most `steps` batches each, counts the samples, and returns the state of the ranks, which
// must be the same for all.
func run(t *testing.T, n int64, m order.Mixing, s order.Split, from order.State, steps int64, seen []int) order.State {
	t.Helper()
	var state order.State
	for s.Rank = range s.World {
		c, err := order.NewCursor(n, m, s, from)
		if err != nil {
			t.Fatal(err)
		}
		for range min(steps, c.Batches()) {
			batch, ok := c.Next(nil)
			if !ok {
				t.Fatalf("%+v: the epoch ended before the last of %d batches", s, c.Batches())
			}
			for _, i := range batch {
				seen[i]++
			}
		}
		if _, more := c.Next(nil); more != (steps < c.Batches()) && steps >= c.Batches() {
			t.Fatalf("%+v: more than %d batches", s, c.Batches())
		}
		if c, _ = order.NewCursor(n, m, s, from); s.Rank > 0 && after(c, steps) != state {
			t.Fatalf("%+v: ranks have different states: %+v and %+v", s, after(c, steps), state)
		}
		c, _ = order.NewCursor(n, m, s, from)
		state = after(c, steps)
	}
	return state
}

// after returns a cursor's state after some batches.
func after(c *order.Cursor, steps int64) order.State {
	for range steps {
		if _, ok := c.Next(nil); !ok {
			break
		}
	}
	return c.State()
}

// TestResumeAtOtherWorldSizes stops at 200 random places, each time with 1, then 4, then 3 ranks. The state travels as
// JSON. Every sample comes exactly once.
func TestResumeAtOtherWorldSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for stop := range 200 {
		n := 1 + rng.Int64N(3000)
		m := order.Mixing{Shuffle: order.Shuffles()[stop%3]}
		if m.Shuffle == order.Blocks {
			m.Block, m.Window = 1+rng.Int64N(50), 1+rng.Int64N(8)
		}
		seen := make([]int, n)
		state := order.State{Seed: rng.Uint64(), Epoch: rng.Int64N(10)}
		begun := state.Epoch
		for i, world := range []int{1, 4, 3} {
			steps := rng.Int64N(20)
			if i == 2 {
				steps = n
			}
			s := order.Split{Batch: 1 + rng.Int64N(16), World: world, Tail: order.Short}
			state = run(t, n, m, s, state, steps, seen)
			text, err := json.Marshal(state)
			if err != nil {
				t.Fatal(err)
			}
			state = order.State{}
			if err := json.Unmarshal(text, &state); err != nil {
				t.Fatal(err)
			}
			if state.Epoch != begun {
				break
			}
		}
		if state.Epoch != begun+1 || state.Position != 0 {
			t.Fatalf("the epoch ended with %+v", state)
		}
		for i, times := range seen {
			if times != 1 {
				t.Fatalf("%d samples, %+v: sample %d came %d times", n, m, i, times)
			}
		}
	}
}

// TestTails counts the samples that come less or more than once.
func TestTails(t *testing.T) {
	for _, tail := range order.Tails() {
		for n := int64(1); n < 80; n++ {
			const batch, world = 4, 3
			seen := make([]int, n)
			s := order.Split{Batch: batch, World: world, Tail: tail}
			state := run(t, n, order.Mixing{Shuffle: order.Full}, s, order.State{Seed: 1}, n, seen)
			if state != (order.State{Seed: 1, Epoch: 1}) {
				t.Fatalf("%s, %d samples: %+v", tail, n, state)
			}
			total := int64(0)
			for _, times := range seen {
				total += int64(times)
			}
			want := map[order.Tail]int64{order.Drop: n / 12 * 12, order.Pad: (n + 11) / 12 * 12, order.Short: n}[tail]
			if total != want {
				t.Errorf("%s, %d samples: %d were read, expected %d", tail, n, total, want)
			}
			for i, times := range seen {
				if n >= 12 && times > 2 || tail != order.Pad && times > 1 || tail != order.Drop && times == 0 {
					t.Errorf("%s, %d samples: sample %d came %d times", tail, n, i, times)
				}
			}
		}
	}
}

// TestWorkersShareTheBatches compares the batches of workers, taken in turn, with those of one reader.
func TestWorkersShareTheBatches(t *testing.T) {
	const n = 1000
	m := order.Mixing{Shuffle: order.Full}
	for workers := 1; workers <= 9; workers++ {
		s := order.Split{Batch: 7, World: 2, Rank: 1, Tail: order.Short}
		from := order.State{Seed: 3, Position: 91}
		one, err := order.NewCursor(n, m, s, from)
		if err != nil {
			t.Fatal(err)
		}
		var many []*order.Cursor
		batches := int64(0)
		for w := range workers {
			s.Worker, s.Workers = w, workers
			c, err := order.NewCursor(n, m, s, from)
			if err != nil {
				t.Fatal(err)
			}
			many = append(many, c)
			batches += c.Batches()
		}
		if batches != one.Batches() {
			t.Fatalf("%d workers have %d batches, one reader has %d", workers, batches, one.Batches())
		}
		for i := 0; ; i++ {
			for w := range workers {
				if i%workers == 0 && one.State() != many[w].State() {
					t.Fatalf("worker %d of %d after %d batches: %+v, one reader %+v", w, workers, i, many[w].State(), one.State())
				}
			}
			if one.Ended() != (one.Batches() == int64(i)) {
				t.Fatalf("after %d of %d batches, ended is %v", i, one.Batches(), one.Ended())
			}
			want, more := one.Next(nil)
			got, ok := many[i%workers].Next(nil)
			if ok != more {
				t.Fatalf("%d workers, batch %d: %v, expected %v", workers, i, ok, more)
			}
			if !more {
				break
			}
			for j := range want {
				if len(got) != len(want) || got[j] != want[j] {
					t.Fatalf("%d workers, batch %d: %v, expected %v", workers, i, got, want)
				}
			}
		}
	}
}

func TestWrongSplitsAreRefused(t *testing.T) {
	for _, c := range []struct {
		s    order.Split
		from order.State
		says string
	}{
		{order.Split{}, order.State{}, "batch 0, expected 1 to"},
		{order.Split{Batch: 1 << 25}, order.State{}, "batch 33554432, expected 1 to 16777216"},
		{order.Split{Batch: 1, World: -1}, order.State{}, "world -1, expected 1 to"},
		{order.Split{Batch: 1, World: 2, Rank: 2}, order.State{}, "rank 2, expected 0 to 1"},
		{order.Split{Batch: 1, Rank: -1}, order.State{}, "rank -1, expected 0 to 0"},
		{order.Split{Batch: 1, Workers: -2}, order.State{}, "-2 workers, expected 1 to"},
		{order.Split{Batch: 1, Worker: 1}, order.State{}, "worker 1, expected 0 to 0"},
		{order.Split{Batch: 1, Tail: "keep"}, order.State{}, `tail "keep", expected one of ["drop" "pad" "short"]`},
		{order.Split{Batch: 1}, order.State{Position: 11}, "position 11 of an epoch of 10 samples, expected 0 to 10"},
		{order.Split{Batch: 1}, order.State{Position: -1}, "position -1 of an epoch"},
		{order.Split{Batch: 1}, order.State{Epoch: -1}, "epoch -1, expected 0 or more"},
	} {
		_, err := order.NewCursor(10, order.Mixing{Shuffle: order.Full}, c.s, c.from)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, expected %q", c.s, err, c.says)
		}
	}
}

// TestLastShareOfTheLargestSplit looks at a short step of the most ranks, with many samples in a batch.
func TestLastShareOfTheLargestSplit(t *testing.T) {
	const world, each = 1 << 20, 12 << 20
	s := order.Split{Batch: 1 << 24, World: world, Rank: world - 1, Tail: order.Short}
	c, err := order.NewCursor(world*each, order.Mixing{Shuffle: order.Stored}, s, order.State{})
	if err != nil {
		t.Fatal(err)
	}
	if batch, _ := c.Next(make([]int64, 0, each)); len(batch) != each || batch[0] != (world-1)*each {
		t.Errorf("%d samples from %d on, expected %d from %d on", len(batch), batch[0], each, (world-1)*each)
	}
}
