// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// watchEvery is how often drafts are looked at where Options.Watch does not say.
const watchEvery = time.Second

// draftSlack is what a draft may take of the disk beyond its size and a 64th of it: blocks are larger than bytes, and
// where they are is written somewhere.
const draftSlack = 4 << 20

// watched are the drafts of all connections. A client writes to a draft's file without asking, and no kernel bounds it:
// the server looks how large the files have become.
type watched struct {
	mu      sync.Mutex
	live    map[*draft]*conn
	remains map[*draft]*client // aborted ones that somebody can still write to
}

// watch looks after the drafts at each tick until ctx ends.
func (s *Server) watch(ctx context.Context) {
	ticks := s.opts.Watch
	if ticks == nil {
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		ticks = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		s.lookAtDrafts()
	}
}

// lookAtDrafts ends drafts that have grown beyond what was announced, and frees what is written to those that have
// ended.
func (s *Server) lookAtDrafts() {
	s.watched.mu.Lock()
	live := make(map[*draft]*conn, len(s.watched.live))
	for d, c := range s.watched.live {
		live[d] = c
	}
	remains := make([]*draft, 0, len(s.watched.remains))
	for d := range s.watched.remains {
		remains = append(remains, d)
	}
	s.watched.mu.Unlock()
	for d, c := range live {
		if takes := d.d.Reserved(); takes > d.size+d.size/64+draftSlack && d.dead.CompareAndSwap(0, takes) {
			// Beside this loop: a commit that has just begun is waited for.
			s.condemning.Go(func() { s.condemn(c, d, takes) })
		}
	}
	for _, d := range remains {
		if !d.d.Remains() {
			s.gone(d)
		}
	}
}

// condemn ends a draft that has outgrown its announcement, and the connection that it belongs to.
func (s *Server) condemn(c *conn, d *draft, takes int64) {
	s.opts.Log.Warn("a draft grew beyond its announced size: the draft was removed and its connection closed", "bucket",
		d.bucket, "key", d.key,
		"announced", d.size, "takes", takes, "file", d.d.Path(), "access_key", c.account, "pid", c.peer.PID, "uid",
		c.peer.UID)
	if err := d.d.Abort(); err != nil {
		s.opts.Log.Error("removing a draft failed", "bucket", d.bucket, "key", d.key, "file", d.d.Path(), "error", err)
	}
	c.end(outgrown(d))
}

// outgrown is the refusal of everything that concerns such a draft.
func outgrown(d *draft) *wire.Error {
	return refusal(errs.Invalid, wire.CodeTooLarge,
		fmt.Sprintf("the draft of %s/%s has grown to %d bytes; %d were announced", d.bucket, d.key, d.dead.Load(), d.size),
		"announce the size of the object in Create, and write within it")
}

// follow looks after a draft from now on.
func (s *Server) follow(d *draft, c *conn) {
	s.watched.mu.Lock()
	defer s.watched.mu.Unlock()
	s.watched.live[d] = c
}

// bury takes a draft that has ended off the books of its client, or leaves it there for as long as somebody can write
// to its file: the space that it takes is counted nowhere else.
func (s *Server) bury(d *draft, cl *client) {
	left := d.d.Remains()
	s.watched.mu.Lock()
	delete(s.watched.live, d)
	if left {
		s.watched.remains[d] = cl
	}
	s.watched.mu.Unlock()
	if left {
		s.mu.Lock()
		cl.remains++
		s.mu.Unlock()
		return
	}
	cl.unreserve(d.size)
}

// gone takes an ended draft off the books when nobody can write to its file any more.
func (s *Server) gone(d *draft) {
	s.watched.mu.Lock()
	cl := s.watched.remains[d]
	delete(s.watched.remains, d)
	s.watched.mu.Unlock()
	cl.unreserve(d.size)
	s.mu.Lock()
	defer s.mu.Unlock()
	cl.remains--
	s.forgetClient(cl)
}
