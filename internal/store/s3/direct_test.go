// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"
)

// scripted is a server whose connections are served by one function each, in the order in which they are made.
type scripted struct {
	net.Listener
	ended chan error // one value for each connection: what its function returned
}

func script(t *testing.T, conns ...func(c net.Conn, in *bufio.Reader) error) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{Listener: l, ended: make(chan error, len(conns))}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, serve := range conns {
			c, err := l.Accept()
			if err != nil {
				return
			}
			err = serve(c, bufio.NewReader(c))
			_ = c.Close() // its end is part of the script
			s.ended <- err
		}
	}()
	t.Cleanup(func() {
		_ = l.Close() // ends Accept
		<-done
	})
	return s
}

// answer waits for a request and sends a reply.
func answer(c net.Conn, in *bufio.Reader, reply string) error {
	r, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	if r.Method != http.MethodGet || r.Header.Get("User-Agent") != "nebulaio" {
		return fmt.Errorf("the request is %s with %v", r.Method, r.Header)
	}
	_, err = io.WriteString(c, reply)
	return err
}

const hello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

func (s *scripted) sender(t *testing.T) *Sender {
	t.Helper()
	c, err := NewSender(SenderOptions{Endpoint: "http://" + s.Addr().String(), Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func get(ctx context.Context, s *Sender) (string, error) {
	resp, err := s.Send(ctx, &Request{Method: http.MethodGet, Bucket: "b", Key: "k"})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func wantHello(t *testing.T, s *Sender) {
	t.Helper()
	if got, err := get(t.Context(), s); got != "hello" || err != nil {
		t.Fatalf("got %q, %v; want hello", got, err)
	}
}

// until waits for a condition that becomes true by itself.
func until(is func() bool) {
	for !is() {
		runtime.Gosched()
	}
}

func TestDirectKeepsTheConnection(t *testing.T) {
	replies := []string{
		hello, "HTTP/1.1 100 Continue\r\n\r\n" + hello,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n5\r\nhello\r\n0\r\nX-End: 1\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\n\r\n", hello,
	}
	s := script(t, func(c net.Conn, in *bufio.Reader) error {
		for _, reply := range replies {
			if err := answer(c, in, reply); err != nil {
				return err
			}
		}
		return nil
	})
	client := s.sender(t)
	for i := range replies {
		want := "hello"
		if strings.Contains(replies[i], "304") {
			want = ""
		}
		if got, err := get(t.Context(), client); got != want || err != nil {
			t.Fatalf("reply %d: got %q, %v; want %q", i, got, err, want)
		}
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

func TestDirectReplacesAStaleConnection(t *testing.T) {
	once := func(c net.Conn, in *bufio.Reader) error { return answer(c, in, hello) }
	unasked := func(c net.Conn, in *bufio.Reader) error {
		if err := answer(c, in, hello); err != nil {
			return err
		}
		if _, err := io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return err
		}
		if _, err := in.ReadByte(); err == nil {
			return errors.New("the client has used a connection with bytes that nobody asked for")
		}
		return nil
	}
	for name, first := range map[string]func(net.Conn, *bufio.Reader) error{"closed": once, "unasked bytes": unasked} {
		t.Run(name, func(t *testing.T) {
			s := script(t, first, once)
			client := s.sender(t)
			wantHello(t, client)
			until(func() bool { return len(client.direct.idle) == 0 || !client.direct.idle[0].usable() })
			wantHello(t, client)
			for range 2 {
				if err := <-s.ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestDirectAsksAgainIfAKeptConnectionEnds(t *testing.T) {
	silent := func(c net.Conn, in *bufio.Reader) error { return answer(c, in, "") }
	twice := func(c net.Conn, in *bufio.Reader) error {
		if err := answer(c, in, hello); err != nil {
			return err
		}
		return silent(c, in)
	}
	s := script(t, twice, func(c net.Conn, in *bufio.Reader) error { return answer(c, in, hello) })
	client := s.sender(t)
	wantHello(t, client)
	wantHello(t, client)

	s = script(t, silent) // a new connection
	if got, err := get(t.Context(), s.sender(t)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %q, %v; want that the connection ended", got, err)
	}
}

func TestDirectEndsWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	gone := func(reply string, asked chan<- struct{}) func(net.Conn, *bufio.Reader) error {
		return func(c net.Conn, in *bufio.Reader) error {
			if err := answer(c, in, reply); err != nil {
				return err
			}
			close(asked)
			if _, err := in.ReadByte(); err == nil {
				return errors.New("the client has sent more")
			}
			return nil
		}
	}
	const begun = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"
	for _, reply := range []string{"", begun} {
		asked := make(chan struct{})
		s := script(t, gone(reply, asked))
		client := s.sender(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-asked
			cancel(cause)
		}()
		if got, err := get(ctx, client); !errors.Is(err, cause) {
			t.Errorf("got %q, %v; want the cause", got, err)
		}
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	}
	asked := make(chan struct{})
	s := script(t, gone(begun, asked))
	ctx, cancel := context.WithCancelCause(t.Context())
	resp, err := s.sender(t).Send(ctx, &Request{Method: http.MethodGet, Bucket: "b", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	cancel(cause) // nobody reads the body
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	resp.Body.Close()
}

func TestDirectClosesABodyThatIsNotReadToItsEnd(t *testing.T) {
	s := script(t, func(c net.Conn, in *bufio.Reader) error {
		if err := answer(c, in, hello); err != nil {
			return err
		}
		if _, err := in.ReadByte(); err == nil {
			return errors.New("the client has used the connection again")
		}
		return nil
	})
	client := s.sender(t)
	resp, err := client.Send(t.Context(), &Request{Method: http.MethodGet, Bucket: "b", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("after Close: %d, %v", n, err)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

func TestDirectRefusesOddReplies(t *testing.T) {
	for name, reply := range map[string]string{
		"long header": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", mostHeader) + "\r\n\r\n",
		"101":         "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"many 1xx":    strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", mostInterim+1) + hello,
		"no HTTP":     "hello\r\n\r\n",
		"short body":  "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
	} {
		s := script(t, func(c net.Conn, in *bufio.Reader) error { return answer(c, in, reply) })
		if got, err := get(t.Context(), s.sender(t)); err == nil {
			t.Errorf("%s: got %q, want an error", name, got)
		}
	}
	const until = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"
	s := script(t, func(c net.Conn, in *bufio.Reader) error { return answer(c, in, until) })
	client := s.sender(t)
	wantHello(t, client)
	if len(client.direct.idle) > 0 {
		t.Error("a connection that the server closes was kept")
	}
}

func TestDirectTakesOnlyPlainGETs(t *testing.T) {
	d := newDirect(&http.Transport{})
	ask := func(method, to string) *http.Request {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		return &http.Request{Method: method, URL: u, Header: http.Header{}}
	}
	if !d.takes(ask(http.MethodGet, "http://a:1/b")) {
		t.Error("a plain GET is not taken")
	}
	with := ask(http.MethodGet, "http://a:1/b")
	with.Body = http.NoBody
	for _, r := range []*http.Request{with, ask(http.MethodHead, "http://a:1/b"), ask(http.MethodGet, "https://a:1/b"),
		ask(http.MethodGet, "http://bücher.example/b")} {
		if d.takes(r) {
			t.Errorf("%s %s is taken", r.Method, r.URL)
		}
	}
	d.proxy = http.ProxyURL(ask("", "http://proxy:1").URL)
	if d.takes(ask(http.MethodGet, "http://a:1/b")) {
		t.Error("a request that needs a proxy is taken")
	}
}

func TestDirectForgetsIdleConnections(t *testing.T) {
	idle := func(d *direct, n int) []net.Conn {
		var far []net.Conn
		for range n {
			near, other := net.Pipe()
			far = append(far, other)
			d.keep(&line{conn: near, addr: "a:1"})
		}
		return far
	}
	closed := func(c net.Conn) bool {
		_, err := c.Read(make([]byte, 1))
		return errors.Is(err, io.EOF)
	}
	d := &direct{most: 2}
	if far := idle(d, 3); !closed(far[0]) || len(d.idle) != 2 {
		t.Errorf("%d idle connections, want the 2 last ones", len(d.idle))
	}
	d.idle[0].since = time.Now().Add(-2 * idleFor)
	d.sweep()
	if len(d.idle) != 1 || d.sweeps == nil {
		t.Errorf("%d connections are idle after one was idle for too long", len(d.idle))
	}
	d.close()
	if far := idle(d, 1); !closed(far[0]) || len(d.idle) != 0 || d.sweeps != nil {
		t.Errorf("%d connections are idle after close", len(d.idle))
	}
}
