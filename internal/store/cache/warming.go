// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// mostFailures is the largest number of failed fetches that are remembered.
const mostFailures = 10_000

// warming holds the fetches that somebody asked for.
type warming struct {
	mu      sync.Mutex
	running map[object.Identity]bool
	failed  map[object.Identity]failure
	turns   chan struct{}
}

// failure is a failed fetch.
type failure struct {
	err error
	at  time.Time
}

func newWarming() *warming {
	return &warming{running: map[object.Identity]bool{}, failed: map[object.Identity]failure{},
		turns: make(chan struct{}, mostWarming)}
}

// state returns the last failure of a fetch, or nil, and whether a fetch is in progress.
func (w *warming) state(id object.Identity) (*failure, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f, ok := w.failed[id]; ok {
		return &f, w.running[id]
	}
	return nil, w.running[id]
}

// start starts a fetch in the background.
func (w *warming) start(s *Store, b *bucket, f found) {
	id := f.about.Identity
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[id] {
		return
	}
	w.running[id] = true
	delete(w.failed, id)
	s.running.Go(func() {
		var err error
		select {
		case w.turns <- struct{}{}:
			err = s.fetchAll(b, f)
			<-w.turns
		case <-s.fetches.Done():
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, id)
		if err != nil {
			s.log.Info("an object was not fetched to the cache as a whole", "bucket", b.Name, "key", id.Key, "error", err)
			if len(w.failed) >= mostFailures {
				clear(w.failed)
			}
			w.failed[id] = failure{err, s.now()}
		}
	})
}
