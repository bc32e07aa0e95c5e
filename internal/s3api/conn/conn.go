// SPDX-License-Identifier: Apache-2.0

// Package conn ends the connections of clients that stall, and keeps sendfile possible on all others.
package conn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Table holds the open connections of a server, so that a shutdown can close them. It is safe for concurrent use.
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

// CloseAll closes all open connections at once, also those that linger.
func (t *Table) CloseAll() {
	t.mu.Lock()
	conns := make([]*Conn, 0, len(t.all))
	for c := range t.all {
		conns = append(conns, c)
	}
	t.mu.Unlock()
	for _, c := range conns {
		c.linger.Store(false)
		_ = c.Conn.SetDeadline(time.Unix(1, 0)) // a connection that lingers already stops
		_ = c.Close()                           // an error changes nothing: the connection is gone
	}
}

// Wrap returns a listener whose connections fail if their client stalls for the given time. If conf is not nil, the
// connections speak TLS, and a client of plain HTTP gets a reply that says so.
func (t *Table) Wrap(l net.Listener, stall time.Duration, conf *tls.Config) net.Listener {
	var out net.Listener = &listener{Listener: l, table: t, stall: stall, tls: conf != nil}
	if conf != nil {
		out = tls.NewListener(out, conf)
	}
	return out
}

type listener struct {
	net.Listener
	table *Table
	stall time.Duration
	tls   bool // TLS is spoken on the connections
}

// longestWait is the longest pause between two tries to accept while the process has no descriptor left.
const longestWait = time.Second

// Accept returns the next connection. If the process or the machine has no descriptor or memory left, Accept waits: an
// error would stop the HTTP server for good.
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

// Conn is a connection that fails if its client neither sends nor takes a byte for the stall time. Deadlines that the
// HTTP server sets (for idle connections and for headers) hold until the server removes them. Otherwise each read and
// write has the stall time. A deadline is moved only after a quarter of that time, so that a busy connection does not
// pay for it.
//
// One goroutine may read while another one writes.
type Conn struct {
	net.Conn
	table *Table
	stall time.Duration

	awaitTLS   bool        // no byte has arrived yet on a connection that speaks TLS
	linger     atomic.Bool // the client is still sending a body that was refused
	readFixed  bool        // a deadline of the HTTP server holds
	writeFixed bool
	readMoved  time.Time
	writeMoved time.Time
	close      sync.Once
	chunks     chunkCount
}

// chunkCount compares the bytes of a chunked body on the wire with the bytes of its content.
type chunkCount struct {
	on              bool
	wire, delivered int64
}

// Chunk sizes, chunk extensions and trailers may take chunkSlack bytes plus chunkShare times the content. Without a
// bound, an extension without end would keep a request alive for ever.
const (
	chunkSlack = 64 << 10
	chunkShare = 64
)

var errChunkOverhead = errors.New("a chunked body has far more framing than content")

// BeginChunks starts to compare the bytes of a chunked body with the bytes of its content.
func (c *Conn) BeginChunks() { c.chunks = chunkCount{on: true} }

// Delivered adds n bytes to the content that was read from a chunked body.
func (c *Conn) Delivered(n int) { c.chunks.delivered += int64(n) }

// EndChunks ends the comparison that BeginChunks started.
func (c *Conn) EndChunks() { c.chunks.on = false }

// Linger makes Close read for a few seconds what the client still sends. It is called when a reply was sent before the
// body of its request was read to the end.
func (c *Conn) Linger() { c.linger.Store(true) }

// sendSize is the number of bytes that sendfile moves between two moves of the deadline. It is small enough for a slow
// but steady reader to take it within the stall time.
const sendSize = 4 << 20

// Read reads as net.Conn does, within the stall time.
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

// Write writes as net.Conn does. Each write moves the deadline.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.moveWrite(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// SyscallConn returns the socket, for a body that sends a file by itself. The deadline moves whenever the socket takes
// bytes again.
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

// ReadFrom keeps sendfile possible. A body of the store writes to the socket itself, and the connection below sends
// files by sendfile.
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

// SetDeadline sets a deadline that holds until it is set to zero.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets a deadline for reads that holds until it is set to zero.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readFixed, c.readMoved = !t.IsZero(), time.Time{}
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline sets a deadline for writes that holds until it is set to zero.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeFixed, c.writeMoved = !t.IsZero(), time.Time{}
	return c.Conn.SetWriteDeadline(t)
}

// Bounds of the time for which a client may go on sending a refused body: in all, and without a byte.
const (
	lingerFor  = 5 * time.Second
	lingerIdle = time.Second
)

// letFinish reads what the client still sends. If a connection is closed with unread bytes, the kernel resets it, and
// the client reports that instead of the reply with the reason.
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

// Close closes the connection. A second call returns net.ErrClosed.
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
