// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"context"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// crowd counts connections, so that one user or one access key cannot take all of them. Server.mu guards crowd.
type crowd struct {
	logins  list.List // of *conn with an unfinished login, the oldest first
	users   map[uint32]*user
	clients map[string]*client
}

// user counts the connections of one user of this host. A user exists as long as one of them.
type user struct {
	conns   int // including unfinished logins
	logins  int
	leaving int // evicted logins that have not ended yet
}

// mostLeaving is the largest number of evicted logins of one user that have not ended. A login normally ends at once.
// But if a client sent a descriptor that takes long to close (see refuseDescriptors), the login keeps a thread.
const mostLeaving = 64

// mostRefusing is the largest number of refused connections that are being closed at the same time. Each may keep a
// thread.
const mostRefusing = 64

// admit registers a connection and adds it to all, or returns the reason why it is refused.
//
// A client normally logs in within a millisecond. If there is no room for a new connection, admit evicts the oldest
// unfinished login. So silent clients cannot keep others out.
func (s *Server) admit(c *conn, all *sync.WaitGroup) *wire.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return draining()
	}
	l := &s.opts.Limits
	u := s.crowd.users[c.peer.UID]
	if u == nil {
		u = &user{}
	}
	if u.leaving >= mostLeaving {
		return tooManyConnections("%d logins of user %d gave way to others and do not end; at most %d may be", u.leaving,
			c.peer.UID, mostLeaving)
	}
	if u.logins >= l.Logins {
		s.evict(func(o *conn) bool { return o.peer.UID == c.peer.UID })
	}
	if u.conns >= l.UserConnections && !s.evict(func(o *conn) bool { return o.peer.UID == c.peer.UID }) {
		return tooManyConnections("user %d has %d connections open; one user may have at most %d", c.peer.UID, u.conns,
			l.UserConnections)
	}
	if len(s.conns) >= l.Connections && !s.evict(func(*conn) bool { return true }) {
		return tooManyConnections("%d connections are open, of which %d log in; at most %d may be", len(s.conns),
			s.crowd.logins.Len(), l.Connections)
	}
	s.conns[c] = struct{}{}
	s.crowd.users[c.peer.UID] = u
	u.conns++
	u.logins++
	c.user, c.entering = u, s.crowd.logins.PushBack(c)
	all.Add(1)
	return nil
}

func tooManyConnections(format string, args ...any) *wire.Error {
	return refusal(errs.Unsupported, wire.CodeTooManyConnections, fmt.Sprintf(format, args...),
		"use one connection for many objects, or raise gpudirect.max_connections")
}

// evict ends the oldest unfinished login that matches, and returns false if there is none. An evicted login is only
// counted in user.leaving.
func (s *Server) evict(match func(*conn) bool) bool {
	for e := s.crowd.logins.Front(); e != nil; e = e.Next() {
		c := e.Value.(*conn)
		if !match(c) {
			continue
		}
		s.entered(c)
		delete(s.conns, c)
		c.user.conns--
		c.user.leaving++
		c.gaveWay = true
		c.end(gaveWay())
		return true
	}
	return false
}

// end asks the connection's own goroutine to end the connection as soon as it waits for a message. The client gets
// why as the reason.
func (c *conn) end(why *wire.Error) {
	c.ending.CompareAndSwap(nil, why)
	_ = c.sock.SetReadDeadline(time.Now()) // wakes the goroutine; fails if the socket is already closed
}

// entered removes a connection from the unfinished logins.
func (s *Server) entered(c *conn) {
	if c.entering != nil {
		s.crowd.logins.Remove(c.entering)
		c.entering = nil
		c.user.logins--
	}
}

// forgetConn stops counting a connection for its user.
func (s *Server) forgetConn(c *conn) {
	delete(s.conns, c)
	if c.user == nil {
		return
	}
	if c.gaveWay {
		c.user.leaving--
	} else {
		c.user.conns--
	}
	if c.user.conns == 0 && c.user.leaving == 0 {
		delete(s.crowd.users, c.peer.UID)
	}
	c.user = nil
}

// turnAway tells a client why its connection is refused, and closes the connection in the background, because the
// kernel may take long to close it.
func (s *Server) turnAway(c *conn, why *wire.Error) {
	select {
	case s.refusing <- struct{}{}:
	default:
		select {
		case s.refusing <- struct{}{}:
		case <-s.stopping:
			return // the connection ends with the process
		}
	}
	go func() {
		defer func() { <-s.refusing }()
		c.farewell(why)
		c.hangUp()
	}()
}

// turnedAway waits until the refused connections are closed, for at most the time most.
func (s *Server) turnedAway(most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for range cap(s.refusing) {
		select {
		case s.refusing <- struct{}{}:
		case <-timer.C:
			return
		}
	}
}

// gaveWay returns the error for a login that was evicted for another connection.
func gaveWay() *wire.Error {
	return tooManyConnections("the login was not finished when other connections came for which there was no room")
}

// loggedIn moves a connection from the unfinished logins to its client, or returns the reason why it has to end.
func (s *Server) loggedIn(c *conn, accessKey string) *wire.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why := c.ending.Load(); why != nil {
		return why
	}
	s.entered(c)
	cl := s.crowd.clients[accessKey]
	if cl == nil {
		cl = &client{key: accessKey}
	}
	if cl.conns >= s.opts.Limits.KeyConnections {
		return tooManyConnections("the access key has %d connections open; one key may have at most %d", cl.conns,
			s.opts.Limits.KeyConnections)
	}
	s.crowd.clients[accessKey] = cl
	cl.conns++
	c.account, c.client = accessKey, cl
	return nil
}

// left removes an ended connection. If the client has not received all descriptors, the connection stays counted for
// its key and user, because the kernel counts these descriptors against the server.
func (s *Server) left(ctx context.Context, c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.entered(c)
	s.mu.Unlock()
	if c.client != nil && !c.taken() {
		c.linger(ctx)
	}
	c.hangUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetConn(c)
	if c.client == nil {
		return
	}
	c.client.untaken.Add(-c.sent.Swap(0))
	c.client.conns--
	s.forgetClient(c.client)
}

// forgetClient removes a client without connections and remains of drafts. The caller holds Server.mu.
func (s *Server) forgetClient(cl *client) {
	if cl.conns == 0 && cl.remains == 0 {
		delete(s.crowd.clients, cl.key)
	}
}

// linger waits until the client has received its descriptors or has closed its end, or the server stops.
func (c *conn) linger(ctx context.Context) {
	_ = c.sock.CloseRead() // who was cut off is closed already
	_ = c.sock.CloseWrite()
	for wait := 10 * time.Millisecond; !c.taken(); wait = min(2*wait, time.Second) {
		select {
		case <-ctx.Done():
			return
		case <-c.s.stopping:
			return
		case <-time.After(wait):
		}
	}
}

// taken reports whether the client has received all descriptors that were sent to it, and stops counting them if so.
// If the socket's queue is empty, everything sent before the check has been received. Any goroutine may call taken.
func (c *conn) taken() bool {
	sent := c.sent.Load()
	if sent == 0 {
		return true
	}
	queued := 1
	if err := c.raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		if err == nil {
			queued = n
		}
	}); err != nil {
		queued = 0 // the socket is closed, and nothing is in flight any more
	}
	if queued == 0 && c.sent.CompareAndSwap(sent, 0) {
		c.client.untaken.Add(-sent)
		return true
	}
	return queued == 0
}

// reserveDescriptors counts n descriptors against the limit of the access key, before they are opened. If there is no
// room, it first checks which descriptors were received meanwhile.
func (c *conn) reserveDescriptors(n int) bool {
	most := int64(c.s.opts.Limits.KeyDescriptors)
	if c.client.reserve(int64(n), most) {
		return true
	}
	for _, o := range c.s.connsOf(c.client) {
		o.taken()
	}
	return c.client.reserve(int64(n), most)
}

// reserve counts n more descriptors if no more than `most` are counted then. So the count never exceeds `most`, also
// while several connections ask at once.
func (cl *client) reserve(n, most int64) bool {
	for {
		have := cl.untaken.Load()
		if have+n > most {
			return false
		}
		if cl.untaken.CompareAndSwap(have, have+n) {
			return true
		}
	}
}

// connsOf lists the connections of one client.
func (s *Server) connsOf(cl *client) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*conn
	for c := range s.conns {
		if c.client == cl {
			all = append(all, c)
		}
	}
	return all
}

// awaitDescriptors waits until n more descriptors may be in flight to this access key. An error ends the connection,
// because this client does not read its replies.
func (c *conn) awaitDescriptors(ctx context.Context, n int) (*wire.Error, error) {
	end := time.Now().Add(c.s.opts.Limits.Send)
	for wait := 20 * time.Microsecond; !c.reserveDescriptors(n); wait = min(2*wait, 10*time.Millisecond) {
		if time.Now().After(end) {
			if !c.taken() {
				return nil, slowReader{c.s.opts.Limits.Send}
			}
			return refusal(errs.IO, wire.CodeTooManyFiles,
				fmt.Sprintf("%d descriptors are on their way to clients of this access key that do not take them",
					c.s.opts.Limits.KeyDescriptors),
				"let the other clients take their replies, or end them, and ask again"), nil
		}
		select {
		case <-ctx.Done():
			return draining(), nil
		case <-time.After(wait):
		}
	}
	return nil, nil
}

// described returns how many descriptors a request wants for one object.
func described(want uint8) int {
	return bits.OnesCount8(want & (wire.WantBuffered | wire.WantDirect))
}
