// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"slices"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/units"
)

const (
	// A request asks for an equal share of the remaining bytes, within these limits. So there are few requests, each
	// of which costs a round trip, and all connections end at about the same time.
	leastFetch = 4 * units.MiB
	mostFetch  = 64 * units.MiB
	// netGap is the largest number of unwanted bytes that are read and dropped instead of a new request. About as
	// many bytes arrive in the time of a round trip.
	netGap = 256 * units.KiB
)

// nextFetch takes neighbouring chunks for the next request of a transfer that has fewer requests in flight than it
// wants. The chunks are a share of the transfer's remaining bytes.
func (s *sched[J]) nextFetch(block bool) (job J, cs []plan.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := func(t *task[J]) bool { return t.fetch.inFlight < t.fetch.want }
	at := slices.IndexFunc(s.turns[plan.ViaNetwork], waiting)
	for ; at < 0; at = slices.IndexFunc(s.turns[plan.ViaNetwork], waiting) {
		if s.closed || !block {
			return job, nil
		}
		s.wake[plan.ViaNetwork].Wait()
	}
	t := s.turns[plan.ViaNetwork][at]
	s.turns[plan.ViaNetwork] = slices.Delete(s.turns[plan.ViaNetwork], at, at+1)
	q := t.queue[plan.ViaNetwork]
	share := max(leastFetch, min(mostFetch, t.fetch.left/int64(t.fetch.want)))
	n, bytes := 0, int64(0)
	for n < len(q) && (n == 0 || bytes+q[n].Len <= share && follows(q[n-1], q[n])) {
		bytes += q[n].Len
		n++
	}
	t.queue[plan.ViaNetwork] = q[n:]
	t.fetch.left -= bytes
	t.fetch.inFlight++
	if n < len(q) {
		s.turns[plan.ViaNetwork] = append(s.turns[plan.ViaNetwork], t)
	}
	return t.job, q[:n:n]
}

// fetched records the end of a request and wakes a fetcher that may wait for it.
func (s *sched[J]) fetched(t *task[J]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.fetch.inFlight--
	if len(t.queue[plan.ViaNetwork]) > 0 {
		s.wake[plan.ViaNetwork].Signal()
	}
}

// follows reports whether one request can read both a and b.
func follows(a, b plan.Chunk) bool {
	gap := b.Off - a.Off - a.Len
	return a.File == b.File && gap >= 0 && gap <= netGap
}
