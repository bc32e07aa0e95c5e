// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// gate limits the concurrent requests. If a server asks for fewer requests, the limit is halved; it grows by one after
// as many requests without such an answer as the limit has.
type gate struct {
	mu      sync.Mutex
	most    int
	limit   int
	active  int
	calm    int // requests since the limit last changed
	waiting []chan struct{}
	clients []*s3.Client
	slowed  int64
}

func newGate(most int) *gate { return &gate{most: most, limit: most} }

// watch makes the gate obey the answers to a client.
func (g *gate) watch(c *s3.Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, have := range g.clients {
		if have == c {
			return
		}
	}
	g.clients = append(g.clients, c)
	g.slowed += c.Slowed()
}

func (g *gate) now() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limit
}

// enter waits until a request may be sent.
func (g *gate) enter(ctx context.Context) error {
	g.mu.Lock()
	if g.active < g.limit {
		g.active++
		g.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	g.waiting = append(g.waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting {
		if w == turn {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return errs.Wrap("wait for", "a connection", context.Cause(ctx))
		}
	}
	g.active-- // the turn came at the same moment
	g.admit()
	return errs.Wrap("wait for", "a connection", context.Cause(ctx))
}

// leave ends a request and adapts the limit.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active--
	var slowed int64
	for _, c := range g.clients {
		slowed += c.Slowed()
	}
	if g.calm++; slowed > g.slowed {
		g.slowed, g.limit, g.calm = slowed, max(1, g.limit/2), 0
	} else if g.limit < g.most && g.calm >= g.limit {
		g.limit++
		g.calm = 0
	}
	g.admit()
}

// admit gives turns to those who wait.
func (g *gate) admit() {
	for len(g.waiting) > 0 && g.active < g.limit {
		close(g.waiting[0])
		g.waiting = g.waiting[1:]
		g.active++
	}
}

// limiter spreads bytes over time. A nil limiter does not limit.
type limiter struct {
	mu   sync.Mutex
	rate float64
	next time.Time
}

func newLimiter(rate int64) *limiter {
	if rate == 0 {
		return nil
	}
	return &limiter{rate: float64(rate)}
}

// wait waits until n more bytes may be moved.
func (l *limiter) wait(ctx context.Context, n int) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	now := time.Now()
	if l.next.Before(now) {
		l.next = now
	}
	pause := l.next.Sub(now)
	l.next = l.next.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	l.mu.Unlock()
	if pause <= 0 {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errs.Wrap("wait for", "the limit of the rate", context.Cause(ctx))
	}
}
