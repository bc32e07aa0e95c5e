// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

func TestOneFrontEndPerProcess(t *testing.T) {
	w := start(t, nil, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = New(Options{Store: w.store, Accounts: w.iam, Listeners: []net.Listener{l}})
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "one process per front end") {
		t.Errorf("%v", err)
	}
}

func TestAFrontEndThatNeverServedMakesRoom(t *testing.T) {
	store := model.New()
	accounts, err := iam.Open(t.Context(), store, iam.Account{AccessKey: rootKey, Secret: rootSecret})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{Store: store, Accounts: accounts, Listeners: []net.Listener{l}})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is open: %v", err)
		}
	}
}

// vanish sends the beginning of a PUT and goes away.
func vanish(t *testing.T, w *world, length, sent int) {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(c, "PUT /public/key HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", length,
		strings.Repeat("x", sent))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

const publicPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*",` +
	`"Action":["s3:PutObject","s3:GetObject"],"Resource":"arn:aws:s3:::public/*"}]}`

// public makes a bucket that anybody may write to and read from.
func public(w *world) {
	w.t.Helper()
	w.must(200, "PUT", "/public", nil)
	w.must(204, "PUT", "/public?policy", []byte(publicPolicy))
	for len(w.events) > 0 {
		<-w.events
	}
}

// publicInStore makes the bucket that public makes, without a request: requests of a test with short times may be too
// slow on a busy machine.
func publicInStore(w *world) {
	w.t.Helper()
	if err := w.store.CreateBucket(w.t.Context(), object.Bucket{Name: "public", Owner: rootKey,
		Settings: map[string][]byte{policy.SettingACL: []byte(`{"Owner":"` + rootKey + `"}`),
			policy.Setting: []byte(publicPolicy)}}); err != nil {
		w.t.Fatal(err)
	}
}

func TestAVanishedClientLeavesNothing(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	vanish(t, w, 1<<20, 100<<10)
	if e := <-w.events; e.Operation != "PutObject" || e.Status < 400 {
		t.Errorf("%+v", e)
	}
	if _, err := w.store.Stat(t.Context(), object.Ref{Bucket: "public", Key: "key"}); !errors.Is(err,
		object.ErrNoSuchKey) {
		t.Errorf("the object is there: %v", err)
	}
}

func TestAnonymousOnlyWhereAPolicyAllowsIt(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	w.must(200, "PUT", "/private", nil)
	w.must(200, "PUT", "/private/key", []byte("secret"))
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"PUT", "/public/key", 200}, {"GET", "/public/key", 200}, {"DELETE", "/public/key", 403}, {"GET", "/public", 403},
		{"GET", "/", 403},
		{"GET", "/private/key", 403}, {"PUT", "/private/new", 403}, {"GET", "/private", 403},
		{"GET", "/private/../public/key", 403}, {"PUT", "/made", 403},
	} {
		r, err := w.try("", "", c.method, c.path, nil)
		if err != nil || r.StatusCode != c.status {
			t.Errorf("%s %s: %v %v, expected %d", c.method, c.path, r, err, c.status)
		}
	}
}

func TestAccountsSignForThemselves(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	if err := w.iam.Add(t.Context(), iam.Account{AccessKey: "alice", Secret: "alicesecret",
		Role: iam.RoleUserPlus}); err != nil {
		t.Fatal(err)
	}
	status := func(key, secret, method, path string) int {
		r, err := w.try(key, secret, method, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode
	}
	if got := status("alice", "alicesecret", "PUT", "/alices"); got != 200 {
		t.Errorf("a bucket of her own: %d", got)
	}
	if got := status("alice", "alicesecret", "GET", "/bucket"); got != 403 {
		t.Errorf("root's bucket: %d", got)
	}
	if got := status("alice", "wrongsecret", "GET", "/alices"); got != 403 {
		t.Errorf("a wrong secret: %d", got)
	}
	if err := w.iam.Remove(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	if got := status("alice", "alicesecret", "GET", "/alices"); got != 403 {
		t.Errorf("after she was removed: %d", got)
	}
	seen := false
	for len(w.events) > 0 {
		e := <-w.events
		seen = seen || e.Account == "alice"
	}
	if !seen {
		t.Error("no event names her")
	}
}

func TestAStalledWriterIsCutOff(t *testing.T) {
	w := start(t, nil, func(o *Options) { o.Limits.Stall = 100 * time.Millisecond })
	publicInStore(w)
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "PUT /public/key HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n%s",
		strings.Repeat("x", 10<<10)); err != nil {
		t.Fatal(err)
	}
	if e := <-w.events; e.Operation != "PutObject" || e.Status < 400 {
		t.Errorf("%+v", e)
	}
	if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection was not closed: %v", err)
	}
}

func TestAStalledReaderIsCutOff(t *testing.T) {
	store := model.New()
	w := start(t, store, func(o *Options) { o.Limits.Stall = 100 * time.Millisecond })
	publicInStore(w)
	const size = 64 << 20 // more than the sockets hold
	if _, err := store.Put(t.Context(), object.Put{Bucket: "public", Key: "key", Size: size,
		Body: io.LimitReader(zeros{}, size)}); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /public/key HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if e := <-w.events; e.Operation != "GetObject" || e.Err == nil || e.Out >= size {
		t.Errorf("%+v", e)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestIdleConnectionsEnd(t *testing.T) {
	w := start(t, nil, func(o *Options) {
		o.Limits.Idle, o.Limits.Header = 100*time.Millisecond, 100*time.Millisecond
	})
	for name, send := range map[string]string{"nothing": "", "half a header": "GET / HTTP/1.1\r\nHo",
		"one request": "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", name, err)
		}
		_ = c.Close()
	}
}

// waitingStore is a store whose puts wait.
type waitingStore struct {
	object.Store
	entered, open chan struct{}
}

func (g *waitingStore) Put(ctx context.Context, p object.Put) (object.Info, error) {
	g.entered <- struct{}{}
	<-g.open
	return g.Store.Put(ctx, p)
}

func TestDrainLetsRequestsFinish(t *testing.T) {
	g := &waitingStore{Store: model.New(), entered: make(chan struct{}), open: make(chan struct{})}
	w := start(t, g, nil)
	w.must(200, "PUT", "/bucket", nil)
	got := make(chan *reply, 1)
	go func() {
		r, err := w.try(rootKey, rootSecret, "PUT", "/bucket/key", []byte("x"))
		if err != nil {
			t.Errorf("the request was cut off: %v", err)
		}
		got <- r
	}()
	<-g.entered
	if !w.server.Ready() {
		t.Error("not ready while it serves")
	}
	w.stop()
	for w.server.Ready() { // until Serve has noticed
		time.Sleep(time.Millisecond)
	}
	close(g.open)
	if r := <-got; r != nil && r.StatusCode != 200 {
		t.Errorf("status %d", r.StatusCode)
	}
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	w.done <- nil // for the clean-up
	if _, err := g.Stat(t.Context(), object.Ref{Bucket: "bucket", Key: "key"}); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", w.addr); err == nil {
		_ = c.Close()
		t.Error("still accepts connections")
	}
}

func TestDrainEndsAtItsDeadline(t *testing.T) {
	w := start(t, nil, func(o *Options) { o.Drain = 50 * time.Millisecond })
	public(w)
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PUT /public/key HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"+
		strings.Repeat("x", 10<<10)); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	w.done <- nil
	if n := w.server.conns.Len(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// fileBody is a body that shows what stands between it and the socket.
type fileBody struct {
	f    *os.File
	n    int64
	into chan string
}

func (b *fileBody) Read(p []byte) (int, error) { return 0, errors.New("read instead of WriteTo") }
func (b *fileBody) Close() error               { return nil }
func (b *fileBody) Len() int64                 { return b.n }
func (b *fileBody) WriteTo(w io.Writer) (int64, error) {
	b.into <- fmt.Sprintf("%T", w)
	bw, ok := w.(*bufio.Writer)
	if !ok {
		return 0, errors.New("no bufio.Writer")
	}
	if err := bw.Flush(); err != nil {
		return 0, err
	}
	return bw.ReadFrom(&io.LimitedReader{R: b.f, N: b.n})
}

// fileStore gives every content the same file.
type fileStore struct {
	object.Store
	f    *os.File
	into chan string
}

type fileContent struct {
	object.Content
	s *fileStore
}

func (s *fileStore) Open(ctx context.Context, ref object.Ref) (object.Content, error) {
	c, err := s.Store.Open(ctx, ref)
	return fileContent{c, s}, err
}

func (c fileContent) Section(r object.Range) (object.Body, error) {
	if _, err := c.s.f.Seek(r.Off, io.SeekStart); err != nil {
		return nil, err
	}
	return &fileBody{c.s.f, r.N, c.s.into}, nil
}

// TestRangesReachTheSocketAsFiles proves that nothing stands between the store's
// body and the connection, which has sendfile for what is a file.
func TestRangesReachTheSocketAsFiles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "content"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content := strings.Repeat("0123456789", 100)
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	s := &fileStore{model.New(), f, make(chan string, 1)}
	w := start(t, s, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte(content))
	r := w.must(206, "GET", "/bucket/key", nil, "Range", "bytes=100-899")
	if string(r.body) != content[100:900] || r.ContentLength != 800 ||
		r.Header.Get("Content-Range") != "bytes 100-899/1000" {
		t.Errorf("%d bytes, Content-Length %d, %q", len(r.body), r.ContentLength, r.Header.Get("Content-Range"))
	}
	if got := <-s.into; got != "*bufio.Writer" {
		t.Errorf("written into %s", got)
	}
}

func TestTooManyRequestsSlowDown(t *testing.T) {
	g := &waitingStore{Store: model.New(), entered: make(chan struct{}), open: make(chan struct{})}
	w := start(t, g, func(o *Options) { o.Limits.Requests = 1 })
	w.must(200, "PUT", "/bucket", nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if r, err := w.try(rootKey, rootSecret, "PUT", "/bucket/key", []byte("x")); err != nil || r.StatusCode != 200 {
			t.Errorf("%v %v", r, err)
		}
	}()
	<-g.entered
	r := w.do("GET", "/bucket/key", nil)
	if r.StatusCode != http.StatusServiceUnavailable || r.code() != "SlowDown" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	close(g.open)
	<-done
}

// TestARefusedBodyGetsItsReply: a client that sends megabytes before it reads learns why they were refused.
func TestARefusedBodyGetsItsReply(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		refusedBody(t, start(t, nil, nil), func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) })
	})
	t.Run("TLS", func(t *testing.T) {
		certs := httptest.NewTLSServer(nil)
		defer certs.Close()
		conf := &tls.Config{Certificates: certs.TLS.Certificates}
		trust := certs.Client().Transport.(*http.Transport).TLSClientConfig
		w := start(t, nil, func(o *Options) { o.TLS = conf })
		refusedBody(t, w, func(addr string) (net.Conn, error) { return tls.Dial("tcp", addr, trust) })
	})
}

func refusedBody(t *testing.T, w *world, dial func(string) (net.Conn, error)) {
	if err := w.store.CreateBucket(t.Context(), object.Bucket{Name: "private", Owner: rootKey,
		Settings: map[string][]byte{policy.SettingACL: []byte(`{"Owner":"` + rootKey + `"}`)}}); err != nil {
		t.Fatal(err)
	}
	c, err := dial(w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := make([]byte, 16<<20)
	if _, err := fmt.Fprintf(c, "PUT /private/key HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n",
		len(body)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Write(body); err != nil {
		t.Fatalf("the connection broke off after %d bytes: %v", n, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d, expected 403", resp.StatusCode)
	}
}
