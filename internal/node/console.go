// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"
)

// state is how far the server has come.
type state string

// The states, in order; failed comes instead of draining.
const (
	starting state = "starting"
	ready    state = "ready"
	draining state = "draining"
	failed   state = "failed"
)

// console serves health, readiness and metrics on an address of their own: on
// the S3 address they would be names of buckets.
type console struct {
	state   atomic.Value // state
	store   func() error // nil while the store can be used; not called before the state is ready
	version string
	pprof   bool
	metrics *metrics
}

func (c *console) now() state { return c.state.Load().(state) }

func (c *console) set(s state) {
	c.state.Store(s)
	c.metrics.ready.Store(s == ready)
}

func (c *console) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.index)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", c.readyz)
	mux.Handle("GET /metrics", c.metrics.handler())
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
		mux.ServeHTTP(w, r)
	})
}

// readyz says whether requests should be sent here.
func (c *console) readyz(w http.ResponseWriter, _ *http.Request) {
	answer := struct {
		Ready  bool   `json:"ready"`
		State  state  `json:"state"`
		Reason string `json:"reason,omitempty"`
	}{State: c.now()}
	answer.Ready = answer.State == ready
	if answer.Ready {
		if err := c.store(); err != nil {
			answer.Ready, answer.State, answer.Reason = false, failed, err.Error()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if !answer.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(answer) // a probe that went away needs no answer
}

func (c *console) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>NebulaIO</title>
<style>body{font:16px/1.5 system-ui,sans-serif;margin:3rem auto;max-width:40rem;padding:0 1rem;color:#1b1f24}a{color:#0b57d0}</style></head>
<body><h1>NebulaIO</h1>
<p>Storage that ends in GPU memory. This is version %s of the server; it is %s.</p>
<ul><li><a href="/healthz">/healthz</a> answers while the process lives</li>
<li><a href="/readyz">/readyz</a> answers 200 while requests are accepted</li>
<li><a href="/metrics">/metrics</a> for Prometheus</li></ul>
<p>Objects are served on the S3 address, not on this one.</p></body></html>
`, html.EscapeString(c.version), html.EscapeString(string(c.now())))
}

// consoleConnections bounds the connections to the console.
const consoleConnections = 256

// newHTTP makes a small server for operators: bounded in everything that a
// client can make it hold.
func newHTTP(h http.Handler, l *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(l.Handler(), slog.LevelDebug),
	}
}

// limited lets n connections of a listener be open at one time; others wait
// to be accepted.
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

// Accept waits for a slot and then for a connection.
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

// Close also ends an Accept that waits for a slot.
func (l *limited) Close() error {
	l.stop()
	return l.Listener.Close()
}

type slotConn struct {
	net.Conn
	closed atomic.Bool
	free   func()
}

// Close gives the slot back, once.
func (c *slotConn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		c.free()
	}
	return err
}
