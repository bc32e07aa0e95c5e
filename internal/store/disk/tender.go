// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"sync"
	"time"
)

// The tender's times.
const (
	tendEvery  = time.Second
	retryEvery = 15 * time.Second // between two tries of what failed in the background
	reviveLast = 30 * time.Second // the longest time between two tries to make the store writable
)

// tender does now and then what a store needs while it runs: it makes the store writable again, takes the ballast
// again, tries again what failed in the background, and has the space of deleted metadata given back.
type tender struct {
	s       *Store
	mu      sync.Mutex
	stopped context.CancelFunc
	done    chan struct{}
}

// start begins the work; it does nothing where the work goes on.
func (t *tender) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	t.stopped, t.done = stop, make(chan struct{})
	go func() {
		defer close(t.done)
		t.run(ctx)
	}()
}

// stop ends the work and waits for its end. Where Pebble waits for space or has failed, its end may never come: it is
// not waited for.
func (t *tender) stop() {
	t.mu.Lock()
	stop, done := t.stopped, t.done
	t.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.s.fence.Closed:
			return
		case <-tick.C:
			if t.s.stalled() {
				return
			}
		}
	}
}

func (t *tender) run(ctx context.Context) {
	tick := time.NewTicker(t.s.opts.tend)
	defer tick.Stop()
	var next, retry time.Time
	wait := t.s.opts.tend
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if t.s.readOnly.Load() != nil {
			if now.Before(next) {
				continue
			}
			if t.s.revive(ctx) && t.s.readOnly.Load() != nil {
				wait = min(2*wait, reviveLast)
			}
			next = now.Add(wait)
			continue
		}
		if t.s.fence.Failure() != nil {
			return
		}
		if t.s.stalled() {
			continue
		}
		if now.After(retry) {
			retry = now.Add(retryEvery)
			t.s.ballast.take()
			t.s.remover.retry()
			t.s.files.Retry()
		}
		t.s.sweeper.step(ctx, now)
	}
}
