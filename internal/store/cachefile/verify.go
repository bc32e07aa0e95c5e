// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"errors"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Verify reads every present block of the selected entries, drops blocks that do not match their checksums, and
// returns what it found. Verify calls progress, which may be nil, after each entry and each 64 MiB, on the caller's
// goroutine. Verify fails if ctx ends or a file cannot be read for a reason other than damage; the Report then has what
// was found so far.
func (s *Store) Verify(ctx context.Context, m Match, progress func(Progress)) (Report, error) {
	all := s.index.selected(m)
	p := Progress{AllEntries: int64(len(all))}
	s.index.mu.Lock()
	for _, v := range all {
		p.AllBytes += v.bytes
	}
	s.index.mu.Unlock()
	var r Report
	tell := func() {
		if progress != nil {
			p.Bytes, p.Damaged = r.Bytes, r.Dropped
			progress(p)
		}
	}
	for _, v := range all {
		if err := s.verifyOne(ctx, v, &r, tell); err != nil {
			return r, err
		}
		p.Entries++
		tell()
	}
	return r, nil
}

// verifyOne compares the present blocks of one entry.
func (s *Store) verifyOne(ctx context.Context, v *version, r *Report, tell func()) error {
	s.index.mu.Lock()
	ok := v.known && !s.index.closed
	if ok {
		s.index.hold(v)
	}
	s.index.mu.Unlock()
	if !ok {
		return nil // it was evicted meanwhile
	}
	e, ok := s.ready(v)
	if !ok {
		r.Lost++
		return nil
	}
	defer e.Release()
	r.Entries++
	for i := range v.all() {
		if err := context.Cause(ctx); err != nil {
			return fail("verify cache", v.name(), err)
		}
		v.mu.Lock()
		have := v.blocks.have.has(i)
		v.blocks.seen.clear(i) // so that damage which came after the first read is found too
		v.mu.Unlock()
		if !have {
			continue
		}
		err := v.check(i)
		var d *damageError
		switch {
		case errors.As(err, &d):
			r.Dropped++
			if len(r.Damaged) < MostDamages {
				r.Damaged = append(r.Damaged, Damage{Identity: v.id, Block: i, What: d.what})
			}
		case errors.Is(err, ErrAbsent):
		case err != nil:
			return err
		default:
			r.Bytes += v.size(i)
		}
		if i%(object.Extent/object.SumBlock) == object.Extent/object.SumBlock-1 {
			tell()
		}
	}
	return nil
}
