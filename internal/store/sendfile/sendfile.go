// SPDX-License-Identifier: Apache-2.0

// Package sendfile sends bytes of files to sockets without copying them through the memory of the process.
package sendfile

import (
	"bufio"
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Failure is an error of sendfile itself, in contrast to one of the connection, such as its deadline.
type Failure struct {
	Err error // nil if the file has ended early
}

// Error says why sendfile failed.
func (f *Failure) Error() string {
	if f.Err == nil {
		return "the file has ended early"
	}
	return f.Err.Error()
}

// Unwrap returns the error of the operating system.
func (f *Failure) Unwrap() error { return f.Err }

// Ended reports whether err means that the file has ended early.
func Ended(err error) bool {
	var f *Failure
	return errors.As(err, &f) && f.Err == nil
}

// Send sends the bytes of the file fd from offset *off up to `to`, and advances *off by what it sends. The writer w
// must be a socket, or a bufio.Writer in front of a socket. If w wraps a connection, w must forward ReadFrom to the
// connection. The result is false if w or the file cannot do sendfile: then Send has sent nothing, and the caller
// copies the bytes.
//
// Each call passes the offset to the kernel, because all readers of a file share its description. A call with an offset
// needs the socket itself, and neither bufio nor an HTTP server shows the socket. But an empty bufio.Writer passes its
// reader on to the connection, and the connection passes itself to the reader's WriteTo.
func Send(w io.Writer, fd int, off *int64, to int64) (bool, error) {
	s := &sender{fd: fd, off: off, to: to}
	switch w := w.(type) {
	case socket:
		if _, err := s.WriteTo(w); err != nil {
			return s.sent, err
		}
	case *bufio.Writer:
		if err := w.Flush(); err != nil {
			return false, err
		}
		if _, err := w.ReadFrom(s); err != nil {
			return s.sent, err
		}
	}
	return s.sent, nil
}

// socket is a connection with a descriptor.
type socket interface {
	net.Conn
	syscall.Conn
}

// sender is a reader without bytes that is given to a connection's ReadFrom in order to receive the socket.
type sender struct {
	fd   int
	off  *int64
	to   int64
	sent bool
}

// Read always returns io.EOF, because a sender has no bytes of its own. Read is called only if the writer is no socket.
func (s *sender) Read([]byte) (int, error) { return 0, io.EOF }

// WriteTo sends the bytes to w by sendfile, if w is a socket.
func (s *sender) WriteTo(w io.Writer) (int64, error) {
	conn, ok := w.(socket)
	if !ok {
		return 0, nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, nil // the write that follows says why
	}
	begin := *s.off
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for *s.off < s.to {
			n, err := unix.Sendfile(int(fd), s.fd, s.off, int(min(s.to-*s.off, 1<<30)))
			switch {
			case err == nil && n > 0:
				s.sent = true
			case err == nil:
				failed = &Failure{}
				return true
			case err == unix.EINTR:
			case err == unix.EAGAIN:
				return false
			case !s.sent && (err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP):
				return true // this file system or socket cannot do it
			default:
				failed = &Failure{err}
				return true
			}
		}
		return true
	})
	if failed != nil {
		err = failed
	}
	return *s.off - begin, err
}
