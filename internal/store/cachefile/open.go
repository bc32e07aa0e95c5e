// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// Open opens the cache in o.Dir, and creates the directory if it is missing. Open reads the index of the entries, and
// does not look at the files. If the database is damaged, Open tells Options.Failed, removes all content and begins
// anew. Open fails with kind Invalid if another process has the cache open.
func Open(ctx context.Context, o Options) (*Store, error) {
	const op = "open cache"
	if err := o.defaults(); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fail(op, o.Dir, err)
	}
	var err error
	if o.FS, o.Dir, err = layout.Resolve(o.FS, o.Dir); err != nil {
		return nil, err
	}
	s := newStore(o)
	if err := s.files.makeDirs(); err != nil {
		return nil, err
	}
	if s.lock, err = layout.Lock(o.FS, o.Dir); err != nil {
		return nil, err
	}
	if err = (&loader{s}).open(); err != nil {
		_ = s.lock.Close() // nothing was written
		return nil, err
	}
	s.files.mount()
	s.tasks.Go(s.writer.run)
	s.tasks.Go((&sweeper{s}).run)
	return s, nil
}

func newStore(o Options) *Store {
	s := &Store{opts: o, stop: make(chan struct{}), swept: make(chan struct{})}
	s.memory.join = checksum.NewJoiner()
	s.writer = newWriter(s)
	s.files = newFiles(&s.opts)
	s.meta = &metadata{opts: &s.opts, fs: o.FS}
	s.known = &knowledge{meta: s.meta, most: o.MostKnown}
	s.index = &index{opts: &s.opts, counts: &s.counts, evicts: s.writer.evicts}
	s.index.reset()
	return s
}

// Close makes all present blocks durable and closes the cache. Entries that are still held stay readable. Close can be
// called more than once.
func (s *Store) Close() error {
	s.index.mu.Lock()
	closed := s.index.closed
	s.index.closed = true
	s.index.mu.Unlock()
	if closed {
		return nil
	}
	close(s.stop)
	s.tasks.Wait()
	err := s.writer.flush(context.Background(), nil, true)
	if e := s.meta.close(); err == nil {
		err = e
	}
	s.index.mu.Lock()
	var idle []*version
	for s.index.idle.Len() > 0 {
		v := s.index.idle.Front().Value.(*version)
		s.index.unrest(v)
		idle = append(idle, v)
	}
	clear(s.index.dirty)
	s.index.mu.Unlock()
	for _, v := range idle {
		s.unload(v)
	}
	s.files.lent.Close()
	if e := s.lock.Close(); err == nil {
		err = fail("close cache", s.opts.Dir, e)
	}
	return err
}
