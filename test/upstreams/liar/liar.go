// SPDX-License-Identifier: Apache-2.0

// Package liar is a proxy that falsifies the replies of a real S3 server. The proxy delays, hangs, cuts and resets,
// changes ETags, ranges, lengths and bytes, and counts what passes.
package liar

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options says what the proxy does.
type Options struct {
	Upstream string // URL of the real server
	Plan     Plan   // nil is honest
	Delay    time.Duration
	// Content returns the whole object at a path. The fault Whole needs it; without it, that fault answers 200 with the
	// bytes of the range alone.
	Content func(path string) ([]byte, bool)
	// Passed is called after each piece of a body has reached the client, with the bytes of this body so far. Passed
	// runs on the goroutine of the request, so that the reply waits for Passed.
	Passed func(r *http.Request, sent int64)
	// Answered is called when the real server has answered, before the reply goes to the client. Answered runs on the
	// goroutine of the request.
	Answered func(r *http.Request)
}

// Counts is what has passed the proxy.
type Counts struct {
	Requests int64            // all requests
	Bodies   int64            // bytes of bodies that came from the real server for GET
	Faults   map[string]int64 // requests by the fault that was applied, with honest ones
	Methods  map[string]int64
}

// Proxy is a running proxy. Close ends it.
type Proxy struct {
	Endpoint string // its URL

	o         Options
	server    *http.Server
	transport *http.Transport
	closed    chan struct{}
	once      sync.Once
	serving   sync.WaitGroup
	plan      atomic.Pointer[Plan]
	requests  atomic.Int64
	bodies    atomic.Int64
	mu        sync.Mutex
	faults    map[string]int64
	methods   map[string]int64
}

// New starts a proxy on a free loopback port.
func New(o Options) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Endpoint: "http://" + l.Addr().String(), o: o, closed: make(chan struct{}),
		transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256},
		faults:    map[string]int64{}, methods: map[string]int64{}}
	p.SetPlan(o.Plan)
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

// SetPlan replaces the plan for requests that come later. nil is honest.
func (p *Proxy) SetPlan(plan Plan) {
	if plan == nil {
		plan = Always(Honest)
	}
	p.plan.Store(&plan)
}

// Close ends the proxy, its connections and its hanging replies. When it returns, all replies are counted.
func (p *Proxy) Close() {
	p.once.Do(func() {
		close(p.closed)
		_ = p.server.Close()
		p.serving.Wait()
		p.transport.CloseIdleConnections()
	})
}

// Counts returns what has passed so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := Counts{Requests: p.requests.Load(), Bodies: p.bodies.Load(), Faults: map[string]int64{},
		Methods: map[string]int64{}}
	for name, n := range p.faults {
		c.Faults[name] = n
	}
	for name, n := range p.methods {
		c.Methods[name] = n
	}
	return c
}

// ServeHTTP forwards one request and falsifies its reply as the plan says.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.serving.Add(1)
	defer p.serving.Done()
	p.requests.Add(1)
	fault := (*p.plan.Load())(r)
	used := Honest // also for a reply that ends by a panic, because the real server or the client has ended it
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults[used.String()]++
		p.methods[r.Method]++
	}()
	used = p.serve(w, r, fault)
}

// serve applies the fault and returns the fault that was applied: Honest if the fault does not fit the reply.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, fault Fault) Fault {
	switch fault {
	case HangHeader:
		p.hang(r.Context())
		return fault
	case Refuse:
		reset(w)
		return fault
	case Unavailable:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusServiceUnavailable)
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>SlowDown</Code>"+
				"<Message>Please reduce your request rate.</Message></Error>")
		}
		return fault
	case Delay:
		t := time.NewTimer(p.o.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
		case <-p.closed:
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() { // a taken-over connection no longer ends the context of its request
		select {
		case <-p.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	resp, err := p.forward(ctx, r)
	if err != nil {
		reset(w) // as if the server had refused
		return Refuse
	}
	defer resp.Body.Close()
	if p.o.Answered != nil {
		p.o.Answered(r)
	}
	return p.reply(w, r, resp, fault)
}

// forward sends the request to the real server as it came. The host stays the proxy's, because it is signed.
func (p *Proxy) forward(ctx context.Context, r *http.Request) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, r.Method, p.o.Upstream+r.URL.RequestURI(), r.Body)
	if err != nil {
		return nil, err
	}
	out.Host = r.Host
	out.Header = r.Header.Clone()
	out.ContentLength = r.ContentLength
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	if !strings.Contains(r.Header.Get("Authorization"), "expect") {
		out.Header.Del("Expect") // our side of the connection has answered it
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // none, in place of Go's
	}
	return p.transport.RoundTrip(out)
}

// hang waits until the client or the proxy gives up.
func (p *Proxy) hang(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-p.closed:
	}
}

// reset ends the connection with RST.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	resetConn(conn)
}

func resetConn(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// errGone says that the client has closed its connection.
var errGone = errors.New("the client is gone")
