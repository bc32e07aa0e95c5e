// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// TestAQuotaLimitsHowManyRun lets many goroutines in, whose limit changes meanwhile.
func TestAQuotaLimitsHowManyRun(t *testing.T) {
	var q quota
	var limit, running, most atomic.Int64
	limit.Store(3)
	var run sync.WaitGroup
	for range 200 {
		run.Go(func() {
			q.take(func() int { return int(limit.Load()) })
			defer q.give(func() int { return int(limit.Load()) })
			n := running.Add(1)
			defer running.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			runtime.Gosched()
		})
	}
	run.Wait()
	if n := most.Load(); n > 3 || n < 1 || q.taken != 0 {
		t.Errorf("%d ran at once with a limit of 3, and %d places are still taken", n, q.taken)
	}
}

// TestAGrownLimitLetsAllIn raises the limit while goroutines wait. When a place is given back then, all of them get in.
func TestAGrownLimitLetsAllIn(t *testing.T) {
	const waiting = 5
	var q quota
	var limit atomic.Int64
	limit.Store(1)
	most := func() int { return int(limit.Load()) }
	q.take(most)
	var in, run sync.WaitGroup
	leave := make(chan struct{})
	in.Add(waiting)
	for range waiting {
		run.Go(func() {
			q.take(most)
			in.Done()
			<-leave
			q.give(most)
		})
	}
	limit.Store(waiting)
	q.give(most)
	in.Wait() // hangs if one of them does not get in
	close(leave)
	run.Wait()
}

// TestAQuotaIsFair: a goroutine that gives its place back and wants another does not overtake those that wait.
func TestAQuotaIsFair(t *testing.T) {
	var q quota
	one := func() int { return 1 }
	q.take(one)
	const waiting = 3
	var order []int // guarded by the only place
	var run sync.WaitGroup
	for i := range waiting {
		run.Go(func() {
			q.take(one)
			order = append(order, i)
			q.give(one)
		})
		for n := 0; n <= i; runtime.Gosched() {
			q.mu.Lock()
			n = len(q.queue)
			q.mu.Unlock()
		}
	}
	if !q.full(one) {
		t.Error("there is a free place, although three wait")
	}
	q.give(one)
	q.take(one)
	if want := []int{0, 1, 2}; !slices.Equal(order, want) {
		t.Errorf("%v came before the one that had a place, expected %v", order, want)
	}
	q.give(one)
	run.Wait()
	if q.full(one) {
		t.Error("nobody has a place, and none is free")
	}
}
