// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
)

// asleep waits until n workers sleep.
func asleep(s *sched[int], n int) {
	for {
		s.mu.Lock()
		found := s.gate.sleeping
		s.mu.Unlock()
		if found == n {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// TestRousedWorkersTakeAllChunks rouses sleeping workers again and again: they sleep again if no chunk comes, they take
// each chunk once if chunks come, and they end when the scheduler is closed.
func TestRousedWorkersTakeAllChunks(t *testing.T) {
	const workers, rounds, each = 8, 50, 20
	s := newSched[int]()
	task := &task[int]{drained: make(chan struct{})}
	var taken [rounds * each]atomic.Int32
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				_, cs := s.next(plan.ViaCache, 2, true)
				if cs == nil {
					return
				}
				for _, c := range cs {
					taken[c.Off].Add(1)
					s.done(task, c.Len)
				}
			}
		})
	}
	asleep(s, workers)
	s.rouse()
	asleep(s, workers) // no chunk came
	for r := range rounds {
		s.rouse()
		for i := range each {
			if !s.add(task, plan.Chunk{Off: int64(r*each + i), Len: 1, Verdict: plan.Verdict{Way: plan.ViaCache}}) {
				t.Fatal("the task has failed")
			}
		}
	}
	s.planned(task)
	<-task.drained
	s.close()
	all.Wait()
	for i := range taken {
		if n := taken[i].Load(); n != 1 {
			t.Errorf("chunk %d was taken %d times", i, n)
		}
	}
}
