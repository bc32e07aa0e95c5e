// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	webconsole "github.com/nebulaio/nebulaio/internal/console"
	"github.com/nebulaio/nebulaio/internal/object"
)

// state is the state of the server, as /readyz shows it.
type state string

// The states in order. A server that fails is in state failed instead of draining.
const (
	starting state = "starting"
	ready    state = "ready"
	draining state = "draining"
	failed   state = "failed"
)

// The states that replace ready while the store accepts no new content.
const (
	full     state = "full"
	readOnly state = "read-only"
)

// console serves health, readiness and metrics on its own address. On the S3 address, their paths would be bucket
// names.
type console struct {
	state atomic.Value // state
	store func() error // returns why the store accepts no new content, or nil; only called in state ready
	// upstreams returns the state of the upstream of each upstream bucket; nil means that there is no such bucket.
	upstreams func() []upstreamHealth
	version   string
	// endpoint is the URL of the S3 address, for clients that ask the console for objects.
	endpoint string
	pprof    bool
	metrics  *metrics
	web      http.Handler // the web console; nil if it is turned off
}

func (c *console) now() state { return c.state.Load().(state) }

func (c *console) set(s state) { c.state.Store(s) }

func (c *console) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.index)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", c.readyz)
	scrape := c.metrics.handler()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		c.metrics.ready.Store(c.health().Ready)
		scrape.ServeHTTP(w, r)
	})
	if c.web != nil {
		mux.Handle(webconsole.Path, c.web)
	}
	if c.pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Server", "NebulaIO")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		h.Set("Cache-Control", "no-store")
		if s3 := looksLikeS3(r); s3 || unserved(mux, r) {
			c.notHere(w, s3)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// health is the reply of /readyz.
type health struct {
	Ready  bool   `json:"ready"`
	State  state  `json:"state"`
	Reads  bool   `json:"reads"`
	Writes bool   `json:"writes"`
	Reason string `json:"reason,omitempty"`
	// Upstreams are the servers that keep upstream buckets. They do not change whether this server is ready, because it
	// goes on to serve what it has cached.
	Upstreams []upstreamHealth `json:"upstreams,omitempty"`
}

// health returns the current state of the server. The server is ready if it accepts new content. With a full disk,
// the server still answers reads.
func (c *console) health() health {
	h := health{State: c.now()}
	if c.upstreams != nil {
		h.Upstreams = c.upstreams()
	}
	if h.State != ready {
		return h
	}
	h.Reads = true
	err := c.store()
	if err == nil {
		h.Ready, h.Writes = true, true
		return h
	}
	h.Reason = err.Error()
	switch {
	case errors.Is(err, object.ErrNoSpace):
		h.State = full
	case errors.Is(err, object.ErrReadOnly):
		h.State = readOnly
	default:
		h.State, h.Reads = failed, !errors.Is(err, object.ErrClosed)
	}
	return h
}

// readyz answers 200 if clients can send requests to the server. With ?for=reads, it also answers 200 if the server
// can only serve reads.
func (c *console) readyz(w http.ResponseWriter, r *http.Request) {
	h := c.health()
	ok := h.Ready
	switch want := r.URL.Query().Get("for"); want {
	case "", "writes":
	case "reads":
		ok = h.Reads
	default:
		http.Error(w, fmt.Sprintf("for is %q, expected reads or writes", want), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(h) // a client that disconnected needs no reply
}

func (c *console) index(w http.ResponseWriter, r *http.Request) {
	if c.web != nil && browser(r) {
		http.Redirect(w, r, webconsole.Path, http.StatusFound)
		return
	}
	h := c.health()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>NebulaIO</title>
<style>body{font:16px/1.5 system-ui,sans-serif;margin:3rem auto;max-width:40rem;padding:0 1rem;color:#1b1f24}a{color:#0b57d0}</style></head>
<body><h1>NebulaIO</h1>
<p>Storage that ends in GPU memory. This is version %s of the server; it is %s.</p>
<ul><li><a href="/healthz">/healthz</a> answers while the process lives</li>
<li><a href="/readyz">/readyz</a> answers 200 while requests are accepted and content can be stored</li>
<li><a href="/metrics">/metrics</a> for Prometheus</li></ul>
`, html.EscapeString(c.version), html.EscapeString(string(h.State)))
	writeUpstreams(w, h.Upstreams)
	fmt.Fprint(w, "<p>Objects are served on the S3 address, not on this one.</p></body></html>\n")
}

// consoleConnections is the largest number of open connections to the console.
const consoleConnections = 256

// newHTTP returns an HTTP server for operators, with limits on time and header size.
func newHTTP(h http.Handler, l *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(l.Handler(), slog.LevelDebug),
	}
}

// limited is a listener with a limit of open connections. Further connections wait until one is closed.
type limited struct {
	net.Listener
	slots chan struct{}
	gone  context.Context
	stop  context.CancelFunc
}

func limit(l net.Listener, n int) net.Listener {
	ctx, stop := context.WithCancel(context.Background())
	return &limited{Listener: l, slots: make(chan struct{}, n), gone: ctx, stop: stop}
}

// Accept returns the next connection. While the largest allowed number of connections is open, Accept waits for one
// of them to close.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.gone.Done():
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slotConn{Conn: c, free: func() { <-l.slots }}, nil
}

// Close closes the listener, so that a waiting call of Accept returns.
func (l *limited) Close() error {
	l.stop()
	return l.Listener.Close()
}

type slotConn struct {
	net.Conn
	closed atomic.Bool
	free   func()
}

// Close closes the connection, so that the listener can accept another one.
func (c *slotConn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		c.free()
	}
	return err
}
