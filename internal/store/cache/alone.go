// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

const (
	aloneFor  = 10 * time.Minute // time for which content that was wrong is read from the upstream alone
	mostAlone = 1024             // contents that are remembered
)

// alone remembers content that was wrong as a whole in a cluster. Each block came with its right checksum, so nobody
// knows which node or upstream was wrong, and the owner of the wrong block keeps it. Without alone, each further read
// would get that block again.
type alone struct {
	mu    sync.Mutex
	until map[object.Identity]time.Time
}

// add records content that was wrong.
func (a *alone) add(id object.Identity, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil || len(a.until) >= mostAlone {
		a.until = map[object.Identity]time.Time{}
	}
	a.until[id] = now.Add(aloneFor)
}

// has reports whether the content was wrong lately.
func (a *alone) has(id object.Identity, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	end, ok := a.until[id]
	if ok && now.After(end) {
		delete(a.until, id)
		ok = false
	}
	return ok
}

// neighboursOf returns the neighbours that may be asked for the content, or nil.
func (s *Store) neighboursOf(id object.Identity) Neighbours {
	near := s.neighbours()
	if near == nil || s.alone.has(id, s.now()) {
		return nil
	}
	return near
}
