// SPDX-License-Identifier: Apache-2.0

// Package ktls serves TLS connections whose sent bytes the kernel encrypts, so that files can go to them with sendfile.
//
// The handshake and everything that is received stay in crypto/tls. After a handshake of TLS 1.3 with AES-GCM, the
// package hands the server's write key to the kernel. From then on, crypto/tls must not write: its records would be
// encrypted twice. crypto/tls writes after a handshake only to send an alert, or to answer a request for new keys. A
// connection on which crypto/tls writes such a record fails. If the kernel or the client cannot do it, the connection
// stays in crypto/tls.
package ktls

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// Socket is a connection over TCP that is not encrypted yet.
type Socket interface {
	net.Conn
	io.ReaderFrom
	syscall.Conn
}

// Counts are the numbers of connections and bytes by the place of their encryption. The fields only grow.
type Counts struct {
	KernelConns, ProgramConns atomic.Int64 // connections after their handshake
	KernelBytes, ProgramBytes atomic.Int64 // bytes that were sent, without the framing of TLS
}

// Listener returns a listener that serves TLS with conf on the connections of l, which must be Sockets. If inKernel is
// true, the kernel encrypts connections where it can; otherwise crypto/tls does all of it. The caller checks with Probe
// whether the kernel can. The listener adds to counts.
func Listener(l net.Listener, conf *tls.Config, inKernel bool, counts *Counts) net.Listener {
	conf = conf.Clone()
	conf.DynamicRecordSizingDisabled = true // a server of large objects gains nothing from small first records
	return &listener{Listener: l, conf: conf, kernel: inKernel, counts: counts, enable: enable}
}

type listener struct {
	net.Listener
	conf   *tls.Config
	kernel bool
	counts *Counts
	enable func(Socket, *keys) error // a field for tests without the kernel's part
	memory sync.Pool                 // of *[]byte, for the records of mostGathered bytes
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s, ok := raw.(Socket)
	if !ok {
		_ = raw.Close()
		return nil, errors.New("ktls: the listener below returns connections that are no Sockets")
	}
	c := &Conn{socket: s, counts: l.counts, memory: &l.memory, records: &records{Conn: s}}
	conf := l.conf
	if l.kernel {
		c.enable = l.enable
		conf = conf.Clone()
		conf.KeyLogWriter = &c.log
		// A session ticket would be the first record with the server's key, and the kernel begins with number 0.
		conf.SessionTicketsDisabled = true
	}
	c.Conn = tls.Server(c.records, conf)
	return c, nil
}

// Conn is a TLS connection of a server. The kernel or crypto/tls encrypts what it sends; InKernel says which. A
// goroutine may read from a Conn while another goroutine writes to it.
type Conn struct {
	*tls.Conn
	socket  Socket
	records *records
	counts  *Counts
	memory  *sync.Pool
	enable  func(Socket, *keys) error // nil if all connections stay in crypto/tls
	log     secretLog
	shake   sync.Once
	failed  error // of the handshake
	kernel  atomic.Bool
}

// records is the connection below crypto/tls.
type records struct {
	net.Conn
	kernel  atomic.Bool // the kernel encrypts what is written
	mu      sync.Mutex  // guards the fields below, and the order of writes
	gather  bool        // records are collected for one write
	pending []byte
}

// errSealed is the error of records that crypto/tls writes although the kernel encrypts.
var errSealed = errors.New("ktls: the peer asks for an alert or for new keys, and the kernel holds the keys")

func (r *records) Write(p []byte) (int, error) {
	if r.kernel.Load() {
		return 0, errSealed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gather {
		r.pending = append(r.pending, p...)
		return len(p), nil
	}
	return r.Conn.Write(p)
}

// begin collects the following records in b.
func (r *records) begin(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gather, r.pending = true, b
}

// flush writes the collected records, and returns their memory.
func (r *records) flush() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.pending
	r.gather, r.pending = false, nil
	_, err := r.Conn.Write(b)
	return b[:0], err
}

// Handshake runs the handshake if it has not run yet, and then gives the keys to the kernel if that is possible.
func (c *Conn) Handshake() error { return c.HandshakeContext(context.Background()) }

// HandshakeContext is Handshake with a context, which ends the handshake.
func (c *Conn) HandshakeContext(ctx context.Context) error {
	c.shake.Do(func() {
		if c.failed = c.Conn.HandshakeContext(ctx); c.failed != nil {
			return
		}
		if c.handOver() {
			c.counts.KernelConns.Add(1)
		} else {
			c.counts.ProgramConns.Add(1)
		}
	})
	return c.failed
}

// handOver gives the write keys to the kernel. It returns false if the connection stays in crypto/tls.
func (c *Conn) handOver() bool {
	defer func() { clear(c.log.secret); c.log.secret = nil }()
	state := c.Conn.ConnectionState()
	if c.enable == nil || state.Version != tls.VersionTLS13 || c.log.secret == nil {
		return false
	}
	suite, ok := cipherOf(state.CipherSuite)
	if !ok {
		return false
	}
	k, err := newKeys(suite, c.log.secret)
	if err != nil {
		return false
	}
	defer k.forget()
	if c.enable(c.socket, &k) != nil {
		return false // the kernel has changed nothing
	}
	c.records.kernel.Store(true)
	c.kernel.Store(true)
	return true
}

// InKernel reports whether the kernel encrypts what the connection sends. InKernel returns false before the handshake.
func (c *Conn) InKernel() bool { return c.kernel.Load() }

// NetConn returns the connection below TLS, for deadlines. Bytes must not be written to it.
func (c *Conn) NetConn() net.Conn { return c.socket }

// SyscallConn returns the socket for sendfile. Unless the kernel encrypts, SyscallConn fails, because bytes that are
// written to the socket would not be encrypted.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if !c.InKernel() {
		return nil, errors.ErrUnsupported
	}
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	return awake{raw}, nil
}

// Read reads bytes that the peer has sent.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write sends p.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	if c.InKernel() {
		n, err := c.writeAwake(p)
		c.counts.KernelBytes.Add(int64(n))
		return n, err
	}
	n, err := c.writeGathered(p)
	c.counts.ProgramBytes.Add(int64(n))
	return n, err
}

// ReadFrom sends everything that r returns. If the kernel encrypts, files go to the socket with sendfile.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	wt, ok := r.(io.WriterTo)
	if !ok || !c.InKernel() {
		return io.Copy(writerOnly{c}, r) // Write counts
	}
	n, err := wt.WriteTo(uncounted{c, c})
	c.counts.KernelBytes.Add(n)
	return n, err
}

// uncounted is a connection in the kernel for bodies that report the number of bytes themselves.
type uncounted struct {
	net.Conn
	c *Conn
}

func (u uncounted) Write(p []byte) (int, error) { return u.c.writeAwake(p) }

func (u uncounted) SyscallConn() (syscall.RawConn, error) { return u.c.SyscallConn() }

type writerOnly struct{ io.Writer }

// Close tells the peer that nothing follows, and closes the connection.
func (c *Conn) Close() error {
	if !c.InKernel() {
		return c.Conn.Close()
	}
	closeNotify(c.socket)
	return c.socket.Close()
}

// CloseWrite tells the peer that nothing follows.
func (c *Conn) CloseWrite() error {
	if !c.InKernel() {
		return c.Conn.CloseWrite()
	}
	closeNotify(c.socket)
	return nil
}

const (
	// mostGathered is the number of bytes whose records are collected for one write. crypto/tls writes each record with
	// a call of its own.
	mostGathered = 256 << 10
	// record is the largest number of bytes in a record.
	record = 16 << 10
	// framing is more than what TLS adds to a record.
	framing = 64
)

// writeGathered sends p by crypto/tls, with few writes to the socket.
func (c *Conn) writeGathered(p []byte) (n int, err error) {
	if len(p) <= record {
		return c.Conn.Write(p)
	}
	b, _ := c.memory.Get().(*[]byte)
	if b == nil {
		fresh := make([]byte, 0, mostGathered/record*(record+framing))
		b = &fresh
	}
	defer c.memory.Put(b)
	for n < len(p) && err == nil {
		some := p[n:min(n+mostGathered, len(p))]
		c.records.begin(*b)
		_, err = c.Conn.Write(some)
		var failed error
		if *b, failed = c.records.flush(); err == nil {
			err = failed
		}
		if err == nil {
			n += len(some)
		}
	}
	return n, err
}
