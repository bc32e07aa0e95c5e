// SPDX-License-Identifier: Apache-2.0

// Package gate is a TCP listener for tests that goes down and comes back at the same address.
//
// While a gate is down, the system refuses connections, as it does if a program has ended. No other program gets the
// port meanwhile, because the gate keeps the port bound.
package gate

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Listener is a net.Listener that is down at first. The caller calls Up, and Close at the end. All methods are safe for
// concurrent use.
type Listener struct {
	port     int
	hold     int // socket that keeps the port
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
	mute     atomic.Bool
	asked    chan struct{}

	mu    sync.Mutex
	inner net.Listener // nil while the gate is down
	open  map[*conn]bool
}

// New returns a Listener on a free port of 127.0.0.1 that refuses connections until Up is called.
func New() (*Listener, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Wrap("make a socket for", "a gate", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd) // the error is the reason
		return nil, errs.Wrap("bind", "a gate", err)
	}
	return &Listener{port: at.(*unix.SockaddrInet4).Port, hold: fd, accepted: make(chan net.Conn),
		closed: make(chan struct{}), asked: make(chan struct{}, 1), open: map[*conn]bool{}}, nil
}

// Port returns the port of the gate.
func (l *Listener) Port() int { return l.port }

// Address returns the address of the gate as HOST:PORT.
func (l *Listener) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)) }

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }

// Up accepts connections from now on, and answers them. Up does nothing if the gate is up already.
func (l *Listener) Up() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute.Store(false)
	if l.inner != nil {
		return nil
	}
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		if err := raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}); err != nil {
			return err
		}
		return failed
	}}
	inner, err := c.Listen(context.Background(), "tcp", l.Address())
	if err != nil {
		return errs.Wrap("open the gate", l.Address(), err)
	}
	l.inner = inner
	go l.accept(inner)
	return nil
}

// Down refuses connections from now on, and cuts those that are open.
func (l *Listener) Down() {
	l.mu.Lock()
	if l.inner != nil {
		_ = l.inner.Close()
		l.inner = nil
	}
	all := l.open
	l.open = map[*conn]bool{}
	l.mu.Unlock()
	for c := range all {
		_ = c.Conn.Close()
	}
}

// Mute keeps the connections, and drops everything that the server writes to them until the next Up.
func (l *Listener) Mute() { l.mute.Store(true) }

// Asked receives a value after the server has read bytes of a client while the gate was mute.
func (l *Listener) Asked() <-chan struct{} { return l.asked }

func (l *Listener) accept(inner net.Listener) {
	for {
		raw, err := inner.Accept()
		if err != nil {
			return
		}
		c := &conn{Conn: raw, of: l}
		l.mu.Lock()
		live := l.inner == inner
		if live {
			l.open[c] = true
		}
		l.mu.Unlock()
		if !live {
			_ = raw.Close()
			return
		}
		select {
		case l.accepted <- c:
		case <-l.closed:
			_ = c.Close()
			return
		}
	}
}

// Accept implements net.Listener. Accept waits while the gate is down.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the gate, its connections and its hold of the port.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.Down()
		_ = unix.Close(l.hold)
	})
	return nil
}

// conn is the server's end of a connection through the gate.
type conn struct {
	net.Conn
	of *Listener
}

// Read reports on Asked that a client has sent bytes while the gate is mute.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.of.mute.Load() {
		select {
		case c.of.asked <- struct{}{}:
		default:
		}
	}
	return n, err
}

// Write drops the bytes while the gate is mute.
func (c *conn) Write(p []byte) (int, error) {
	if c.of.mute.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close closes the connection.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
