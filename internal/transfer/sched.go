// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
)

// task is the scheduler's state of one job, a load or a save.
type task[J any] struct {
	job J
	// Guarded by sched.mu.
	queue       [plan.Ways][]plan.Chunk
	outstanding int // chunks that are queued or that a worker has
	planned     bool
	ended       bool
	err         error
	abort       func() // cancels running requests; nil if there are none
	fetch       fetching

	drained   chan struct{} // closed when no chunk is left
	delivered atomic.Int64  // bytes
	broken    atomic.Bool   // err is set
}

// fetching limits the network requests of a task.
type fetching struct {
	want     int   // useful number of concurrent requests
	left     int64 // bytes that are queued or will be queued
	inFlight int   // requests
}

// sched gives chunks to workers, one chunk of each running transfer in turn. So transfers share the engine fairly,
// and together they are as fast as one alone.
type sched[J any] struct {
	mu     sync.Mutex
	wake   [plan.Ways]sync.Cond
	gate   gate                  // instead of wake, for reads from the page cache
	turns  [plan.Ways][]*task[J] // tasks with queued chunks of each way; the next one is first
	closed bool
}

func newSched[J any]() *sched[J] {
	s := &sched[J]{}
	for i := range s.wake {
		s.wake[i].L = &s.mu
	}
	return s
}

// add queues a chunk. It returns false if the transfer has failed, so that the planner stops.
func (s *sched[J]) add(t *task[J], c plan.Chunk) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.err != nil {
		return false
	}
	s.queue(t, c)
	t.outstanding++
	return true
}

func (s *sched[J]) queue(t *task[J], c plan.Chunk) {
	if len(t.queue[c.Way]) == 0 {
		s.turns[c.Way] = append(s.turns[c.Way], t)
	}
	t.queue[c.Way] = append(t.queue[c.Way], c)
	if c.Way == plan.ViaCache {
		s.gate.busy.Store(true)
		s.gate.wake(1)
		return
	}
	s.wake[c.Way].Signal()
}

// requeue queues a taken chunk again, to be read in another way.
func (s *sched[J]) requeue(t *task[J], c plan.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.err != nil {
		s.settle(t, 1)
		return
	}
	s.queue(t, c)
}

// next takes up to n chunks of one transfer for way w. If there is no chunk and block is set, next waits until there
// is one or the scheduler is closed.
func (s *sched[J]) next(w plan.Way, n int, block bool) (job J, cs []plan.Chunk) {
	return s.take(w, block, func(J, []plan.Chunk, int) int { return n })
}

// take takes the first chunks of one transfer for way w. count says how many, from the transfer's queue and the number
// of queued chunks of all transfers. If count returns 0 for a transfer, take goes on to the next one. If count returns
// 0 for all transfers, take calls count again for the first one, as if there were no others. If there is no chunk and
// block is set, take waits until there is one or the scheduler is closed.
func (s *sched[J]) take(w plan.Way, block bool, count func(job J, queue []plan.Chunk, all int) int) (job J,
	cs []plan.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.turns[w]) == 0 {
		if s.closed || !block {
			return job, nil
		}
		s.sleep(w)
	}
	all := 0
	for _, t := range s.turns[w] {
		all += len(t.queue[w])
	}
	at, n := 0, 0
	for i, t := range s.turns[w] {
		if n = count(t.job, t.queue[w], all); n > 0 {
			at = i
			break
		}
	}
	t := s.turns[w][at]
	if n == 0 {
		n = count(t.job, t.queue[w], len(t.queue[w]))
	}
	s.turns[w] = slices.Delete(s.turns[w], at, at+1)
	n = min(n, len(t.queue[w]))
	cs = t.queue[w][:n:n]
	t.queue[w] = t.queue[w][n:]
	if len(t.queue[w]) > 0 {
		s.turns[w] = append(s.turns[w], t)
	}
	return t.job, cs
}

// done records that a chunk of n bytes has been delivered.
func (s *sched[J]) done(t *task[J], n int64) {
	t.delivered.Add(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(t, 1)
}

// failed records that a chunk was not delivered because of err. The transfer keeps its first error, and its queued
// chunks are dropped.
func (s *sched[J]) failed(t *task[J], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(t, err)
	s.settle(t, 1)
}

// doneAll records that several chunks of n bytes together have been delivered.
func (s *sched[J]) doneAll(t *task[J], chunks int, n int64) {
	t.delivered.Add(n)
	s.dropAll(t, chunks)
}

// drop removes one chunk from the count of outstanding chunks, without delivering it.
func (s *sched[J]) drop(t *task[J]) { s.dropAll(t, 1) }

// dropAll removes several chunks from the count of outstanding chunks, without delivering them.
func (s *sched[J]) dropAll(t *task[J], n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(t, n)
}

// stop fails a transfer because of a cancelled context or an error of the planner.
func (s *sched[J]) stop(t *task[J], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(t, err)
	s.settle(t, 0)
}

func (s *sched[J]) fail(t *task[J], err error) {
	if t.err != nil || t.ended {
		return
	}
	t.err = err
	t.broken.Store(true)
	if t.abort != nil {
		t.abort()
	}
	for w := range t.queue {
		if n := len(t.queue[w]); n > 0 {
			t.outstanding -= n
			t.queue[w] = nil
			s.turns[w] = without(s.turns[w], t)
		}
	}
}

func without[J any](ts []*task[J], t *task[J]) []*task[J] {
	out := make([]*task[J], 0, len(ts))
	for _, x := range ts {
		if x != t {
			out = append(out, x)
		}
	}
	return out
}

// planned records that no further chunks will come.
func (s *sched[J]) planned(t *task[J]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.planned = true
	s.settle(t, 0)
}

// settle removes n chunks from the count of outstanding chunks. If none is left, the transfer ends.
func (s *sched[J]) settle(t *task[J], n int) {
	t.outstanding -= n
	if t.planned && t.outstanding == 0 && !t.ended {
		t.ended = true
		close(t.drained)
	}
}

// hasFailed reports whether t has failed. Its remaining chunks then need not be read.
func (s *sched[J]) hasFailed(t *task[J]) bool { return t.broken.Load() }

// close makes every waiting worker end. No transfer may be running.
func (s *sched[J]) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for i := range s.wake {
		s.wake[i].Broadcast()
	}
	s.gate.wake(everyone)
}

// addAll queues several chunks. It returns false if the transfer has failed.
func (s *sched[J]) addAll(t *task[J], cs []plan.Chunk) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.err != nil {
		return false
	}
	for _, c := range cs {
		s.queue(t, c)
	}
	t.outstanding += len(cs)
	return true
}

// failure returns the error of a failed transfer, or nil.
func (s *sched[J]) failure(t *task[J]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.err
}
