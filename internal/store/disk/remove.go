// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// removeBatch limits how many files are removed at a time: their directories are synced once.
const removeBatch = 256

// remover removes the files without a version in the background. The removal list in the metadata is durable before a
// file gets here, so that unfinished removals are done after the next Open.
type remover struct {
	s       *Store
	mu      sync.Mutex
	cond    *sync.Cond
	ids     []datafile.ID
	late    []datafile.ID // could not be removed
	busy    bool
	ending  bool
	running bool
	holds   int // number of backups: while there is one, nothing is removed
	done    chan struct{}
}

// hold prevents the removal of files until release is called.
func (r *remover) hold() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.busy {
		r.cond.Wait() // what is being removed now is not in the backup that follows
	}
	r.holds++
	return func() {
		r.mu.Lock()
		r.holds--
		r.mu.Unlock()
		r.cond.Broadcast()
	}
}

func (r *remover) init(s *Store) {
	r.s = s
	r.cond = sync.NewCond(&r.mu)
}

func (r *remover) start() {
	r.done = make(chan struct{})
	r.running, r.ending = true, false
	go r.run()
}

// add queues files that are on the removal list.
func (r *remover) add(ids ...datafile.ID) {
	if len(ids) == 0 {
		return
	}
	r.mu.Lock()
	r.ids = append(r.ids, ids...)
	r.mu.Unlock()
	r.cond.Broadcast()
}

// retry tries again to remove the files that could not be removed.
func (r *remover) retry() {
	r.mu.Lock()
	ids := r.late
	r.late = nil
	r.mu.Unlock()
	r.add(ids...)
}

// stop removes the queued files and ends the remover.
func (r *remover) stop() {
	if !r.running {
		return
	}
	r.mu.Lock()
	r.ending = true
	r.mu.Unlock()
	r.cond.Broadcast()
	<-r.done
	r.running = false
}

// wait returns when nothing waits to be removed.
func (r *remover) wait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for (len(r.ids) > 0 || r.busy) && r.running {
		r.cond.Wait()
	}
}

func (r *remover) pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids) + len(r.late)
}

func (r *remover) run() {
	defer close(r.done)
	for {
		r.mu.Lock()
		r.busy = false
		r.cond.Broadcast()
		for (len(r.ids) == 0 || r.holds > 0) && !r.ending {
			r.cond.Wait()
		}
		n := min(len(r.ids), removeBatch)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		ids := slices.Clone(r.ids[:n])
		if r.ids = r.ids[n:]; len(r.ids) == 0 {
			r.ids = nil
		}
		r.busy = true
		r.mu.Unlock()
		r.remove(ids)
	}
}

// remove removes files and deletes them from the list. A file that cannot be removed stays on the list, and is tried
// again by retry and by the next Open.
func (r *remover) remove(ids []datafile.ID) {
	held, err := r.s.files.Remove(ids...)
	if err != nil {
		r.s.background(err)
		r.mu.Lock()
		r.late = append(r.late, ids...)
		r.mu.Unlock()
		return
	}
	r.s.fence.ApplyLazily(r.s.db, func(b *pebble.Batch) error {
		for _, id := range ids {
			if slices.Contains(held, id) {
				continue
			}
			if err := b.Delete(record.GoneKey(uint64(id)), nil); err != nil {
				return err
			}
		}
		return nil
	})
}
