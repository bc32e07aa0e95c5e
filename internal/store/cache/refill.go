// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/object"
)

// mostRefills is the largest number of contents whose left-out blocks wait to be fetched again.
const mostRefills = 1024

// refills fetches blocks again that flights have left out, because the disk was slower than the upstream. Blocks that
// no reader has asked for are not fetched.
type refills struct {
	s  *Store
	mu sync.Mutex
	of map[object.Identity]spans // blocks to fetch; an empty set means that the fetch of some blocks is in progress
}

func newRefills(s *Store) *refills { return &refills{s: s, of: map[object.Identity]spans{}} }

// add fetches blocks in the background. If blocks of the content are being fetched already, these follow them: readers
// that share a fetch can make it leave out blocks again.
func (r *refills) add(v *version, left spans) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, running := r.of[v.id]
	if !running && len(r.of) >= mostRefills {
		return // the next reader fetches the blocks
	}
	for _, p := range left {
		want = want.with(p.from, p.to)
	}
	r.of[v.id] = want
	if !running {
		v.hold() // also so that the version remembers how its content was compared
		r.s.running.Go(func() { r.run(v) })
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
func (r *refills) run(v *version) {
	defer v.release()
	turns := r.s.warming.turns
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-r.s.fetches.Done():
	}
	var err error
	for want := r.next(v.id, nil); len(want) > 0; want = r.next(v.id, err) {
		for i := 0; i < len(want) && err == nil; i++ {
			off := want[i].from * blockSize
			err = v.fetchGaps(object.Range{Off: off, N: min(want[i].to*blockSize, v.id.Size) - off})
		}
	}
	if err != nil {
		r.s.log.Info("blocks that the disk did not take in time were not fetched again", "bucket", v.b.Name, "key", v.id.Key,
			"error", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.proved.Broadcast()
}

// next returns the blocks to fetch next, and forgets the content if there are none or the fetch has failed.
func (r *refills) next(id object.Identity, failed error) spans {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := r.of[id]
	if len(want) == 0 || failed != nil || r.s.fetches.Err() != nil {
		delete(r.of, id)
		return nil
	}
	r.of[id] = nil
	return want
}

// fetchGaps reads the blocks of a range that are not on the disk, which puts them into the cache.
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
