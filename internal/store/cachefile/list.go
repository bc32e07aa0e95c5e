// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// List returns the selected entries in the order of origin and key. Entries that are evicted meanwhile are left out.
// The error is that of ctx, and ends the list.
func (s *Store) List(ctx context.Context, m Match) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for _, v := range s.selected(m) {
			if err := context.Cause(ctx); err != nil {
				yield(Info{}, fail("list cache", s.opts.Dir, err))
				return
			}
			s.mu.Lock()
			ok := v.known
			var i Info
			if ok {
				i = s.info(v, s.opts.Now())
			}
			s.mu.Unlock()
			if ok && !yield(i, nil) {
				return
			}
		}
	}
}

// selected returns the selected entries in the order of origin and key.
func (s *Store) selected(m Match) []*version {
	s.mu.Lock()
	var out []*version
	for _, v := range s.entries {
		if m.Matches(v.id.Origin, v.id.Key) {
			out = append(out, v)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b *version) int {
		return cmp.Or(strings.Compare(a.id.Origin, b.id.Origin), strings.Compare(a.id.Key, b.id.Key),
			a.admitted.Compare(b.admitted))
	})
	return out
}

// info describes an entry. The caller holds mu.
func (s *Store) info(v *version, now time.Time) Info {
	i := Info{Identity: v.id, Bytes: v.bytes, Allocated: v.allocated, Whole: v.count == v.all(), Inline: v.inline,
		Proof: v.proof, Pinned: s.isPinned(v, now), Superseded: v.superseded, Foreign: v.foreign, Open: v.refs > 0,
		Admitted: v.admitted, Read: v.read.Time}
	if !v.inline && v.file != 0 {
		i.File = s.path(v.file)
	}
	return i
}

// Stat describes the entry of id. The second result is false if there is none.
func (s *Store) Stat(id object.Identity) (Info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.entries[id]
	if v == nil {
		return Info{}, false
	}
	return s.info(v, s.opts.Now()), true
}

// Evict removes the selected entries, except pinned ones. The files of entries in use are removed when the last user is
// done. Evict makes the removal durable.
func (s *Store) Evict(ctx context.Context, m Match) (Evicted, error) {
	var r Evicted
	for _, v := range s.selected(m) {
		if err := context.Cause(ctx); err != nil {
			return r, fail("evict", s.opts.Dir, err)
		}
		s.mu.Lock()
		pinned := s.isPinned(v, s.opts.Now())
		switch {
		case !v.known:
		case pinned:
			r.Pinned++
		default:
			r.Entries++
			r.Bytes += v.allocated
			s.evicted.Add(1)
			s.freed.Add(v.allocated)
			s.forget(v)
		}
		s.mu.Unlock()
		if !pinned {
			s.unload(v)
		}
	}
	return r, s.flush(ctx, nil, false)
}
