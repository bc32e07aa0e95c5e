// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"maps"
	"slices"
	"sync"
)

// releases gives back the space of files that were replaced, behind the saves
// that did. Any save may wait for those of the others while more begin, which a
// sync.WaitGroup does not allow. The zero value is ready.
type releases struct {
	mu      sync.Mutex
	running map[chan struct{}]struct{}
}

// Go runs f in the background.
func (r *releases) Go(f func()) {
	done := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[chan struct{}]struct{}{}
	}
	r.running[done] = struct{}{}
	go func() {
		f()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, done)
		close(done)
	}()
}

// Wait returns when all that has begun before is over.
func (r *releases) Wait() {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.running))
	r.mu.Unlock()
	for _, done := range all {
		<-done
	}
}
