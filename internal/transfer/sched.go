// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"sync"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
)

// sched hands chunks to workers: one chunk of each running transfer in turn, so
// that transfers share the engine fairly and together are as fast as one alone.
type sched struct {
	mu     sync.Mutex
	wake   [plan.Ways]sync.Cond
	turns  [plan.Ways][]*Transfer // those with queued chunks of that way, next one first
	closed bool
}

func newSched() *sched {
	s := &sched{}
	for i := range s.wake {
		s.wake[i].L = &s.mu
	}
	return s
}

// add queues a chunk. It reports false when the transfer has failed meanwhile;
// the planner then stops.
func (s *sched) add(t *Transfer, c plan.Chunk) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.err != nil {
		return false
	}
	s.queue(t, c)
	t.outstanding++
	return true
}

func (s *sched) queue(t *Transfer, c plan.Chunk) {
	if len(t.queue[c.Way]) == 0 {
		s.turns[c.Way] = append(s.turns[c.Way], t)
	}
	t.queue[c.Way] = append(t.queue[c.Way], c)
	s.wake[c.Way].Signal()
}

// requeue gives a chunk that was taken back to be read in another way.
func (s *sched) requeue(t *Transfer, c plan.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.err != nil {
		s.settle(t, 1)
		return
	}
	s.queue(t, c)
}

// next takes up to n chunks of one transfer to be read in way w. Without any it
// returns nil, at once or, with block, when the scheduler is closed.
func (s *sched) next(w plan.Way, n int, block bool) (*Transfer, []plan.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.turns[w]) == 0 {
		if s.closed || !block {
			return nil, nil
		}
		s.wake[w].Wait()
	}
	t := s.turns[w][0]
	s.turns[w] = s.turns[w][1:]
	n = min(n, len(t.queue[w]))
	cs := t.queue[w][:n:n]
	t.queue[w] = t.queue[w][n:]
	if len(t.queue[w]) > 0 {
		s.turns[w] = append(s.turns[w], t)
	}
	return t, cs
}

// done records that a chunk of n bytes has been delivered.
func (s *sched) done(t *Transfer, n int64) {
	t.delivered.Add(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(t, 1)
}

// failed records that a chunk will not be delivered, and why. The first error
// of a transfer is kept and its queued chunks are dropped.
func (s *sched) failed(t *Transfer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(t, err)
	s.settle(t, 1)
}

// drop counts off a chunk of a transfer that has failed already.
func (s *sched) drop(t *Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(t, 1)
}

// stop fails a transfer from outside: a cancelled context or a planner's error.
func (s *sched) stop(t *Transfer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(t, err)
	s.settle(t, 0)
}

func (s *sched) fail(t *Transfer, err error) {
	if t.err != nil || t.ended {
		return
	}
	t.err = err
	t.net.abort()
	for w := range t.queue {
		if n := len(t.queue[w]); n > 0 {
			t.outstanding -= n
			t.queue[w] = nil
			s.turns[w] = without(s.turns[w], t)
		}
	}
}

func without(ts []*Transfer, t *Transfer) []*Transfer {
	out := make([]*Transfer, 0, len(ts))
	for _, x := range ts {
		if x != t {
			out = append(out, x)
		}
	}
	return out
}

// planned records that no further chunks will come.
func (s *sched) planned(t *Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.planned = true
	s.settle(t, 0)
}

// settle counts n chunks off and, when none is left, lets the transfer end.
func (s *sched) settle(t *Transfer, n int) {
	t.outstanding -= n
	if t.planned && t.outstanding == 0 && !t.ended {
		t.ended = true
		close(t.drained)
	}
}

// hasFailed reports whether t has failed; what it still has in hand need not
// be read any more.
func (s *sched) hasFailed(t *Transfer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.err != nil
}

// close wakes every waiting worker to end; no transfer runs any more.
func (s *sched) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for i := range s.wake {
		s.wake[i].Broadcast()
	}
}
