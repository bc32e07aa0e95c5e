// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

const (
	testKey    = "tester"
	testSecret = "a secret of the test"
	testStore  = "store-of-the-test"
)

// door is a server under test.
type door struct {
	t     testing.TB
	s     *Server
	path  string
	store *files
	stop  func() error // ends it and waits; may be called again
}

// serve starts a server; change may alter its options.
func serve(t testing.TB, change func(*Options)) *door {
	t.Helper()
	return serveOn(t, Listen, change)
}

// takesDescriptors is Listen on a kernel that cannot refuse descriptors for the server.
func takesDescriptors(path string) (*Listener, error) { return listen(path, nil) }

// serveOn is serve with another way to listen.
func serveOn(t testing.TB, listen func(path string) (*Listener, error), change func(*Options)) *door {
	t.Helper()
	store := newFiles(t)
	o := Options{Store: store, StoreID: testStore, Authorizer: rules{}, Drain: 20 * time.Second,
		Secret: func(key string) (string, bool) {
			return testSecret, key == testKey || key == "blind"
		},
		Settings: Settings{BufferPoolSize: 1 << 30, MaxTransferSize: 4 << 20, QueueDepth: 64, Async: true, P2P: true},
	}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "door") // t.TempDir's may be longer than a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := listen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	var result error
	var over bool
	d := &door{t: t, s: s, path: l.Path(), store: store}
	d.stop = func() error {
		cancel()
		if !over {
			over, result = true, <-ended
		}
		return result
	}
	t.Cleanup(func() { _ = d.stop() })
	return d
}

// wireConn is a client of the test's own.
type wireConn struct {
	t    testing.TB
	c    *net.UnixConn
	next uint32
	buf  []byte
	g    *wire.Greeting
}

// dial connects without logging in.
func (d *door) dial() *wireConn {
	d.t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: d.path, Net: "unixpacket"})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // a test that hangs fails
	return &wireConn{t: d.t, c: c, buf: make([]byte, wire.MaxMessage)}
}

// login connects and logs in.
func (d *door) login() *wireConn {
	d.t.Helper()
	c := d.dial()
	if e := c.prove(testKey, testSecret); e != nil {
		d.t.Fatalf("login: %+v", e)
	}
	return c
}

// prove logs in; the error is what the server says.
func (c *wireConn) prove(key, secret string) *wire.Error {
	c.t.Helper()
	m, _ := c.ask(&wire.Hello{Min: 1, Max: 7, Agent: "test"})
	ch, ok := m.(*wire.Challenge)
	if !ok {
		return m.(*wire.Error)
	}
	p := proofOf(c.c, ch, key, secret)
	m, _ = c.ask(p)
	g, ok := m.(*wire.Greeting)
	if !ok {
		return m.(*wire.Error)
	}
	if !wire.EqualMAC(g.MAC, wire.ServerMAC(secret, ch, p)) {
		c.t.Error("the server did not prove itself")
	}
	c.g = g
	return nil
}

// proofOf proves a key over a connection, whose other end it names as a client does.
func proofOf(c *net.UnixConn, ch *wire.Challenge, key, secret string) *wire.Proof {
	p := &wire.Proof{AccessKey: key}
	_, _ = rand.Read(p.Nonce[:])
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { p.Binding, _ = channel.Peer(int(fd)) }) // without it the login fails, and the test
	}
	p.MAC = wire.ClientMAC(secret, ch, p)
	return p
}

// send sends a request and returns its number.
func (c *wireConn) send(m wire.Message) uint32 {
	c.t.Helper()
	c.next++
	b, err := wire.Append(nil, wire.Header{Request: c.next}, m)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.c.Write(b); err != nil {
		c.t.Fatalf("send %v: %v", m.Type(), err)
	}
	return c.next
}

// receive reads one packet; the descriptors are closed when the test ends.
func (c *wireConn) receive() (wire.Header, wire.Message, []*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*wire.MaxDescriptors))
	n, oobn, _, _, err := c.c.ReadMsgUnix(c.buf, oob)
	if err != nil {
		return wire.Header{}, nil, nil, err
	}
	var files []*os.File
	if oobn > 0 {
		cms, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return wire.Header{}, nil, nil, err
		}
		for _, cm := range cms {
			fds, err := unix.ParseUnixRights(&cm)
			if err != nil {
				return wire.Header{}, nil, nil, err
			}
			for _, fd := range fds {
				f := os.NewFile(uintptr(fd), "passed")
				c.t.Cleanup(func() { _ = f.Close() })
				files = append(files, f)
			}
		}
	}
	h, m, err := wire.Decode(c.buf[:n])
	if err == nil && int(h.Descriptors) != len(files) {
		c.t.Errorf("%v says that it has %d descriptors, %d came", h.Type, h.Descriptors, len(files))
	}
	return h, m, files, err
}

// ask sends a request and returns its one reply.
func (c *wireConn) ask(m wire.Message) (wire.Message, []*os.File) {
	c.t.Helper()
	id := c.send(m)
	h, r, files, err := c.receive()
	if err != nil {
		c.t.Fatalf("reply to %v: %v", m.Type(), err)
	}
	if h.Request != id && h.Request != 0 || h.Flags != 0 {
		c.t.Fatalf("reply to %v has request %d and flags %d, expected %d and none", m.Type(), h.Request, h.Flags, id)
	}
	return r, files
}

// open opens objects and gathers all packets.
func (c *wireConn) open(want uint8, items ...wire.OpenItem) (all []wire.OpenedItem, files []*os.File) {
	c.t.Helper()
	id := c.send(&wire.Open{Want: want, Device: wire.Device{Index: -1}, Items: items})
	for {
		h, m, fs, err := c.receive()
		if err != nil {
			c.t.Fatal(err)
		}
		if e, ok := m.(*wire.Error); ok {
			return []wire.OpenedItem{{Err: e}}, nil
		}
		o := m.(*wire.Opened)
		if h.Request != id || int(o.First) != len(all) {
			c.t.Fatalf("packet of request %d from item %d on, expected %d and %d", h.Request, o.First, id, len(all))
		}
		all, files = append(all, o.Items...), append(files, fs...)
		if h.Flags&wire.FlagMore == 0 {
			return all, files
		}
	}
}

// ended waits for the server to end the connection and returns the error that it sent before, if any.
func (c *wireConn) ended() *wire.Error {
	c.t.Helper()
	var last *wire.Error
	for {
		_, m, _, err := c.receive()
		if err != nil {
			if !errors.Is(err, io.EOF) && !isReset(err) {
				c.t.Fatalf("expected the end of the connection, got %v", err)
			}
			return last
		}
		if e, ok := m.(*wire.Error); ok {
			last = e
		}
	}
}

// item names an object of bucket b, from its beginning to its end.
func item(key string) wire.OpenItem { return wire.OpenItem{Bucket: "b", Key: key, N: -1} }
