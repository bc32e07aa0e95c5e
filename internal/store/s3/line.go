// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// lineBuffer is the size in bytes of the buffers of a connection. Larger reads bypass the buffer.
	lineBuffer = 4 << 10
	// mostHeader is the largest size in bytes of the header of a reply.
	mostHeader = 64 << 10
	// mostInterim is the largest number of replies with status 1xx before the reply itself.
	mostInterim = 5
)

// line is one connection of a direct. At any time, a single goroutine reads and writes.
type line struct {
	conn     net.Conn
	raw      syscall.RawConn
	addr     string
	in       *bufio.Reader
	out      *bufio.Writer
	left     int64 // bytes that may still be read
	answered bool  // a byte of the reply has come
	since    time.Time
}

func newLine(c net.Conn, addr string) (*line, error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a connection of type %T has no socket", c)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &line{conn: c, raw: raw, addr: addr}
	l.in, l.out = bufio.NewReaderSize(l, lineBuffer), bufio.NewWriterSize(c, lineBuffer)
	return l, nil
}

// Read implements io.Reader for the buffer.
func (l *line) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("the header of the reply has more than %d bytes", mostHeader)
	}
	n, err := l.conn.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	l.answered = l.answered || n > 0
	return n, err
}

// ask sends a request, and reads the header of its reply.
func (l *line) ask(r *http.Request) (*http.Response, error) {
	l.answered, l.left = false, mostHeader
	if err := r.Write(l.out); err != nil {
		return nil, err
	}
	if err := l.out.Flush(); err != nil {
		return nil, err
	}
	for range mostInterim + 1 {
		resp, err := http.ReadResponse(l.in, r)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			l.left = math.MaxInt64
			return resp, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	return nil, fmt.Errorf("the server answers a GET with status 101, or more than %d times with status 1xx", mostInterim)
}

// usable reports whether an idle connection is open, and no byte has come on it. Some servers send bytes before they
// close an idle connection. Such bytes must not be read as the reply to the next request.
func (l *line) usable() bool {
	silent := false
	err := l.raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = err == syscall.EAGAIN
		return true
	})
	return err == nil && silent
}

// close closes the connection. Reads and writes that wait fail at once. Any goroutine may call close.
func (l *line) close() { _ = l.conn.Close() } // nothing is lost

// directBody is the body of a reply. At its end, the connection is kept for the next request.
type directBody struct {
	d     *direct
	l     *line
	ctx   context.Context
	stop  func() bool // ends the watch of ctx, and reports whether ctx had not ended before
	src   io.Reader   // as net/http parses it
	keep  bool        // whether the server keeps the connection open
	ended atomic.Bool
	whole atomic.Bool // the body was read to its end
}

// Read implements io.Reader.
func (b *directBody) Read(p []byte) (int, error) {
	if b.ended.Load() {
		if b.whole.Load() {
			return 0, io.EOF
		}
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.src.Read(p)
	if err == nil {
		return n, nil
	}
	b.end(err == io.EOF)
	if err != io.EOF && b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	return n, err
}

// Close implements io.Closer. Close may be called while another goroutine reads, whose Read then fails.
func (b *directBody) Close() error {
	b.end(false)
	return nil
}

// end gives the connection back, or closes it if the reply was not read to its end.
func (b *directBody) end(whole bool) {
	b.whole.CompareAndSwap(false, whole && !b.ended.Load())
	if !b.ended.CompareAndSwap(false, true) {
		return
	}
	if unbroken := b.stop(); whole && unbroken && b.keep && b.l.in.Buffered() == 0 {
		b.d.keep(b.l)
		return
	}
	b.l.close()
}
