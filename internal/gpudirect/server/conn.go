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

// Peer is the process at the other end, as the kernel knew it when it connected.
type Peer struct {
	PID int32
	UID uint32
	GID uint32
}

// conn is one connection. All but what other goroutines use to end it belongs to its own goroutine.
type conn struct {
	s    *Server
	sock *net.UnixConn
	raw  syscall.RawConn
	peer Peer
	in   []byte // room for the largest packet that may come now
	iov  unix.Iovec
	msg  unix.Msghdr
	out  []byte

	account string
	secret  string
	client  *client // nil until it has logged in

	user     *user                      // under Server.mu; nil when it is off the books
	entering *list.Element              // under Server.mu; nil when it does not log in
	gaveWay  bool                       // under Server.mu; it was ended for another one before it had logged in
	ending   atomic.Pointer[wire.Error] // why others want it to end
	// receiving says that it waits for a message, or that the kernel has not come back from taking one.
	receiving atomic.Bool
	sent      atomic.Int64 // descriptors that were sent and are not known to be taken

	next   uint64 // number of the next handle
	held   map[uint64]*held
	drafts map[uint64]*draft

	pack packet // the Opened that is being put together
	lent int    // entries of Server.lent that its descriptors take
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
	// A packet has to fit into the socket's buffer; the usual one is large enough, and a smaller one is raised as far as
	// the system allows.
	_ = sock.SetWriteBuffer(2 * wire.MaxMessage)
	return c
}

// errGone is the end of a connection about which nobody need be told.
var errGone = errors.New("the client went away")

// run serves the connection until it ends.
func (c *conn) run(ctx context.Context) {
	defer func() {
		if c.client == nil || c.taken() {
			c.hangUp() // at once; what it holds may take a while
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
		if m == nil { // nobody is there any more
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

// receive waits for the next message. It returns why the connection has to end, or no message where the client ended
// it.
func (c *conn) receive(wait time.Duration) (wire.Header, wire.Message, *wire.Error) {
	for {
		_ = c.sock.SetReadDeadline(time.Now().Add(wait)) // a closed one fails at the read
		// After the deadline was set: a drain that begins later sets one of its own.
		if c.s.draining.Load() {
			if c.idle() {
				return wire.Header{}, nil, draining()
			}
			_ = c.sock.SetReadDeadline(c.s.cutoff)
		}
		if why := c.ending.Load(); why != nil { // whose deadline may have been set before ours
			return wire.Header{}, nil, why
		}
		// Without room for control messages the kernel drops descriptors, which no client has to send, and says so.
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

// look asks for a packet once, without room for descriptors. What it tells the
// kernel is kept: who asks again and again must not make garbage.
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

// spin is how long a connection waits awake for its next request.
const spin = 50 * time.Microsecond

// take receives one packet. A client that has just been answered often asks
// again at once, and is waited for awake for a moment, as long as that takes no
// more than a quarter of the processors: to be woken takes longer than to answer.
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

// idle says that the connection holds nothing which a drain waits for.
func (c *conn) idle() bool { return len(c.held) == 0 && len(c.drafts) == 0 }

func (c *conn) silent(wait time.Duration) *wire.Error {
	if c.client == nil {
		return invalid(wire.CodeIdle, "log in when connected", "the client did not log in within %v", wait)
	}
	return invalid(wire.CodeIdle, "connect again; Ping keeps a connection", "the connection was silent for %v", wait)
}

// reply sends an answer with descriptors, which stay the caller's.
func (c *conn) reply(to wire.Header, m wire.Message, files []*os.File) error {
	return c.send(wire.Header{Request: to.Request}, m, files)
}

// refuse answers with an error and counts it.
func (c *conn) refuse(to wire.Header, e *wire.Error) error {
	c.s.note(c, e)
	return c.reply(to, e, nil)
}

// farewell tells why the server ends the connection; to whom does not listen it tells nothing.
func (c *conn) farewell(why *wire.Error) {
	c.s.note(c, why)
	if c.client != nil {
		c.taken() // before there is one more message to be taken
	}
	_ = c.send(wire.Header{}, why, nil)
}

// hangUp ends the connection. What the client has sent and nobody has read is taken first: it would be told of a reset,
// and not what the server told it last.
func (c *conn) hangUp() {
	_ = c.sock.CloseRead() // who was cut off is closed already
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
	_ = c.sock.SetWriteDeadline(began.Add(c.s.opts.Limits.Send)) // a closed one fails at the write
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

// inFlight is how long a message waits for others to take their descriptors. Those on their way are counted for all
// processes of a user together: those of a client that does not take its own are no reason to end the connection of
// another one.
const inFlight = time.Second

// crowded is the refusal of what could not be sent for that reason.
func crowded() *wire.Error {
	return refusal(errs.IO, wire.CodeTooManyFiles, "too many descriptors are on their way to clients that do not take them",
		"ask again, or raise the server's limit of open files (LimitNOFILE=)")
}

// slowReader is a client that does not take its replies.
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
		answer = c.move(m)
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

// letGo ends everything that the connection holds.
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
		_ = f.Close() // read and write errors are the client's, who has descriptions of the same file
	}
}
