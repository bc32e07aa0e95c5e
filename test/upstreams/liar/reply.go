// SPDX-License-Identifier: Apache-2.0

package liar

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// piece is the number of bytes that are passed at once.
const piece = 64 << 10

// reply passes the reply of the real server, falsified if the fault fits it.
func (p *Proxy) reply(w http.ResponseWriter, r *http.Request, resp *http.Response, fault Fault) Fault {
	ok := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent
	body := r.Method == http.MethodGet && ok && resp.ContentLength > 0
	switch fault {
	case WrongETag:
		if tag := resp.Header.Get("ETag"); ok && tag != "" {
			resp.Header.Set("ETag", otherTag(tag))
			p.honest(w, r, resp)
			return fault
		}
	case NotModified:
		if ok {
			drop := []string{"Content-Length", "Content-Range", "Content-Type"}
			for _, name := range drop {
				resp.Header.Del(name)
			}
			if tag := r.Header.Get("If-None-Match"); tag != "" {
				resp.Header.Set("ETag", tag)
			}
			copyHeader(w.Header(), resp.Header)
			w.WriteHeader(http.StatusNotModified)
			return fault
		}
	case WrongLength:
		if !body && r.Method == http.MethodHead && ok && resp.ContentLength > 0 {
			resp.Header.Set("Content-Length", strconv.FormatInt(resp.ContentLength-1, 10))
			p.honest(w, r, resp)
			return fault
		}
	}
	if !body || fault < HangBody || fault == WrongETag || fault == NotModified {
		p.honest(w, r, resp)
		if fault == Delay {
			return fault
		}
		return Honest
	}
	if (fault == Whole || fault == WrongRange) && resp.StatusCode != http.StatusPartialContent {
		p.honest(w, r, resp)
		return Honest
	}
	p.lie(w, r, resp, fault)
	return fault
}

// honest passes the reply unchanged.
func (p *Proxy) honest(w http.ResponseWriter, r *http.Request, resp *http.Response) {
	copyHeader(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if err := p.pass(w, r, resp.Body, -1); err != nil {
		panic(http.ErrAbortHandler) // ends the connection, so that the client sees a broken reply
	}
}

// pass copies up to limit bytes of the body, or all of them if limit is negative.
func (p *Proxy) pass(w io.Writer, r *http.Request, body io.Reader, limit int64) error {
	if limit >= 0 {
		body = io.LimitReader(body, limit)
	}
	buffer := make([]byte, piece)
	var sent int64
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if r.Method == http.MethodGet {
				p.bodies.Add(int64(n))
			}
			if _, err := w.Write(buffer[:n]); err != nil {
				return errGone
			}
			sent += int64(n)
			if p.o.Passed != nil {
				if f, ok := w.(http.Flusher); ok {
					f.Flush()
				}
				p.o.Passed(r, sent)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// lie takes the connection over and writes a reply with a false body or false headers. The connection ends with it.
func (p *Proxy) lie(w http.ResponseWriter, r *http.Request, resp *http.Response, fault Fault) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	length, head := resp.ContentLength, resp.Header
	switch fault {
	case HangBody, Cut, Reset:
		writeHead(rw.Writer, resp.StatusCode, head, length)
		_ = p.pass(rw, r, resp.Body, length/2)
		_ = rw.Flush()
		switch fault {
		case HangBody:
			p.hangUp(conn)
		case Reset:
			resetConn(conn)
		}
	case Whole:
		whole, known := []byte(nil), false
		if p.o.Content != nil {
			whole, known = p.o.Content(r.URL.Path)
		}
		head.Del("Content-Range")
		if known {
			writeHead(rw.Writer, http.StatusOK, head, int64(len(whole)))
			_, _ = rw.Write(whole)
		} else {
			writeHead(rw.Writer, http.StatusOK, head, length)
			_ = p.pass(rw, r, resp.Body, -1)
		}
	case WrongRange:
		head.Set("Content-Range", shifted(head.Get("Content-Range")))
		writeHead(rw.Writer, resp.StatusCode, head, length)
		_ = p.pass(rw, r, resp.Body, -1)
	case WrongLength:
		writeHead(rw.Writer, resp.StatusCode, head, length-1)
		_ = p.pass(rw, r, resp.Body, length-1)
	case Short:
		writeHead(rw.Writer, resp.StatusCode, head, -1)
		data, err := io.ReadAll(io.LimitReader(resp.Body, length/2))
		p.bodies.Add(int64(len(data)))
		if err == nil && len(data) > 0 {
			fmt.Fprintf(rw, "%x\r\n%s\r\n", len(data), data)
		}
		_, _ = io.WriteString(rw, "0\r\n\r\n")
	case Flip:
		writeHead(rw.Writer, resp.StatusCode, head, length)
		_ = p.pass(&flipper{w: rw, at: length / 3}, r, resp.Body, -1)
	}
	_ = rw.Flush()
}

// hangUp waits until the client closes its connection or the proxy ends.
func (p *Proxy) hangUp(conn net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, conn)
	}()
	select {
	case <-done:
	case <-p.closed:
		_ = conn.Close()
		<-done
	}
}

// flipper flips the lowest bit of the byte at an offset.
type flipper struct {
	w        io.Writer
	at, done int64
}

func (f *flipper) Write(b []byte) (int, error) {
	if i := f.at - f.done; i >= 0 && i < int64(len(b)) {
		b[i] ^= 1 // in the buffer of pass, which is filled anew
	}
	f.done += int64(len(b))
	return f.w.Write(b)
}

// writeHead writes the status line and the headers. A negative length means a chunked body.
func writeHead(w *bufio.Writer, status int, head http.Header, length int64) {
	head = head.Clone()
	head.Del("Content-Length")
	head.Set("Connection", "close")
	if length >= 0 {
		head.Set("Content-Length", strconv.FormatInt(length, 10))
	} else {
		head.Set("Transfer-Encoding", "chunked")
	}
	fmt.Fprintf(w, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = head.Write(w)
	_, _ = io.WriteString(w, "\r\n")
}

func copyHeader(to, from http.Header) {
	for name, values := range from {
		to[name] = append([]string(nil), values...)
	}
}

// otherTag returns an ETag of the same form with another first digit.
func otherTag(tag string) string {
	b := []byte(tag)
	for i, c := range b {
		if (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') {
			if b[i] = '0'; c == '0' {
				b[i] = '1'
			}
			return string(b)
		}
	}
	return "\"" + strings.Repeat("0", 32) + "\""
}

// shifted moves the range of a Content-Range by one byte towards the end, or towards the beginning at the end.
func shifted(value string) string {
	var first, last, total int64
	if _, err := fmt.Sscanf(value, "bytes %d-%d/%d", &first, &last, &total); err != nil {
		return value + "0"
	}
	by := int64(1)
	if last+1 >= total {
		by = -1
	}
	if first+by < 0 { // the whole object: another total
		return fmt.Sprintf("bytes %d-%d/%d", first, last, total+1)
	}
	return fmt.Sprintf("bytes %d-%d/%d", first+by, last+by, total)
}
