// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Phase is the state of a breaker.
type Phase string

// A breaker is in one of the phases Closed, Open and HalfOpen.
const (
	Closed   Phase = "closed"    // requests are sent
	Open     Phase = "open"      // requests fail at once
	HalfOpen Phase = "half-open" // one request is on its way to find out whether the upstream is back
)

// State describes a breaker.
type State struct {
	Phase    Phase     `json:"phase"`
	Failures int       `json:"failures"`             // in a row
	Since    time.Time `json:"since,omitzero"`       // time of the first of the failures in a row; zero if there are none
	Retry    time.Time `json:"retry,omitzero"`       // while open: when the next request will be sent
	Last     string    `json:"last_error,omitempty"` // the last failure
}

// Shortest and longest time for which a breaker stays open before it lets a request through.
const (
	shortestOpen = time.Second
	longestOpen  = 30 * time.Second
)

// breaker stops requests to a server that does not answer. After a number of failures in a row it opens: requests fail
// at once. After a pause, it lets a single request through. If that request succeeds, the breaker closes; if it fails,
// the next pause is twice as long.
type breaker struct {
	most int
	now  func() time.Time

	mu    sync.Mutex
	s     State
	pause time.Duration
	trial uint64 // number of the request that was let through; 0: none is on its way
	count uint64
}

func newBreaker(most int, now func() time.Time) *breaker {
	return &breaker{most: most, now: now, s: State{Phase: Closed}}
}

func (b *breaker) state() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s
}

// enter asks to send a request. It returns the number of the request for the calls of succeeded, failed and left, or an
// error if the breaker is open.
func (b *breaker) enter() (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	switch b.s.Phase {
	case Closed:
		return b.count, nil
	case Open:
		if now := b.now(); now.Before(b.s.Retry) {
			return 0, errs.New(errs.IO, "", "", fmt.Sprintf("not asked, because it has failed %d times in a row since %s, "+
				"and is tried again in %s; the last failure: %s", b.s.Failures, b.s.Since.UTC().Format(time.RFC3339),
				units.Duration(b.s.Retry.Sub(now)), b.s.Last))
		}
		b.s.Phase, b.trial = HalfOpen, b.count
		return b.count, nil
	}
	return 0, errs.New(errs.IO, "", "", fmt.Sprintf(
		"not asked, because it has failed %d times in a row since %s, and one "+
			"request finds out now whether it is back; the last failure: %s", b.s.Failures,
		b.s.Since.UTC().Format(time.RFC3339), b.s.Last))
}

// succeeded records that the upstream has answered a request.
func (b *breaker) succeeded(uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s, b.pause, b.trial = State{Phase: Closed}, 0, 0
}

// failed records that the upstream has not answered a request.
func (b *breaker) failed(n uint64, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if b.s.Failures++; b.s.Failures == 1 {
		b.s.Since = now
	}
	b.s.Last = why.Error()
	switch {
	case b.s.Phase == HalfOpen && n == b.trial, b.s.Phase == Closed && b.s.Failures >= b.most:
		b.trial = 0
		b.pause = min(longestOpen, max(shortestOpen, 2*b.pause))
		// The jitter keeps the nodes of a cluster from asking all at once.
		b.s.Phase, b.s.Retry = Open, now.Add(b.pause/2+rand.N(b.pause/2+1))
	}
}

// left records that a request ended without news about the upstream, for example because its caller gave up.
func (b *breaker) left(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.s.Phase == HalfOpen && n == b.trial {
		b.s.Phase, b.trial, b.s.Retry = Open, 0, b.now() // the next request may try
	}
}
