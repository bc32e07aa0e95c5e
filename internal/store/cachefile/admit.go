// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Admit returns the entry of id, and makes an empty one if there is none. If the second result is
// false, the content should be served without being kept. Then it is larger than the cache may be, or there is no room
// and the Guard lets nothing be evicted. The caller releases the entry. Admit fails if id is invalid or the cache is
// closed.
func (s *Store) Admit(ctx context.Context, id object.Identity) (*Entry, bool, error) {
	const op = "admit to cache"
	if err := checkIdentity(op, id); err != nil {
		return nil, false, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, false, fail(op, id.Key, err)
	}
	s.index.mu.Lock()
	v := s.index.take(id)
	if v != nil {
		s.index.mu.Unlock()
		if e, ok := s.ready(v); ok {
			return e, true, nil
		}
		s.index.mu.Lock()
		v = s.index.take(id) // the broken one is gone; somebody may have made a new one
		if v != nil {
			s.index.mu.Unlock()
			e, ok := s.ready(v)
			return e, ok, nil
		}
	}
	if s.index.closed {
		s.index.mu.Unlock()
		return nil, false, object.Fail(op, id.Key, object.ErrClosed, "")
	}
	out, ok := s.index.admit(id)
	if ok {
		v = newVersion(s, id)
		v.promise = allocatedOf(id.Size)
		s.index.promised += v.promise
		v.refs, v.blocks = 1, v.empty()
		s.index.enter(v)
	} else {
		s.counts.refused.Add(1)
	}
	s.index.mu.Unlock()
	s.discard(out)
	if !ok {
		return nil, false, nil
	}
	return &Entry{v: v}, true, nil
}
