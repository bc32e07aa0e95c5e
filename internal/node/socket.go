// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
)

// adminSocket is the name of the administration socket in the data directory.
const adminSocket = "admin.sock"

// maxSocketPath is the largest length of a Unix socket's path in bytes, with its final zero.
const maxSocketPath = 108

// socketPath calls f with a path of the socket that fits into a socket address. If the path of the data directory
// is too long, the path goes through /proc/self/fd.
func socketPath(dir string, f func(path string) error) error {
	if path := filepath.Join(dir, adminSocket); len(path) < maxSocketPath {
		return f(path)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), adminSocket))
}

// listenAdmin opens the administration socket. The caller holds the store's lock, so an existing socket belongs to
// a process that has ended.
func listenAdmin(dir string) (net.Listener, error) {
	var l *net.UnixListener
	err := socketPath(dir, func(path string) error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var err error
		if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
			return err
		}
		// The path may go through a descriptor that is closed soon, so ownerListener.Close removes the file.
		l.SetUnlinkOnClose(false)
		if err := os.Chmod(path, 0o600); err != nil {
			_ = l.Close()
			return err
		}
		return nil
	})
	if err != nil {
		return nil, errs.Wrap("open the administration socket", filepath.Join(dir, adminSocket), err)
	}
	return &ownerListener{UnixListener: l, dir: dir}, nil
}

// ownerListener accepts connections only from the server's own user and from root.
type ownerListener struct {
	*net.UnixListener
	dir  string
	once sync.Once
}

// Accept returns the next connection of the server's own user or of root. Accept closes the connections of other
// users.
func (l *ownerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := userOf(c); err == nil && (uid == uint32(os.Geteuid()) || uid == 0) {
			return c, nil
		}
		_ = c.Close()
	}
}

// Close closes the listener and removes the administration socket.
func (l *ownerListener) Close() error {
	var err error
	l.once.Do(func() {
		err = l.UnixListener.Close()
		_ = os.Remove(filepath.Join(l.dir, adminSocket))
	})
	return err
}

// userOf returns the user ID of the process at the other end of a connection.
func userOf(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) { uid, err = channel.User(int(fd)) }); e != nil {
		return 0, e
	}
	return uid, err
}

// dialAdmin connects to the server that runs on a data directory.
func dialAdmin(ctx context.Context, dir string) (net.Conn, error) {
	var c net.Conn
	err := socketPath(dir, func(path string) (err error) {
		var d net.Dialer
		c, err = d.DialContext(ctx, "unix", path)
		return err
	})
	return c, err
}
