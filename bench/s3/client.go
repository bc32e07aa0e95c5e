// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// request is one prepared request: signed and encoded before the clock runs.
type request struct {
	method string
	head   []byte
	body   []byte
	want   int   // expected status
	size   int64 // bytes of the reply's body; -1 means any
}

// prepare signs a request for host. Header lines are added unchanged.
func prepare(method, host, target string, body []byte, want int, size int64, header ...string) request {
	head := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n"
	if method == http.MethodPut || method == http.MethodPost {
		head += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	for _, h := range header {
		head += h + "\r\n"
	}
	return request{method, []byte(head + "\r\n"), body, want, size}
}

// stream is one kept-alive connection with its buffers, used by one goroutine. It has no pool and no goroutines per
// connection, so that the client uses little of the two cores.
type stream struct {
	host   string
	secure bool // whether the connection uses TLS
	conn   net.Conn
	in     *bufio.Reader
	buf    []byte
	// dialled counts connections. More than one means that the server closes them.
	dialled int
	// header is that of the last reply.
	header http.Header
}

func newStream(host string) *stream { return &stream{host: host, buf: make([]byte, 1<<20)} }

func (s *stream) close() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// do sends r and reads the whole reply. If each is not nil, do passes it the body in pieces. An unexpected reply is
// an error with the start of its text.
func (s *stream) do(r request, each func([]byte)) error {
	if s.conn == nil {
		c, err := s.dial()
		if err != nil {
			return err
		}
		s.conn, s.in = c, bufio.NewReaderSize(c, 64<<10)
		s.dialled++
	}
	keep, err := s.exchange(r, each)
	if err != nil || !keep {
		s.close()
	}
	return err
}

func (s *stream) exchange(r request, each func([]byte)) (keep bool, err error) {
	if err := s.conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return false, err
	}
	bufs := net.Buffers{r.head}
	if len(r.body) > 0 {
		bufs = append(bufs, r.body)
	}
	_, sent := bufs.WriteTo(s.conn) // a server may answer before it has read all of it
	res, err := http.ReadResponse(s.in, &http.Request{Method: r.method})
	if err != nil {
		if sent != nil {
			err = sent
		}
		return false, fmt.Errorf("%s: %w", r.line(), err)
	}
	defer res.Body.Close()
	s.header = res.Header
	if res.StatusCode != r.want {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return false, fmt.Errorf("%s: status %d, expected %d: %s", r.line(), res.StatusCode, r.want, text)
	}
	var n int64
	for {
		m, err := res.Body.Read(s.buf)
		n += int64(m)
		if each != nil && m > 0 {
			each(s.buf[:m])
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, fmt.Errorf("%s: after %d bytes: %w", r.line(), n, err)
		}
	}
	if r.size >= 0 && n != r.size {
		return false, fmt.Errorf("%s: %d bytes, expected %d", r.line(), n, r.size)
	}
	return !res.Close && sent == nil, sent
}

// line returns the request without its signature, for messages.
func (r request) line() string {
	for i, c := range r.head {
		if c == '?' || c == '\r' {
			return string(r.head[:i])
		}
	}
	return string(r.head)
}
