// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"iter"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// List returns the selected entries in the order of origin and key. Entries that are evicted meanwhile are left out.
// The error is that of ctx, and ends the list.
func (s *Store) List(ctx context.Context, m Match) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for _, v := range s.index.selected(m) {
			if err := context.Cause(ctx); err != nil {
				yield(Info{}, fail("list cache", s.opts.Dir, err))
				return
			}
			s.index.mu.Lock()
			ok := v.known
			var i Info
			if ok {
				i = v.info(s.opts.Now())
			}
			s.index.mu.Unlock()
			if ok && !yield(i, nil) {
				return
			}
		}
	}
}

// info describes an entry. The caller holds index.mu.
func (v *version) info(now time.Time) Info {
	i := Info{Identity: v.id, Bytes: v.bytes, Allocated: v.allocated, Whole: v.count == v.all(), Inline: v.inline,
		Proof: v.proof, Pinned: v.s.index.isPinned(v, now), Superseded: v.superseded, Foreign: v.foreign, Open: v.refs > 0,
		Admitted: v.admitted, Read: v.read.Time}
	if !v.inline && v.file != 0 {
		i.File = v.s.files.path(v.file)
	}
	return i
}

// Stat describes the entry of id. The second result is false if there is none.
func (s *Store) Stat(id object.Identity) (Info, bool) {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	v := s.index.entries[id]
	if v == nil {
		return Info{}, false
	}
	return v.info(s.opts.Now()), true
}

// Evict removes the selected entries, except pinned ones. The files of entries in use are removed when the last user is
// done. Evict makes the removal durable.
func (s *Store) Evict(ctx context.Context, m Match) (Evicted, error) {
	var r Evicted
	for _, v := range s.index.selected(m) {
		if err := context.Cause(ctx); err != nil {
			return r, fail("evict", s.opts.Dir, err)
		}
		s.index.mu.Lock()
		pinned := s.index.isPinned(v, s.opts.Now())
		switch {
		case !v.known:
		case pinned:
			r.Pinned++
		default:
			r.Entries++
			r.Bytes += v.allocated
			s.counts.evicted.Add(1)
			s.counts.freed.Add(v.allocated)
			s.index.forget(v)
		}
		s.index.mu.Unlock()
		if !pinned {
			s.unload(v)
		}
	}
	return r, s.writer.flush(ctx, nil, false)
}
