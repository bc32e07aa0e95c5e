// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// releases frees the disk space of replaced files in the background, after their saves. A save may wait for the
// releases of other saves while new ones begin, which a sync.WaitGroup does not allow. The zero value is ready to
// use.
type releases struct {
	mu      sync.Mutex
	running map[chan struct{}]struct{}
	err     error
}

// Go runs f in a new goroutine, for which Wait waits.
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

// Wait blocks until all functions that earlier calls of the method Go started have returned.
func (r *releases) Wait() {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.running))
	r.mu.Unlock()
	for _, done := range all {
		<-done
	}
}

// fail keeps an error of a function that Go started.
func (r *releases) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

// Err returns the errors so far.
func (r *releases) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
