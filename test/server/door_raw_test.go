// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// rawDoor speaks the door's protocol without the library, so that it can send requests that the library would not.
type rawDoor struct {
	conn *net.UnixConn
	next uint32
}

func socketOf(s *server) string { return filepath.Join(s.data, "gpudirect.sock") }

// dialDoor connects and authenticates.
func dialDoor(s *server, access, secret string) (*rawDoor, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socketOf(s), Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	d := &rawDoor{conn: conn}
	m, _, err := d.ask(&wire.Hello{Min: wire.MinVersion, Max: wire.Version, Agent: "test"})
	if err == nil {
		ch, ok := m.(*wire.Challenge)
		if !ok {
			_ = conn.Close()
			return nil, fmt.Errorf("%T in place of a challenge", m)
		}
		p := &wire.Proof{AccessKey: access}
		_, _ = rand.Read(p.Nonce[:])
		if raw, err := conn.SyscallConn(); err == nil {
			// without it the login fails, and the test
			_ = raw.Control(func(fd uintptr) { p.Binding, _ = channel.Peer(int(fd)) })
		}
		p.MAC = wire.ClientMAC(secret, ch, p)
		m, _, err = d.ask(p)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if _, ok := m.(*wire.Greeting); !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("%T in place of a greeting", m)
	}
	return d, nil
}

func (d *rawDoor) close() { _ = d.conn.Close() }

// doorError is an Error message as a Go error.
type doorError struct{ said *wire.Error }

func (e doorError) Error() string {
	return e.said.Code + ": " + e.said.Message + " (" + e.said.Fix + ")"
}

// ask sends a request and returns the first reply with its descriptors.
func (d *rawDoor) ask(m wire.Message) (wire.Message, []int, error) {
	d.next++
	b, err := wire.Append(nil, wire.Header{Request: d.next}, m)
	if err != nil {
		return nil, nil, err
	}
	if _, err := d.conn.Write(b); err != nil {
		return nil, nil, err
	}
	buf, oob := make([]byte, wire.MaxMessage), make([]byte, unix.CmsgSpace(4*wire.MaxDescriptors))
	n, on, _, _, err := d.conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, nil, err
	}
	if n == 0 {
		return nil, nil, errors.New("the server ended the connection")
	}
	var fds []int
	controls, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil {
		return nil, nil, err
	}
	for i := range controls {
		some, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			return nil, nil, err
		}
		fds = append(fds, some...)
	}
	_, reply, err := wire.Decode(buf[:n])
	if err != nil {
		return nil, fds, err
	}
	if e, ok := reply.(*wire.Error); ok {
		return nil, fds, doorError{e}
	}
	return reply, fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// sealOf returns the commit message for a content.
func sealOf(handle uint64, b []byte) *wire.Commit {
	c := &wire.Commit{Handle: handle, Size: int64(len(b)), CRC64: checksum.Of(b)}
	for off := 0; off < len(b); off += 1 << 20 {
		c.Sums = append(c.Sums, checksum.Of(b[off:min(len(b), off+1<<20)]))
	}
	return c
}

// createRaw creates a draft of the content's size and writes the content through the page cache.
func createRaw(t *testing.T, d *rawDoor, key string, b []byte) (handle uint64, fds []int) {
	t.Helper()
	m, fds, err := d.ask(&wire.Create{Bucket: plainBucket, Key: key, Size: int64(len(b)), Device: wire.Device{Index: -1},
		Want: wire.WantBuffered | wire.WantDirect})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	c, ok := m.(*wire.Created)
	if !ok || len(fds) == 0 {
		t.Fatalf("create answered %T with %d descriptors", m, len(fds))
	}
	if n, err := unix.Pwrite(fds[0], b, 0); err != nil || n != len(b) {
		t.Fatalf("write %d of %d bytes: %v", n, len(b), err)
	}
	return c.Handle, fds
}
