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

// watchEvery is the interval at which the door checks the sizes of drafts if Options.Watch is nil.
const watchEvery = time.Second

// draftSlack is the disk space in bytes that a draft may use beyond its announced size and 1/64 of it. File systems
// allocate whole blocks and store their own metadata.
const draftSlack = 4 << 20

// most returns the largest disk space in bytes that a draft of an announced size may use.
func most(size int64) int64 { return size + size/64 + draftSlack }

// watched holds the drafts of all connections. A client writes to a draft's file directly, and the kernel does not
// limit the file's size. So the server checks the sizes of the files.
type watched struct {
	mu      sync.Mutex
	live    map[*draft]*conn
	remains map[*draft]*client // deleted drafts whose file some process can still write to
}

// watch checks the sizes of all drafts at each tick until ctx ends.
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

// lookAtDrafts deletes drafts that exceed their announced size, and stops counting deleted drafts that nobody can
// write to any more.
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
		if takes := d.d.Reserved(); takes > most(d.size.Load()) && d.dead.CompareAndSwap(0, takes) {
			// condemn runs in its own goroutine, because it waits for a commit that has just begun.
			s.condemning.Go(func() { s.condemn(c, d, takes) })
		}
	}
	for _, d := range remains {
		if !d.d.Remains() {
			s.gone(d)
		}
	}
}

// condemn deletes a draft that exceeds its announced size, and ends its connection.
func (s *Server) condemn(c *conn, d *draft, takes int64) {
	s.opts.Log.Warn("a draft grew beyond its announced size: the draft was removed and its connection closed", "bucket",
		d.bucket, "key", d.key,
		"announced", d.size.Load(), "takes", takes, "file", d.d.Path(), "access_key", c.account, "pid", c.peer.PID, "uid",
		c.peer.UID)
	if err := d.d.Abort(); err != nil {
		s.opts.Log.Error("removing a draft failed", "bucket", d.bucket, "key", d.key, "file", d.d.Path(), "error", err)
	}
	c.end(outgrown(d))
}

// outgrown returns the error for requests about a draft that exceeded its announced size.
func outgrown(d *draft) *wire.Error {
	return refusal(errs.Invalid, wire.CodeTooLarge,
		fmt.Sprintf("the draft of %s/%s has grown to %d bytes; %d were announced", d.bucket, d.key, d.dead.Load(),
			d.size.Load()),
		"announce the size of the object in Create, and write within it")
}

// follow adds a draft to those that the server checks.
func (s *Server) follow(d *draft, c *conn) {
	s.watched.mu.Lock()
	defer s.watched.mu.Unlock()
	s.watched.live[d] = c
}

// bury stops counting an ended draft for its client. While some process can still write to the draft's file, the
// draft stays counted, because its disk space is counted nowhere else.
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
	cl.unreserve(d.size.Load())
}

// gone stops counting an ended draft, because no process can write to its file any more.
func (s *Server) gone(d *draft) {
	s.watched.mu.Lock()
	cl := s.watched.remains[d]
	delete(s.watched.remains, d)
	s.watched.mu.Unlock()
	cl.unreserve(d.size.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	cl.remains--
	s.forgetClient(cl)
}
