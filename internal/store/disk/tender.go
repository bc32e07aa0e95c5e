// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"sync"
	"time"
)

// The intervals of the tender.
const (
	tendEvery  = time.Second
	retryEvery = 15 * time.Second // between two retries of failed background work
	reviveLast = 30 * time.Second // the longest time between two tries to make the store writable
)

// tender does periodic work while a store runs: it makes the store writable again, creates the ballast again, retries
// failed background work, shortens queues of the journal, and frees the space of deleted metadata.
type tender struct {
	s       *Store
	mu      sync.Mutex
	stopped context.CancelFunc
	done    chan struct{}
}

// start starts the work, unless it is already running.
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

// stop ends the work and waits for its end. If Pebble waits for space or has failed, the end may never come, so stop
// does not wait.
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
		t.s.journal.trim(ctx)
		t.s.sweeper.step(ctx, now)
	}
}
