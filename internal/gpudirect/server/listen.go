// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// MaxPath is the largest length of the path of the door's socket, in bytes. The path in a Unix socket address has 108
// bytes, one of which is the final zero.
const MaxPath = 107

// Listener is the door's listening socket.
type Listener struct {
	sock *net.UnixListener
	path string
	ours os.FileInfo
	once sync.Once
	err  error
}

// Listen creates the door's socket at an absolute path. The path of the door's socket appears only when the socket
// accepts connections. Listen replaces a stale socket at the path, on which no process listens. The mode of the
// door's socket lets every user connect. The permissions of the socket's directory decide who can reach the door, and
// the access key decides what a client may do. Listen fails with kind Invalid if the path is relative or too long, or
// if another server or file occupies the path.
func Listen(path string) (*Listener, error) { return listen(path, refuseDescriptors) }

// refuseDescriptors makes the kernel refuse descriptors that clients send (EPERM), from Linux 6.16 on. Clients have
// no reason to send any, and closing one can take as long as its sender wants: a TCP socket with SO_LINGER blocks the
// thread that closes it. Connections inherit the option from the listener. For older kernels see the type crowd.
func refuseDescriptors(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
	})
}

// listen is Listen with a function that prepares the socket.
func listen(path string, prepare func(network, address string, c syscall.RawConn) error) (*Listener, error) {
	const op = "open the GPUDirect socket"
	if len(path) > MaxPath {
		return nil, errs.New(errs.Invalid, op, path, fmt.Sprintf("the name has %d bytes, expected at most %d", len(path),
			MaxPath)).
			WithFix("set gpudirect.socket to a shorter one, such as /run/nebulaio/gpudirect.sock")
	}
	if !filepath.IsAbs(path) {
		return nil, errs.New(errs.Invalid, op, path, "expected an absolute path").WithFix("set gpudirect.socket to one")
	}
	if err := vacant(path); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: err,
			Fix: "make the directory, or set gpudirect.socket"}
	}
	defer dir.Close()
	// The socket first gets a temporary name in the same directory. The name goes through the directory's descriptor,
	// so that it is short enough for any path.
	temp := fmt.Sprintf("/proc/self/fd/%d/.door-%d-%s", dir.Fd(), os.Getpid(), nonceText()[:8])
	made, err := (&net.ListenConfig{Control: prepare}).Listen(context.Background(), "unixpacket", temp)
	if err != nil {
		return nil, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: err,
			Fix: "let the server's user write to the directory, or set gpudirect.socket"}
	}
	sock := made.(*net.UnixListener)
	sock.SetUnlinkOnClose(false)
	l := &Listener{sock: sock, path: path}
	if err = os.Chmod(temp, 0o666); err == nil {
		if l.ours, err = os.Lstat(temp); err == nil {
			err = os.Rename(temp, path)
		}
	}
	if err != nil {
		_ = os.Remove(temp)
		_ = sock.Close()
		return nil, errs.Wrap(op, path, err)
	}
	return l, nil
}

// vacant refuses a path that is in use.
func vacant(path string) error {
	const op = "open the GPUDirect socket"
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return errs.Wrap(op, path, err)
	case st.Mode()&fs.ModeSocket == 0:
		return errs.New(errs.Invalid, op, path, "is a file that is no socket").WithFix("remove it, or set gpudirect.socket")
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	switch {
	case err == nil:
		_ = c.Close()
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil // the process that made the socket is gone
	case !errors.Is(err, syscall.EPROTOTYPE) && !errors.Is(err, syscall.EAGAIN):
		return &errs.Error{Kind: errs.Invalid, Op: op, Name: path,
			Msg: "whether another server listens on it is not known", Err: err, Fix: "remove it, or set gpudirect.socket"}
	}
	return errs.New(errs.Invalid, op, path, "another server listens on it").WithFix("end that server, or set " +
		"gpudirect.socket")
}

// Path returns the path of the door's socket.
func (l *Listener) Path() string { return l.path }

func (l *Listener) accept() (*net.UnixConn, error) { return l.sock.AcceptUnix() }

// Close stops accepting connections and removes the path of the door's socket, unless another socket is at that path
// now. A second call of Close does nothing.
func (l *Listener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.ours) {
			_ = os.Remove(l.path) // a socket that stays is replaced by the next server
		}
		l.err = l.sock.Close()
	})
	return l.err
}

// passing reports whether an error of accept is temporary.
func passing(err error) bool {
	for _, no := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
