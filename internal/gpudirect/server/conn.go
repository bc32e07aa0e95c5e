// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// Peer is the client process at the other end of a connection, as the kernel recorded it when the client connected.
type Peer struct {
	PID int32
	UID uint32
	GID uint32
}

// conn is one connection. Only its own goroutine uses its fields, except those that other goroutines need to end the
// connection.
type conn struct {
	s    *Server
	sock *net.UnixConn
	raw  syscall.RawConn
	peer Peer
	in   []byte // a buffer for the largest packet that the client may send now
	iov  unix.Iovec
	msg  unix.Msghdr
	out  []byte

	account string
	secret  string
	client  *client // nil until the client has logged in

	user     *user         // guarded by Server.mu; nil when the connection is no longer counted
	entering *list.Element // guarded by Server.mu; nil when the login is finished
	// Guarded by Server.mu; true if an unfinished login was ended for another connection.
	gaveWay bool
	ending  atomic.Pointer[wire.Error] // the reason why another goroutine ends the connection
	// receiving is true while the connection waits in the kernel for a message.
	receiving atomic.Bool
	sent      atomic.Int64 // descriptors that were sent, and that the client may not have received yet

	next   uint64 // number of the next handle
	held   map[uint64]*held
	drafts map[uint64]*draft

	pack packet // the Opened reply that is being filled
	lent int    // number of entries in Server.lent of this connection
}

func newConn(s *Server, sock *net.UnixConn) *conn {
	c := &conn{s: s, sock: sock, next: 1}
	if raw, err := sock.SyscallConn(); err == nil {
		c.raw = raw
		_ = raw.Control(func(fd uintptr) {
			if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				c.peer = Peer{PID: u.Pid, UID: u.Uid, GID: u.Gid}
			}
		})
	}
	// A packet has to fit into the socket's buffer. The default buffer is large enough, and a smaller one is enlarged
	// as far as the system allows.
	_ = sock.SetWriteBuffer(2 * wire.MaxMessage)
	return c
}

// errGone ends a connection without a log line, because the client has left.
var errGone = errors.New("the client went away")

// run serves the connection until it ends.
func (c *conn) run(ctx context.Context) {
	defer func() {
		if c.client == nil || c.taken() {
			c.hangUp() // before letGo, which may take a while
		}
		c.letGo()
		c.s.left(ctx, c)
	}()
	if !c.login() {
		return
	}
	c.held, c.drafts = map[uint64]*held{}, map[uint64]*draft{}
	c.in = make([]byte, wire.MaxMessage+1)
	for {
		h, m, why := c.receive(c.s.opts.Limits.Idle)
		if why != nil {
			c.farewell(why)
			break
		}
		if m == nil { // the client has left
			break
		}
		if secret, ok := c.s.opts.Secret(c.account); !ok || secret != c.secret {
			_ = c.reply(h, refuseLogin(), nil)
			break
		}
		if err := c.serve(ctx, h, m); err != nil {
			if !errors.Is(err, errGone) {
				c.s.opts.Log.Warn("closed a connection because of an error", "access_key", c.account, "pid", c.peer.PID, "error",
					err)
			}
			break
		}
	}
	c.s.opts.Log.Info("client left", "access_key", c.account, "pid", c.peer.PID, "uid", c.peer.UID, "handles",
		len(c.held), "drafts", len(c.drafts))
}

// receive waits for the next message. If the connection has to end, it returns the reason as an error. If the client
// has left, it returns no message and no error.
func (c *conn) receive(wait time.Duration) (wire.Header, wire.Message, *wire.Error) {
	for {
		_ = c.sock.SetReadDeadline(time.Now().Add(wait)) // a closed socket fails at the read
		// This check comes after the deadline is set: a drain that begins later sets its own deadline.
		if c.s.draining.Load() {
			if c.idle() {
				return wire.Header{}, nil, draining()
			}
			_ = c.sock.SetReadDeadline(c.s.cutoff)
		}
		if why := c.ending.Load(); why != nil { // its deadline may have been set before ours
			return wire.Header{}, nil, why
		}
		// We pass no room for control messages, so the kernel drops descriptors that a client sends, and sets
		// MSG_CTRUNC.
		c.receiving.Store(true)
		n, flags, err := c.take()
		c.receiving.Store(false)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && c.s.draining.Load():
			if c.idle() || !time.Now().Before(c.s.cutoff) {
				return wire.Header{}, nil, draining()
			}
			continue
		case errors.Is(err, os.ErrDeadlineExceeded) && c.ending.Load() != nil:
			return wire.Header{}, nil, c.ending.Load()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return wire.Header{}, nil, c.silent(wait)
		case err != nil:
			return wire.Header{}, nil, nil
		}
		c.s.count.messages.Add(1)
		switch {
		case flags&unix.MSG_CTRUNC != 0:
			return wire.Header{}, nil, badMessage("descriptors came with a message; clients send none")
		case flags&unix.MSG_TRUNC != 0:
			return wire.Header{}, nil, badMessage("a packet has more than %d bytes", len(c.in)-1)
		}
		h, m, err := wire.Decode(c.in[:n])
		switch {
		case err != nil:
			return h, nil, badMessage("%s", text(err))
		case h.Descriptors != 0 || h.Flags != 0:
			return h, nil, badMessage("a request has %d descriptors and flags %#x in its header, expected none", h.Descriptors,
				h.Flags)
		}
		return h, m, nil
	}
}

// look tries once to receive a packet, without room for descriptors. It reuses the structures of the system call, so
// that repeated calls allocate nothing.
func (c *conn) look(fd uintptr) (n, flags int, err error) {
	c.iov.Base = &c.in[0]
	c.iov.SetLen(len(c.in))
	c.msg = unix.Msghdr{Iov: &c.iov}
	c.msg.SetIovlen(1)
	got, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&c.msg)), unix.MSG_DONTWAIT)
	if errno != 0 {
		return 0, 0, errno
	}
	return int(got), int(c.msg.Flags), nil
}

// spin is the time that a connection polls for its next request before it sleeps.
const spin = 50 * time.Microsecond

// take receives one packet. It first polls for a moment, because a client that got its answer often asks again at
// once, and a wakeup takes longer than an answer. At most a quarter of the processors poll at a time.
func (c *conn) take() (n, flags int, err error) {
	awake := int(c.s.awake.Add(1)) <= runtime.NumCPU()/4
	began := time.Now()
	if !awake {
		c.s.awake.Add(-1)
	}
	waited := c.raw.Read(func(fd uintptr) bool {
		for {
			n, flags, err = c.look(fd)
			switch {
			case err == unix.EINTR:
				continue
			case err != unix.EAGAIN:
				return true
			case !awake:
				return false
			case time.Since(began) > spin:
				awake = false
				c.s.awake.Add(-1)
			}
		}
	})
	if awake {
		c.s.awake.Add(-1)
	}
	if waited != nil {
		return 0, 0, waited
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	return n, flags, err
}

// idle reports whether the connection has no open handles and no drafts, so that a drain need not wait for it.
func (c *conn) idle() bool { return len(c.held) == 0 && len(c.drafts) == 0 }

func (c *conn) silent(wait time.Duration) *wire.Error {
	if c.client == nil {
		return invalid(wire.CodeIdle, "log in when connected", "the client did not log in within %v", wait)
	}
	return invalid(wire.CodeIdle, "connect again; Ping keeps a connection", "the connection was silent for %v", wait)
}

// reply sends an answer with descriptors. The caller still has to close its files.
func (c *conn) reply(to wire.Header, m wire.Message, files []*os.File) error {
	return c.send(wire.Header{Request: to.Request}, m, files)
}

// refuse answers with an error and counts it.
func (c *conn) refuse(to wire.Header, e *wire.Error) error {
	c.s.note(c, e)
	return c.reply(to, e, nil)
}

// farewell tells the client why the server ends the connection, and ignores send errors.
func (c *conn) farewell(why *wire.Error) {
	c.s.note(c, why)
	if c.client != nil {
		c.taken() // before one more message is in the socket's queue
	}
	_ = c.send(wire.Header{}, why, nil)
}

// hangUp closes the connection. It first reads the messages that the client has sent: with unread messages the client
// would see a reset instead of the server's last message.
func (c *conn) hangUp() {
	_ = c.sock.CloseRead() // fails if the socket is already closed
	if c.raw != nil {
		_ = c.raw.Control(func(fd uintptr) {
			var b [1]byte
			for {
				if n, _, _, _, err := unix.Recvmsg(int(fd), b[:], nil, unix.MSG_DONTWAIT); err != unix.EINTR &&
					(err != nil || n == 0) {
					return
				}
			}
		})
	}
	_ = c.sock.Close()
}

func (c *conn) send(h wire.Header, m wire.Message, files []*os.File) error {
	h.Descriptors = uint16(len(files))
	var err error
	defer func() {
		if len(files) == 0 {
			return
		}
		if err == nil {
			c.sent.Add(int64(len(files)))
		} else {
			c.client.untaken.Add(-int64(len(files)))
		}
	}()
	if c.out, err = wire.Append(c.out[:0], h, m); err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	began := time.Now()
	_ = c.sock.SetWriteDeadline(began.Add(c.s.opts.Limits.Send)) // a closed socket fails at the write
	for {
		_, _, err = c.sock.WriteMsgUnix(c.out, rights, nil)
		if !errors.Is(err, unix.ETOOMANYREFS) || time.Since(began) > min(inFlight, c.s.opts.Limits.Send) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	switch {
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET), errors.Is(err, net.ErrClosed):
		return errGone
	case errors.Is(err, os.ErrDeadlineExceeded):
		return slowReader{c.s.opts.Limits.Send}
	}
	return err
}

// inFlight is the time that a send waits while too many descriptors are in flight. The kernel counts descriptors in
// flight for all processes of a user together. One client that does not receive its descriptors must not end the
// connection of another client.
const inFlight = time.Second

// crowded returns the error for descriptors that could not be sent because too many are in flight.
func crowded() *wire.Error {
	return refusal(errs.IO, wire.CodeTooManyFiles,
		"too many descriptors are on their way to clients that do not take them",
		"ask again, or raise the server's limit of open files (LimitNOFILE=)")
}

// slowReader is the error of a client that does not read its replies.
type slowReader struct{ after time.Duration }

func (e slowReader) Error() string {
	return "the client did not take a reply within " + e.after.String()
}

// serve answers one request. An error ends the connection.
func (c *conn) serve(ctx context.Context, h wire.Header, m wire.Message) error {
	if h.Request == 0 {
		e := badMessage("%s has the number 0; requests are numbered from 1 on", m.Type())
		_ = c.refuse(h, e)
		return errGone
	}
	var answer wire.Message
	var files []*os.File
	switch m := m.(type) {
	case *wire.Open:
		return c.open(ctx, h, m)
	case *wire.Move:
		answer = c.move(ctx, m)
	case *wire.Sums:
		answer = c.sums(m)
	case *wire.Close:
		answer = c.close(m)
	case *wire.Create:
		n := described(m.Want)
		if why, err := c.awaitDescriptors(ctx, n); err != nil || why != nil {
			if err == nil {
				err = c.refuse(h, why)
			}
			return err
		}
		answer, files = c.create(ctx, m)
		c.client.untaken.Add(int64(len(files) - n))
		defer closeAll(files)
	case *wire.AddSums:
		answer = c.addSums(m)
	case *wire.Commit:
		answer = c.commit(ctx, m)
	case *wire.Abort:
		answer = c.abort(m)
	case *wire.List:
		answer = c.list(ctx, m)
	case *wire.Ping:
		answer = &wire.Ack{}
	default:
		e := badMessage("%s is no request that may come now", m.Type())
		_ = c.refuse(h, e)
		return errGone
	}
	if e, ok := answer.(*wire.Error); ok {
		return c.refuse(h, e)
	}
	err := c.reply(h, answer, files)
	if made, ok := answer.(*wire.Created); ok && errors.Is(err, unix.ETOOMANYREFS) {
		if _, failed := c.abort(&wire.Abort{Handle: made.Handle}).(*wire.Error); failed {
			return err
		}
		return c.refuse(h, crowded())
	}
	return err
}

// letGo closes all handles of the connection and aborts its drafts.
func (c *conn) letGo() {
	c.pack.drop()
	c.giveBack(c.lent)
	for id := range c.held {
		c.release(id)
	}
	for id, d := range c.drafts {
		c.giveUp(id, d)
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // the client sees read and write errors on its own descriptors
	}
}
