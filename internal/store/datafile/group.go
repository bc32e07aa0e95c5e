// SPDX-License-Identifier: Apache-2.0

package datafile

import "sync"

// group lets one sync serve all callers that asked before it began. It does for names what a group commit does for
// records.
type group struct {
	sync func() error
	end  func() error
	// once means that after a failed sync all later ones fail. The kernel reports a lost write only once and then
	// takes the pages for written, so a later sync must not succeed.
	once bool

	mu      sync.Mutex
	running bool
	next    *round // who has asked since the running sync began
	broken  error  // of whoever is running
}

// round is one sync that has not begun.
type round struct {
	done  chan struct{}
	asked int
	err   error
}

func newGroup(sync, end func() error) *group { return &group{sync: sync, end: end} }

// wait returns when a sync that began after the call has ended, with its error. The first caller does the work, so
// that nothing runs while nobody waits.
func (g *group) wait() error {
	g.mu.Lock()
	if g.running {
		r := g.next
		if r == nil {
			r = &round{done: make(chan struct{})}
			g.next = r
		}
		r.asked++
		g.mu.Unlock()
		<-r.done
		return r.err
	}
	g.running = true
	g.mu.Unlock()
	err := g.try()
	g.pass()
	return err
}

// try syncs; one at a time.
func (g *group) try() error {
	if g.broken != nil {
		return g.broken
	}
	err := g.sync()
	if g.once {
		g.broken = err
	}
	return err
}

// pass starts the next round on its own goroutine, because the caller of this round has its answer and must not wait
// for others.
func (g *group) pass() {
	g.mu.Lock()
	r := g.next
	g.next = nil
	g.running = r != nil
	g.mu.Unlock()
	if r == nil {
		return
	}
	go func() {
		r.err = g.try()
		g.pass()
		close(r.done)
	}()
}

// close closes the synced file; nobody waits any more.
func (g *group) close() error { return g.end() }
