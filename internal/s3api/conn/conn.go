// SPDX-License-Identifier: Apache-2.0

// Package conn provides network connections that fail if the client stalls, and that can send files with the system
// call sendfile.
package conn

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Table lists the open connections of a server, so that a shutdown can close them. A Table is safe for concurrent
// use.
type Table struct {
	mu  sync.Mutex
	all map[*Conn]struct{}
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{all: map[*Conn]struct{}{}} }

// Len returns the number of open connections.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// CloseAll closes all open connections at once, including connections that still read a refused body (see
// Conn.Linger).
func (t *Table) CloseAll() {
	t.mu.Lock()
	conns := make([]*Conn, 0, len(t.all))
	for c := range t.all {
		conns = append(conns, c)
	}
	t.mu.Unlock()
	for _, c := range conns {
		c.linger.Store(false)
		_ = c.Conn.SetDeadline(time.Unix(1, 0)) // stops a connection that already reads a refused body
		_ = c.Close()                           // an error does not matter: the connection is closed
	}
}

// Wrap returns a listener whose connections fail if the client sends and receives nothing for the time in the
// parameter stall. If secure is not nil, it adds TLS to the connections, and a client that sends plain HTTP gets an
// error reply in plain HTTP.
func (t *Table) Wrap(l net.Listener, stall time.Duration, secure func(net.Listener) net.Listener) net.Listener {
	out := &listener{Listener: l, table: t, stall: stall, tls: secure != nil}
	if secure != nil {
		return secure(out)
	}
	return out
}

type listener struct {
	net.Listener
	table *Table
	stall time.Duration
	tls   bool // the connections use TLS
}

// longestWait is the longest pause between two attempts to accept a connection while no descriptor or memory is
// left.
const longestWait = time.Second

// Accept returns the next connection. If the process or the machine has no file descriptor or memory left, Accept
// waits and tries again, because an error would stop the HTTP server permanently.
func (l *listener) Accept() (net.Conn, error) {
	wait := 5 * time.Millisecond
	c, err := l.Listener.Accept()
	for ; exhausted(err); c, err = l.Listener.Accept() {
		time.Sleep(wait)
		wait = min(2*wait, longestWait)
	}
	if err != nil {
		return nil, err
	}
	s := &Conn{Conn: c, table: l.table, stall: l.stall, awaitTLS: l.tls}
	l.table.mu.Lock()
	l.table.all[s] = struct{}{}
	l.table.mu.Unlock()
	return s, nil
}

func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM)
}

// Conn is a connection that fails if its client neither sends nor receives a byte for the stall time. A deadline that
// the HTTP server sets, for an idle connection or a request header, replaces the stall time until the HTTP server
// removes the deadline. If the HTTP server has set no deadline, each read and each write has to end within the stall
// time. A Conn renews its deadline at most once per quarter of the stall time, so that a busy connection makes few
// system calls.
//
// A goroutine may read from a Conn while another goroutine writes to it.
type Conn struct {
	net.Conn
	table *Table
	stall time.Duration

	awaitTLS   bool        // no byte has arrived yet on a TLS connection
	linger     atomic.Bool // the client is still sending a body that was refused
	readFixed  bool        // the HTTP server has set a read deadline
	writeFixed bool
	readMoved  time.Time
	writeMoved time.Time
	close      sync.Once
	chunks     chunkCount
}

// chunkCount counts the received bytes of a chunked body and the bytes of its content.
type chunkCount struct {
	on              bool
	wire, delivered int64
}

// A chunked body may have chunkSlack bytes plus chunkShare times its content of chunk sizes, chunk extensions and
// trailers. Without this limit, an endless chunk extension would keep a request alive forever.
const (
	chunkSlack = 64 << 10
	chunkShare = 64
)

var errChunkOverhead = errors.New("a chunked body has far more framing than content")

// BeginChunks starts to limit the framing of a chunked request body: Read fails if the body has far more framing
// than content.
func (c *Conn) BeginChunks() { c.chunks = chunkCount{on: true} }

// Delivered records that n more bytes of content, without framing, were read from the chunked request body.
func (c *Conn) Delivered(n int) { c.chunks.delivered += int64(n) }

// EndChunks ends the limit on the framing of a chunked request body that BeginChunks has set.
func (c *Conn) EndChunks() { c.chunks.on = false }

// Linger makes Close read and discard the bytes that the client still sends, for up to 5 seconds. Without Linger, a
// client whose request body was not read to its end would get a connection reset instead of the reply.
func (c *Conn) Linger() { c.linger.Store(true) }

// sendSize is the number of bytes that sendfile sends before the deadline is renewed. A slow but steady client can
// receive sendSize bytes within the stall time.
const sendSize = 4 << 20

// Read implements net.Conn. Read fails if no byte arrives within the stall time.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.readFixed {
		if now := time.Now(); now.Sub(c.readMoved) > c.stall/4 {
			if err := c.Conn.SetReadDeadline(now.Add(c.stall)); err != nil {
				return 0, err
			}
			c.readMoved = now
		}
	}
	n, err := c.Conn.Read(p)
	if c.awaitTLS && n > 0 {
		c.awaitTLS = false
		if looksLikeHTTP(p[:n]) {
			return 0, c.refusePlain()
		}
	}
	if c.chunks.on {
		if c.chunks.wire += int64(n); c.chunks.wire > chunkSlack+chunkShare*c.chunks.delivered+int64(len(p)) {
			return n, errChunkOverhead
		}
	}
	return n, err
}

// Write implements net.Conn. Write fails if the client does not receive the bytes within the stall time.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.moveWrite(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// SyscallConn returns the raw socket, so that the body of a reply can call sendfile itself. Each time the socket
// accepts more bytes, the write deadline of the connection is renewed.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	return rawConn{raw, c}, err
}

type rawConn struct {
	syscall.RawConn
	c *Conn
}

func (r rawConn) Write(f func(uintptr) bool) error {
	var failed error
	err := r.RawConn.Write(func(fd uintptr) bool {
		if failed = r.c.moveWrite(); failed != nil {
			return true
		}
		return f(fd)
	})
	if failed != nil {
		return failed
	}
	return err
}

// ReadFrom implements io.ReaderFrom, so that files can be sent with sendfile. A reader with a method WriteTo, such as
// a reply body from the store, writes to the connection itself. From any other reader, the underlying connection
// copies the bytes, with sendfile if the reader is a file.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if wt, ok := r.(io.WriterTo); ok {
		return wt.WriteTo(c)
	}
	rf, ok := c.Conn.(io.ReaderFrom)
	if !ok {
		return io.Copy(writerOnly{c}, r)
	}
	src, limited := r.(*io.LimitedReader)
	if !limited {
		src = &io.LimitedReader{R: r, N: 1<<63 - 1}
	}
	var total int64
	for src.N > 0 {
		if err := c.moveWrite(); err != nil {
			return total, err
		}
		part := &io.LimitedReader{R: src.R, N: min(src.N, sendSize)}
		want := part.N
		n, err := rf.ReadFrom(part)
		total += n
		src.N -= n
		if err != nil || n < want {
			return total, err
		}
	}
	return total, nil
}

type writerOnly struct{ io.Writer }

func (c *Conn) moveWrite() error {
	if c.writeFixed {
		return nil
	}
	now := time.Now()
	if now.Sub(c.writeMoved) <= c.stall/4 {
		return nil
	}
	c.writeMoved = now
	return c.Conn.SetWriteDeadline(now.Add(c.stall))
}

// SetDeadline sets a deadline for reads and writes, which replaces the stall time until the deadline is set to the
// zero time.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets a deadline for reads, which replaces the stall time until the deadline is set to the zero
// time.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readFixed, c.readMoved = !t.IsZero(), time.Time{}
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline sets a deadline for writes, which replaces the stall time until the deadline is set to the zero
// time.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeFixed, c.writeMoved = !t.IsZero(), time.Time{}
	return c.Conn.SetWriteDeadline(t)
}

// Longest time for which Close reads a refused body: in total, and without a new byte.
const (
	lingerFor  = 5 * time.Second
	lingerIdle = time.Second
)

// letFinish reads and discards the bytes that the client still sends. If a connection is closed with unread bytes,
// the kernel resets it, and the client reports the reset instead of the reply.
func (c *Conn) letFinish() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	buf := make([]byte, 64<<10)
	for end := time.Now().Add(lingerFor); ; {
		now := time.Now()
		if now.After(end) || c.Conn.SetReadDeadline(now.Add(lingerIdle)) != nil {
			return
		}
		if _, err := c.Conn.Read(buf); err != nil {
			return
		}
	}
}

// Close closes the connection. A second call of Close returns net.ErrClosed.
func (c *Conn) Close() error {
	err := net.ErrClosed
	c.close.Do(func() {
		if c.linger.Load() {
			c.letFinish()
		}
		c.table.mu.Lock()
		delete(c.table.all, c)
		c.table.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}
