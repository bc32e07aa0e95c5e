// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// gather is how long settling waits for company: one sync of a directory serves all files that end in it, and nobody
	// waits for a file to be settled.
	gather = 50 * time.Millisecond
	// batch is from how many files on it does not wait.
	batch = 256
	// mostMade bounds what is remembered of directories; to forget one costs a sync.
	mostMade = 1024
)

// settler moves committed files from tmp/ into their places, many at a time.
type settler struct {
	f    *Files
	wake chan struct{}
	quit chan struct{}
	done chan struct{}

	work sync.Mutex // held while files are moved, so that Flush waits for those that are under way

	mu      sync.Mutex
	waiting []ID            // not begun
	moving  map[ID]struct{} // waiting, begun, or failed and to be tried again
	late    []ID            // failed
	made    map[string]bool // directories of data/ that are there and durable
}

func (s *settler) start(f *Files) {
	s.f = f
	s.wake, s.quit, s.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	s.moving, s.made = map[ID]struct{}{}, map[string]bool{}
	go s.run()
}

// stop settles what is left and ends the settling.
func (s *settler) stop() error {
	close(s.quit)
	<-s.done
	return s.f.Flush()
}

// Settle tells that the caller's metadata knows these files durably: they are moved to their places in the background.
// Until then, and if that fails, they are read where they are.
func (f *Files) Settle(ids ...ID) {
	s := &f.settler
	s.mu.Lock()
	for _, id := range ids {
		if _, ok := s.moving[id]; !ok {
			s.moving[id] = struct{}{}
			s.waiting = append(s.waiting, id)
		}
	}
	s.mu.Unlock()
	s.rouse()
}

// rouse tells the settler that there is work.
func (s *settler) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Flush settles now what is committed, and what failed before.
func (f *Files) Flush() error {
	s := &f.settler
	s.work.Lock()
	defer s.work.Unlock()
	_, err := s.settle(s.take(true))
	return err
}

// Retry settles again in the background what failed before.
func (f *Files) Retry() {
	s := &f.settler
	s.mu.Lock()
	n := len(s.late)
	s.waiting = append(s.waiting, s.late...)
	s.late = nil
	s.mu.Unlock()
	if n > 0 {
		s.rouse()
	}
}

func (s *settler) run() {
	defer close(s.done)
	var due <-chan time.Time // nil while nothing waits
	for {
		select {
		case <-s.quit:
			return
		case <-s.wake:
			if !s.enough() {
				if due == nil {
					due = time.After(gather)
				}
				continue
			}
		case <-due:
		}
		due = nil
		s.work.Lock()
		_, _ = s.settle(s.take(false)) // errors are told to Failed
		s.work.Unlock()
	}
}

func (s *settler) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) >= batch
}

// take takes the files that wait, and with them some, or all, of those that failed.
func (s *settler) take(all bool) []ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.waiting
	s.waiting = nil
	if len(ids) > 0 || all {
		n := len(s.late)
		if !all {
			n = min(n, batch)
		}
		ids = append(ids, s.late[:n]...)
		s.late = slices.Delete(s.late, 0, n)
	}
	return ids
}

// settle moves files, a batch for each directory, and returns those that it moved. The first error is returned, all are
// told to Failed.
func (s *settler) settle(ids []ID) (moved []ID, first error) {
	slices.Sort(ids)
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n]>>12 == ids[0]>>12 {
			n++
		}
		done, err := s.settleIn(s.f.home(ids[0]), ids[:n])
		moved = append(moved, done...)
		if err != nil && first == nil {
			first = err
		}
		ids = ids[n:]
	}
	return moved, first
}

// settleIn moves files that end in one directory: link, sync the directory, and only then take the old names away.
func (s *settler) settleIn(dir string, ids []ID) ([]ID, error) {
	const op = "settle"
	var linked []ID
	var failed error
	lose := func(ids []ID, err error) {
		s.mu.Lock()
		for _, id := range ids {
			if _, ok := s.moving[id]; ok {
				s.late = append(s.late, id)
			}
		}
		s.mu.Unlock()
		if failed == nil {
			failed = err
		}
		for _, id := range ids {
			if s.f.opts.Failed != nil {
				s.f.opts.Failed(id, err)
			}
		}
	}
	if err := s.makeDir(dir); err != nil {
		lose(ids, fail(op, dir, err))
		return nil, failed
	}
	for _, id := range ids {
		s.f.names.RLock() // Remove would miss a name that is made between its two looks
		err := s.f.fs.Link(s.f.tmpName(id), s.f.dataName(id))
		s.f.names.RUnlock()
		switch {
		case err == nil, exists(err):
			linked = append(linked, id)
		case missing(err):
			// Settled before, or removed meanwhile: there is nothing to move.
			s.forget(id)
		default:
			lose([]ID{id}, fail(op, s.f.tmpName(id), err))
		}
	}
	if len(linked) == 0 {
		return nil, failed
	}
	if err := s.f.syncDir(dir); err != nil {
		lose(linked, fail(op, dir, err))
		return nil, failed
	}
	s.f.names.Lock()
	var moved []ID
	for _, id := range linked {
		parked, err := s.f.holds.park(id, func() error { return s.f.fs.Remove(s.f.tmpName(id)) })
		if parked {
			continue // it may be open under this name; resume goes on when nobody holds it
		}
		if err != nil && !missing(err) {
			lose([]ID{id}, fail(op, s.f.tmpName(id), err))
			continue
		}
		s.forget(id)
		moved = append(moved, id)
	}
	s.f.names.Unlock()
	return moved, failed
}

// resume goes on with a file that settling had left because it was held.
func (s *settler) resume(id ID) {
	s.mu.Lock()
	if _, ok := s.moving[id]; ok {
		s.waiting = append(s.waiting, id)
	}
	s.mu.Unlock()
	s.rouse()
}

// expect notes files as such that are to be settled, so that those that fail are tried again.
func (s *settler) expect(ids []ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.moving[id] = struct{}{}
	}
}

// forget ends the settling of a file, done or not wanted any more.
func (s *settler) forget(id ID) {
	s.mu.Lock()
	delete(s.moving, id)
	s.mu.Unlock()
}

// inTmp says whether a file is likely still in tmp/, so that it is looked for there first.
func (s *settler) inTmp(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.moving[id]
	return ok
}

// makeDir makes a directory of data/ and its parent durable, once.
func (s *settler) makeDir(dir string) error {
	s.mu.Lock()
	made := s.made[dir]
	s.mu.Unlock()
	if made {
		return nil
	}
	if err := s.f.fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	parent := s.f.fs.PathDir(dir)
	if err := errors.Join(s.f.syncDir(parent), s.f.syncDir(s.f.data)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.made) >= mostMade {
		clear(s.made)
	}
	s.made[dir] = true
	return nil
}
