// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// gather is how long settling waits for more files: one sync of a directory serves all files in it, and nobody
	// waits for a file to be settled.
	gather = 50 * time.Millisecond
	// batch is the number of pending files at which settling starts at once.
	batch = 256
	// mostMade limits the directories that are remembered; forgetting one costs a sync.
	mostMade = 1024
)

// settler moves committed files from tmp/ to data/, many at a time.
type settler struct {
	f    *Files
	wake chan struct{}
	quit chan struct{}
	done chan struct{}

	work sync.Mutex // held while files are moved, so that Flush waits for moves in progress

	mu      sync.Mutex
	waiting []ID            // not begun
	moving  map[ID]struct{} // waiting, begun, or failed and to be tried again
	late    []ID            // failed
	made    map[string]bool // directories of data/ that exist durably
}

func (s *settler) start(f *Files) {
	s.f = f
	s.wake, s.quit, s.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	s.moving, s.made = map[ID]struct{}{}, map[string]bool{}
	go s.run()
}

// stop settles the remaining files and ends the settling.
func (s *settler) stop() error {
	close(s.quit)
	<-s.done
	return s.f.Flush()
}

// Settle moves the files with the given IDs to data/ in the background. The caller's metadata must record the files
// durably before the call of Settle. Until a file is moved, and if the move fails, the file is read from tmp/.
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

// Flush moves all committed files from tmp/ to data/ now, including files that could not be moved before.
func (f *Files) Flush() error {
	s := &f.settler
	s.work.Lock()
	defer s.work.Unlock()
	_, err := s.settle(s.take(true))
	return err
}

// Retry tries again, in the background, to move the files from tmp/ to data/ that could not be moved before.
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

// take removes the waiting files from the queue, and with them some, or all, of the files that failed.
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

// settle moves files, a batch for each directory, and returns the moved ones. It returns the first error, and calls
// Failed with all.
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

// settleIn moves files to one directory: it links them, syncs the directory, and only then removes the old names.
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
			// The file was settled before, or removed meanwhile: there is nothing to move.
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

// resume continues with a file that settling left because it was held.
func (s *settler) resume(id ID) {
	s.mu.Lock()
	if _, ok := s.moving[id]; ok {
		s.waiting = append(s.waiting, id)
	}
	s.mu.Unlock()
	s.rouse()
}

// expect records files that are to be settled, so that a failed move is tried again.
func (s *settler) expect(ids []ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.moving[id] = struct{}{}
	}
}

// forget ends the settling of a file that is done or not wanted any more.
func (s *settler) forget(id ID) {
	s.mu.Lock()
	delete(s.moving, id)
	s.mu.Unlock()
}

// inTmp reports whether a file is probably still in tmp/, so that tmp/ is searched first.
func (s *settler) inTmp(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.moving[id]
	return ok
}

// makeDir creates a directory of data/ durably, once.
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
