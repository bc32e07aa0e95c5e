// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"sync"
	"time"
)

// maxBackoff is the largest pause after failures of a member.
const maxBackoff = time.Minute

// peer is what this node has seen of another member: whether to ask it, and what it gave.
type peer struct {
	limits Limits
	now    func() time.Time

	mu         sync.Mutex
	failures   int       // failures in a row
	closedTo   time.Time // no requests before this time, because of failures
	distrusted time.Time // no requests before this time, because of wrong bytes
	isProbing  bool      // whether one request tries a member that had failed
	why        string    // latest failure
	counts     Counts
}

// Counts are numbers of what moved between members since the start of the node.
type Counts struct {
	Requests int64 `json:"requests"` // requests that gave at least one block
	Blocks   int64 `json:"blocks"`
	Bytes    int64 `json:"bytes"`
	Errors   int64 `json:"errors"` // requests that failed or ended early
	Wrong    int64 `json:"wrong"`  // replies with wrong bytes, checksums or lengths
}

// allow reports whether the member may be asked now. After a pause, one request at a time may try the member. The
// caller ends an allowed request with one call of good, bad or idle.
func (p *peer) allow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if now.Before(p.distrusted) || now.Before(p.closedTo) {
		return false
	}
	if p.failures >= p.limits.Failures {
		if p.isProbing {
			return false
		}
		p.isProbing = true
	}
	return true
}

// gave counts a block.
func (p *peer) gave(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Blocks++
	p.counts.Bytes += int64(n)
}

// answered records that a request has given its first block.
func (p *peer) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Requests++
	p.failures, p.isProbing, p.closedTo = 0, false, time.Time{}
}

// idle ends a request about which the member is not to blame.
func (p *peer) idle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isProbing = false
}

// bad ends a request that failed. A member that lied is not asked for a long time.
func (p *peer) bad(why string, lied bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	p.why = why
	p.isProbing = false
	p.counts.Errors++
	p.failures++
	if over := p.failures - p.limits.Failures; over >= 0 {
		p.closedTo = now.Add(min(maxBackoff, p.limits.Backoff<<min(over, 10)))
	}
	if lied {
		p.counts.Wrong++
		p.distrusted = now.Add(p.limits.Distrust)
	}
}

// refresh forgets failures, because the member has started again. A member stays distrusted.
func (p *peer) refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures, p.isProbing, p.closedTo = 0, false, time.Time{}
}

// state returns the state of the member in one word, and the reason if the member is not asked.
func (p *peer) state() (state, why string, c Counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	switch {
	case now.Before(p.distrusted):
		return StateDistrusted, p.why, p.counts
	case p.failures >= p.limits.Failures:
		return StateFailing, p.why, p.counts
	}
	return StateAlive, "", p.counts
}

// peers holds a peer for each member that this node has asked.
type peers struct {
	limits Limits
	now    func() time.Time
	mu     sync.Mutex
	all    map[string]*peer
}

// of returns the peer of a name.
func (s *peers) of(name string) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[name]
	if p == nil {
		p = &peer{limits: s.limits, now: s.now}
		s.all[name] = p
	}
	return p
}

// forget removes the peers for which gone is true.
func (s *peers) forget(gone func(name string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.all {
		if gone(name) {
			delete(s.all, name)
		}
	}
}
