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

// adminSocket is the file in the data directory over which a running server is administered.
const adminSocket = "admin.sock"

// maxSocketPath is how long a Unix socket's name may be, with its final zero.
const maxSocketPath = 108

// socketPath calls f with a name for the socket that fits into an address: a
// data directory may lie deeper than 108 bytes, and is then named by a descriptor.
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

// listenAdmin opens the socket. The caller holds the store's lock, so a socket
// that lies there already is of a process that is gone.
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
		// The name may be one that is gone soon; the file is removed by ours.
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

// ownerListener accepts the server's own user, and root, alone.
type ownerListener struct {
	*net.UnixListener
	dir  string
	once sync.Once
}

// Accept returns the next connection of an allowed user; others are closed.
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

// Close stops accepting and removes the socket.
func (l *ownerListener) Close() error {
	var err error
	l.once.Do(func() {
		err = l.UnixListener.Close()
		_ = os.Remove(filepath.Join(l.dir, adminSocket))
	})
	return err
}

// userOf returns the user at the other end of a connection.
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
