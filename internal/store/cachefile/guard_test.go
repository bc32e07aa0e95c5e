// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"container/list"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// simulation is a cache of equal objects with the policy of Store, without content.
type simulation struct {
	guard  Guard
	ghosts ghosts
	size   int64 // of an object
	room   int   // objects
	clock  int64
	now    time.Time
	lru    list.List
	at     map[int]*list.Element
}

type simulated struct {
	object int
	read   Moment
}

func newSimulation(room int) *simulation {
	const size = 1 << 20
	return &simulation{guard: Guard{Capacity: int64(room) * size, ColdTime: 0}, size: size, room: room,
		at: map[int]*list.Element{}, now: time.Unix(0, 0)}
}

// read reads an object and reports whether it was in the cache.
func (s *simulation) read(object int) bool {
	s.clock += s.size
	s.now = s.now.Add(time.Second)
	now := Moment{s.clock, s.now}
	if e, ok := s.at[object]; ok {
		v := e.Value.(*simulated)
		s.guard.Reread(now.Bytes-v.read.Bytes, s.size)
		v.read = now
		s.lru.MoveToFront(e)
		return true
	}
	if before, ok := s.ghosts.note(uint64(object), s.clock); ok {
		s.guard.Reread(s.clock-before, s.size)
	}
	if len(s.at) >= s.room {
		oldest := s.lru.Back().Value.(*simulated)
		if !s.guard.MayEvict(oldest.read, now) {
			return false
		}
		s.ghosts.note(uint64(oldest.object), oldest.read.Bytes)
		s.lru.Remove(s.at[oldest.object])
		delete(s.at, oldest.object)
	}
	s.at[object] = s.lru.PushFront(&simulated{object, now})
	return false
}

// pass reads objects from `first` on in an order, and returns the share that was in the cache.
func (s *simulation) pass(first, n int, r *rand.Rand) float64 {
	hits := 0
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if r != nil {
		r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, i := range order {
		if s.read(first + i) {
			hits++
		}
	}
	return float64(hits) / float64(n)
}

// Epochs that are larger than the cache keep the share of hits that fits, whatever the share and the order.
func TestEpochsLargerThanTheCache(t *testing.T) {
	const room = 1000
	for _, share := range []float64{0.84, 0.5, 0.2, 0.1} {
		for _, shuffled := range []bool{false, true} {
			for seed := range uint64(3) {
				var r *rand.Rand
				if shuffled {
					r = rand.New(rand.NewPCG(seed, 0))
				}
				s := newSimulation(room)
				n := int(room / share)
				var hits []float64
				for range 8 {
					hits = append(hits, s.pass(0, n, r))
				}
				t.Logf("share %.2f, shuffled %v: %.2f", share, shuffled, hits)
				for epoch, h := range hits[2:] {
					if h < 0.9*share {
						t.Errorf("share %.2f, shuffled %v, seed %d: %.3f hits in epoch %d", share, shuffled, seed, h, epoch+3)
					}
				}
			}
		}
	}
}

// A new working set of 0.4 of the cache is served from the cache after at most four passes, if the set before was up
// to twice the cache.
func TestANewWorkingSet(t *testing.T) {
	const room = 1000
	for _, old := range []int{300, 700, 1000, 2000, 5000} {
		for _, shuffled := range []bool{false, true} {
			var r *rand.Rand
			if shuffled {
				r = rand.New(rand.NewPCG(1, 0))
			}
			s := newSimulation(room)
			for range 5 {
				s.pass(0, old, r)
			}
			var hits []float64
			for range 16 {
				hits = append(hits, s.pass(1_000_000, 400, r))
			}
			t.Logf("old set %d, shuffled %v: %.2f", old, shuffled, hits)
			after := 4
			if old > 2*room {
				after = 12 // a longer memory takes longer to change
			}
			if hits[after] < 0.99 {
				t.Errorf("old set %d, shuffled %v: %.2f hits after %d passes", old, shuffled, hits[after], after)
			}
		}
	}
}

// Requests by Zipf's law to more models than fit have about the hits of LRU.
func TestZipf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	var sums []float64
	var sum float64
	for i := range 300 {
		sum += 1 / float64(i+1)
		sums = append(sums, sum)
	}
	s := newSimulation(50)
	hits, all := 0, 0
	for i := range 60_000 {
		x := r.Float64() * sum
		model := 0
		for sums[model] < x {
			model++
		}
		if s.read(model) && i > 10_000 {
			hits++
		}
		if i > 10_000 {
			all++
		}
	}
	ratio := float64(hits) / float64(all)
	t.Logf("%.3f hits", ratio)
	if ratio < 0.55 {
		t.Errorf("%.3f hits, expected 0.55", ratio)
	}
}

// A hot small object beside large epochs does not open the Guard.
func TestHotObjectsBesideEpochs(t *testing.T) {
	const room = 1000
	s := newSimulation(room)
	r := rand.New(rand.NewPCG(2, 0))
	var last int64
	for epoch := range 6 {
		hits := 0
		for i, o := range r.Perm(2 * room) {
			if s.read(o) {
				hits++
			}
			if i%3 == 0 { // a file of 4 KiB that is read again and again
				s.clock += 4096
				s.guard.Reread(s.clock-last, 4096)
				last = s.clock
			}
		}
		if ratio := float64(hits) / (2 * room); epoch >= 2 && ratio < 0.45 {
			t.Errorf("epoch %d: %.3f hits", epoch+1, ratio)
		}
	}
}

// Whatever intervals a Guard sees, its mean stays between the smallest and the largest of them and its first
// assumption, and no entry is evicted before twice the mean.
func TestGuardProperties(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		g := Guard{Capacity: 1 + r.Int64N(1<<40), ColdTime: time.Minute}
		low, high := 2*float64(g.Capacity), 2*float64(g.Capacity)
		for range 200 {
			interval := int64(math.Exp(r.Float64() * 60)) // up to 2^86: overflows are part of it
			if interval < 0 {
				interval = math.MaxInt64
			}
			size := r.Int64N(1 << uint(1+r.IntN(40)))
			g.Reread(interval, size)
			low, high = min(low, float64(interval)), max(high, float64(interval))
			if g.Usual != 0 && (g.Usual < 0.999*low || g.Usual > 1.001*high || math.IsNaN(g.Usual)) {
				t.Fatalf("seed %d: the mean is %g of intervals from %g to %g", seed, g.Usual, low, high)
			}
			idle := r.Int64N(1 << 50)
			at := time.Unix(r.Int64N(1000), 0)
			if g.MayEvict(Moment{0, time.Unix(0, 0)}, Moment{idle, at}) {
				if float64(idle) <= 2*g.usual() {
					t.Fatalf("seed %d: evicted after %d bytes with a mean of %g", seed, idle, g.usual())
				}
				if g.Usual == 0 && at.Unix() <= 60 {
					t.Fatalf("seed %d: evicted after %v before any re-read", seed, at)
				}
			}
		}
	}
}

// Before any re-read, an entry may be evicted only after four turnovers and the cold time.
func TestColdStart(t *testing.T) {
	g := Guard{Capacity: 100, ColdTime: time.Hour}
	zero := Moment{0, time.Unix(0, 0)}
	for _, c := range []struct {
		bytes int64
		at    time.Duration
		want  bool
	}{{399, 2 * time.Hour, false}, {401, time.Minute, false}, {401, 2 * time.Hour, true}} {
		if got := g.MayEvict(zero, Moment{c.bytes, time.Unix(0, 0).Add(c.at)}); got != c.want {
			t.Errorf("%d bytes, %v: %v", c.bytes, c.at, got)
		}
	}
	g.Reread(2, 1) // part of the same read
	if g.Usual != 0 {
		t.Error("a correlated read counts")
	}
	g.Reread(50, 10)
	if g.MayEvict(zero, Moment{300, time.Unix(1, 0)}) || !g.MayEvict(zero, Moment{400, time.Unix(1, 0)}) {
		t.Errorf("mean %g", g.Usual)
	}
}

// Ghosts find each of the last contents, and stay bounded.
func TestGhosts(t *testing.T) {
	var g ghosts
	for i := range int64(5 * ghostGeneration) {
		if _, ok := g.note(uint64(i), i); ok {
			t.Fatal("found what was never there")
		}
	}
	if n := len(g.young) + len(g.old); n > 2*ghostGeneration {
		t.Errorf("%d ghosts", n)
	}
	for i := int64(5*ghostGeneration) - ghostGeneration; i < 5*ghostGeneration; i++ {
		if at, ok := g.note(uint64(i), i); !ok || at != i {
			t.Fatalf("%d: %d %v", i, at, ok)
		}
	}
}
