// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// mostRefills is the largest number of contents whose left-out blocks wait to be fetched again.
const mostRefills = 1024

// refills fetches blocks again that flights have left out, because the disk was slower than the upstream. Blocks that no
// reader has asked for are not fetched.
type refills struct {
	s  *Store
	mu sync.Mutex
	of map[object.Identity]spans // blocks to fetch; an empty set means that the fetch of some blocks is in progress
}

func newRefills(s *Store) *refills { return &refills{s: s, of: map[object.Identity]spans{}} }

// add fetches blocks in the background. If blocks of the content are being fetched already, these follow them: readers
// that share a fetch can make it leave out blocks again.
func (r *refills) add(b *bucket, id object.Identity, about *upstream.About, left spans) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, running := r.of[id]
	if !running && len(r.of) >= mostRefills {
		return // the next reader fetches the blocks
	}
	for _, p := range left {
		want = want.with(p.from, p.to)
	}
	r.of[id] = want
	if !running {
		r.s.running.Go(func() { r.run(b, id, about) })
	}
}

// has reports whether blocks of the content are being fetched, or wait for it.
func (r *refills) has(id object.Identity) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.of[id]
	return ok
}

// run fetches the blocks of one content until none is left, and tells its readers.
func (r *refills) run(b *bucket, id object.Identity, about *upstream.About) {
	r.fetch(b, id, about)
	if v := r.s.shelf.reading(id); v != nil {
		v.mu.Lock()
		v.proved.Broadcast()
		v.mu.Unlock()
		v.release()
	}
}

// fetch fetches the blocks of one content until none is left.
func (r *refills) fetch(b *bucket, id object.Identity, about *upstream.About) {
	turns := r.s.warming.turns
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-r.s.fetches.Done():
	}
	for {
		r.mu.Lock()
		want := r.of[id]
		if len(want) == 0 || r.s.fetches.Err() != nil {
			delete(r.of, id)
			r.mu.Unlock()
			return
		}
		r.of[id] = nil
		r.mu.Unlock()
		if err := r.s.fetchBlocks(b, id, about, want); err != nil {
			r.s.log.Info("blocks that the disk did not take in time were not fetched again", "bucket", b.Name, "key", id.Key,
				"error", err)
			r.mu.Lock()
			delete(r.of, id)
			r.mu.Unlock()
			return
		}
	}
}

// fetchBlocks reads blocks of content that the cache has not given up, which puts them into the cache.
func (s *Store) fetchBlocks(b *bucket, id object.Identity, about *upstream.About, want spans) error {
	v, kept, err := s.shelf.take(s.fetches, b, id, about, -1, false)
	if err != nil || !kept {
		return err
	}
	defer v.release()
	for _, p := range want {
		off := p.from * blockSize
		if err := v.fetchGaps(object.Range{Off: off, N: min(p.to*blockSize, id.Size) - off}); err != nil {
			return err
		}
	}
	return nil
}

// fetchGaps reads the blocks of a range that are not on the disk.
func (v *version) fetchGaps(r object.Range) error {
	for _, gap := range v.entry.Missing(r) {
		v.hold()
		part := &body{ctx: v.b.s.fetches, v: v, patient: true, pos: gap.Off, end: gap.Off + gap.N}
		_, err := io.Copy(io.Discard, struct{ io.Reader }{part})
		_ = part.Close() // only read from
		if err != nil {
			return err
		}
	}
	return nil
}
