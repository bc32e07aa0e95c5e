// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"slices"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/units"
)

const (
	// A request asks for an equal share of what is left, within these bounds: few
	// requests, each of which costs a round trip, and at the end no connection that works alone.
	leastFetch = 4 * units.MiB
	mostFetch  = 64 * units.MiB
	// netGap is up to how many unwanted bytes are taken off the wire rather
	// than ask anew: about what arrives in the time of a round trip.
	netGap = 256 * units.KiB
)

// nextFetch takes a run of chunks of one transfer, which has not as many
// requests in flight as it wants: its share of what is left of it.
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

// fetched counts a request off; another fetcher may have waited for that.
func (s *sched[J]) fetched(t *task[J]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.fetch.inFlight--
	if len(t.queue[plan.ViaNetwork]) > 0 {
		s.wake[plan.ViaNetwork].Signal()
	}
}

// follows reports whether b is read by the request that reads a.
func follows(a, b plan.Chunk) bool {
	gap := b.Off - a.Off - a.Len
	return a.File == b.File && gap >= 0 && gap <= netGap
}
