// SPDX-License-Identifier: Apache-2.0

// Package inside sends S3 requests from the console to the S3 front end of the same process.
//
// The S3 front end accepts the connections of a Listener beside those of the network. A request is signed with the keys
// of the console's user, and shows the address of the user's browser. So signatures, policies and checksums are
// those of S3, and a policy with a condition on the client's address decides as it would for that browser.
package inside

import (
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Listener is a net.Listener without an address, on which only Dial makes connections. A Listener is safe for
// concurrent use.
type Listener struct {
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// Listen returns a Listener. The caller closes it.
func Listen() *Listener {
	return &Listener{waiting: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept returns the next connection that Dial makes. After Close, Accept fails with net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial. Connections that were accepted stay open. A second call of Close does nothing.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns an address that names the process itself.
func (l *Listener) Addr() net.Addr { return here{} }

type here struct{}

func (here) Network() string { return "inside" }
func (here) String() string  { return "inside" }

// Dial returns a new connection to the goroutine that accepts. The accepted end reports the parameter from as the
// address of its client. Dial waits until the connection is accepted, and fails with kind Closed after Close.
func (l *Listener) Dial(from net.Addr) (net.Conn, error) {
	const op = "connect to the S3 front end"
	mine, theirs, err := pair()
	if err != nil {
		return nil, errs.Wrap(op, "", err)
	}
	select {
	case l.waiting <- &accepted{UnixConn: theirs, from: from}:
		return mine, nil
	case <-l.closed:
		_ = mine.Close()   // nothing was sent
		_ = theirs.Close() // nothing was received
		return nil, &errs.Error{Kind: errs.Closed, Op: op, Msg: "the server stops", Fix: "try again when it is back"}
	}
}

// accepted is the front end's end of a connection.
type accepted struct {
	*net.UnixConn
	from net.Addr
}

// RemoteAddr returns the address of the client on whose behalf the process connects.
func (a *accepted) RemoteAddr() net.Addr { return a.from }

// pair returns the two ends of a new connection. Sockets are used instead of memory, so that files go to the other end
// with sendfile.
func pair() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	first, err := connOf(fds[0])
	if err != nil {
		_ = unix.Close(fds[1]) // the error of the other end is the reason
		return nil, nil, err
	}
	second, err := connOf(fds[1])
	if err != nil {
		_ = first.Close() // the error of the other end is the reason
		return nil, nil, err
	}
	return first, second, nil
}

// connOf makes a connection of a descriptor, which it closes.
func connOf(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "inside")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}
