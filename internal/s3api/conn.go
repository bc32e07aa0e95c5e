// SPDX-License-Identifier: Apache-2.0

package s3api

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

// connTable knows the open connections, so that the end of a drain can close them.
type connTable struct {
	mu  sync.Mutex
	all map[*stallConn]struct{}
}

func newConnTable() *connTable { return &connTable{all: map[*stallConn]struct{}{}} }

func (t *connTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

func (t *connTable) closeAll() {
	t.mu.Lock()
	conns := make([]*stallConn, 0, len(t.all))
	for c := range t.all {
		conns = append(conns, c)
	}
	t.mu.Unlock()
	for _, c := range conns {
		c.linger.Store(false)
		_ = c.Conn.SetDeadline(time.Unix(1, 0)) // who lingers already stops
		_ = c.Close()                           // the peer hears of it either way
	}
}

// wrap returns a listener whose connections end when their client stalls.
func (t *connTable) wrap(l net.Listener, limits Limits, conf *tls.Config) net.Listener {
	var out net.Listener = &stallListener{Listener: l, table: t, stall: limits.Stall, tls: conf != nil}
	if conf != nil {
		out = tls.NewListener(out, conf)
	}
	return out
}

type stallListener struct {
	net.Listener
	table *connTable
	stall time.Duration
	tls   bool // TLS is spoken on the connections
}

// longestWait is between two tries to accept while the process has no descriptor left.
const longestWait = time.Second

// Accept returns the next connection. Where the process or the machine has no
// descriptor or memory for one, it waits: the HTTP server would stop for good.
func (l *stallListener) Accept() (net.Conn, error) {
	wait := 5 * time.Millisecond
	c, err := l.Listener.Accept()
	for ; exhausted(err); c, err = l.Listener.Accept() {
		time.Sleep(wait)
		wait = min(2*wait, longestWait)
	}
	if err != nil {
		return nil, err
	}
	s := &stallConn{Conn: c, table: l.table, stall: l.stall, awaitTLS: l.tls}
	l.table.mu.Lock()
	l.table.all[s] = struct{}{}
	l.table.mu.Unlock()
	return s, nil
}

func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM)
}

// stallConn is a connection that fails when its peer neither sends nor takes a
// byte for a while. Deadlines that the HTTP server sets itself (for idle
// connections and for headers) hold until it takes them back; in between each
// read and write has the stall time. A deadline is moved only when a quarter of
// the time has passed since the last move: a busy connection does not pay for it.
//
// Reads and writes come from one goroutine each.
type stallConn struct {
	net.Conn
	table *connTable
	stall time.Duration

	awaitTLS   bool        // nothing has come in yet of a connection on which TLS is spoken
	linger     atomic.Bool // the client is still sending a body that nobody wants
	readFixed  bool        // a deadline of the server's holds
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

// Chunk sizes, chunk extensions and trailers may take chunkSlack bytes, and chunkShare
// times the content. Without a bound, an extension that never ends keeps a request alive for ever.
const (
	chunkSlack = 64 << 10
	chunkShare = 64
)

var errChunkOverhead = errors.New("a chunked body has far more framing than content")

// beginChunks starts the count for a request's body.
func (c *stallConn) beginChunks() { c.chunks = chunkCount{on: true} }

// endChunks ends the count.
func (c *stallConn) endChunks() { c.chunks.on = false }

// chunk is how much sendfile moves between two looks at the clock: small enough
// that a slow but steady reader takes it within the stall time.
const chunk = 4 << 20

func (c *stallConn) Read(p []byte) (int, error) {
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

func (c *stallConn) Write(p []byte) (int, error) {
	if err := c.moveWrite(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// SyscallConn gives out the socket, for those who send a file by themselves. The
// deadline moves whenever the socket takes bytes again.
func (c *stallConn) SyscallConn() (syscall.RawConn, error) {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	return stallRaw{raw, c}, err
}

type stallRaw struct {
	syscall.RawConn
	c *stallConn
}

func (r stallRaw) Write(f func(uintptr) bool) error {
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

// ReadFrom keeps sendfile possible: a body of the store takes the socket, and the
// connection below knows what a file is.
func (c *stallConn) ReadFrom(r io.Reader) (int64, error) {
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
		part := &io.LimitedReader{R: src.R, N: min(src.N, chunk)}
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

func (c *stallConn) moveWrite() error {
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

func (c *stallConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *stallConn) SetReadDeadline(t time.Time) error {
	c.readFixed, c.readMoved = !t.IsZero(), time.Time{}
	return c.Conn.SetReadDeadline(t)
}

func (c *stallConn) SetWriteDeadline(t time.Time) error {
	c.writeFixed, c.writeMoved = !t.IsZero(), time.Time{}
	return c.Conn.SetWriteDeadline(t)
}

// lingerFor and lingerIdle bound how long a client may go on sending what was refused.
const (
	lingerFor  = 5 * time.Second
	lingerIdle = time.Second
)

// letFinish takes what the client still sends. Closed with bytes unread, the kernel would reset the connection,
// and the client would report that instead of the reply that says why it was refused.
func (c *stallConn) letFinish() {
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

func (c *stallConn) Close() error {
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
