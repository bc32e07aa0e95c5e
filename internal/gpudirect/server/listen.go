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

// MaxPath is how long the socket's name may be: an address has 108 bytes, one of them for its end.
const MaxPath = 107

// Listener is the door's socket.
type Listener struct {
	sock *net.UnixListener
	path string
	ours os.FileInfo
	once sync.Once
	err  error
}

// Listen makes the socket, an absolute path. It appears under its name when it
// accepts connections, and takes the place of one that nobody listens on. Every user may
// connect: the directory decides who can reach it, and the access key who may
// use it. Kind Invalid for a name that is too long, or that is taken by a server or by another file.
func Listen(path string) (*Listener, error) { return listen(path, refuseDescriptors) }

// refuseDescriptors lets the kernel refuse descriptors that clients send (EPERM), from Linux 6.16 on. No client has to send
// any, and to let go of one can take as long as its sender wants: a TCP socket with SO_LINGER keeps the thread that
// closes it. Connections inherit the option from the listener. Older kernels do not know it; see crowd.
func refuseDescriptors(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
	})
}

// listen is Listen with a function that prepares the socket.
func listen(path string, prepare func(network, address string, c syscall.RawConn) error) (*Listener, error) {
	const op = "open the GPUDirect socket"
	if len(path) > MaxPath {
		return nil, errs.New(errs.Invalid, op, path, fmt.Sprintf("the name has %d bytes, expected at most %d", len(path), MaxPath)).
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
		return nil, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: err, Fix: "make the directory, or set gpudirect.socket"}
	}
	defer dir.Close()
	// A name beside the final one, by way of the directory's descriptor: it fits however long the path is.
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

// vacant refuses a name that is in use.
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
		return nil // left by a process that is gone, whatever kind of socket it had
	case !errors.Is(err, syscall.EPROTOTYPE) && !errors.Is(err, syscall.EAGAIN):
		return &errs.Error{Kind: errs.Invalid, Op: op, Name: path,
			Msg: "it cannot be seen whether another server listens on it", Err: err, Fix: "remove it, or set gpudirect.socket"}
	}
	return errs.New(errs.Invalid, op, path, "another server listens on it").WithFix("end that server, or set gpudirect.socket")
}

// Path is the socket's name.
func (l *Listener) Path() string { return l.path }

func (l *Listener) accept() (*net.UnixConn, error) { return l.sock.AcceptUnix() }

// Close stops accepting and removes the socket, unless another one has its name by now. A second call does nothing.
func (l *Listener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.ours) {
			_ = os.Remove(l.path) // a socket that stays is replaced by the next server
		}
		l.err = l.sock.Close()
	})
	return l.err
}

// passing says whether accepting may work again in a moment.
func passing(err error) bool {
	for _, no := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
