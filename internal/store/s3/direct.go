// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// idleFor is the longest time for which a connection without a request is kept.
const idleFor = 90 * time.Second

// direct sends GET requests by plain HTTP over connections of its own. The goroutine that asks also writes the request
// and reads the reply. In net/http, two other goroutines do that, and the first byte waits until they have been woken.
//
// A direct parses replies and bodies with net/http.
type direct struct {
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	proxy func(*http.Request) (*url.URL, error)
	most  int // largest number of idle connections

	mu     sync.Mutex
	idle   []*line // in the order in which they became idle
	sweeps *time.Timer
	closed bool
}

// newDirect returns a direct with the dialer and the proxies of a transport.
func newDirect(t *http.Transport) *direct {
	return &direct{dial: t.DialContext, proxy: t.Proxy, most: t.MaxIdleConnsPerHost}
}

// takes reports whether a request can be sent directly: it has no content, needs no TLS, and goes through no proxy.
func (d *direct) takes(r *http.Request) bool {
	if r.Method != http.MethodGet || r.Body != nil || r.URL.Scheme != "http" || !isASCII(r.URL.Host) {
		return false
	}
	if d.proxy == nil {
		return true
	}
	by, err := d.proxy(r)
	return by == nil && err == nil
}

// isASCII reports whether a host needs no translation before it is looked up.
func isASCII(host string) bool {
	for i := range len(host) {
		if host[i] >= 0x80 {
			return false
		}
	}
	return true
}

// send sends a request, and returns the reply with its body open. If the context of the request ends, reads of the body
// fail with its cause.
func (d *direct) send(r *http.Request) (*http.Response, error) {
	addr := r.URL.Host
	if r.URL.Port() == "" {
		addr = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	ctx := r.Context()
	if l := d.take(addr); l != nil {
		resp, err := d.exchange(ctx, l, r)
		// The server may close a kept connection at the moment of the request. If no byte of a reply came, the request is
		// sent again: a GET changes nothing.
		if err == nil || l.answered || ctx.Err() != nil {
			return resp, err
		}
	}
	c, err := d.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l, err := newLine(c, addr)
	if err != nil {
		_ = c.Close() // nothing was sent
		return nil, err
	}
	return d.exchange(ctx, l, r)
}

// exchange sends a request over a connection. If exchange fails, it closes the connection.
func (d *direct) exchange(ctx context.Context, l *line, r *http.Request) (*http.Response, error) {
	stop := context.AfterFunc(ctx, l.close) // also if nobody reads the body when the context ends
	resp, err := l.ask(r)
	if err != nil {
		stop()
		l.close()
		return nil, err
	}
	b := &directBody{d: d, l: l, ctx: ctx, stop: stop, src: resp.Body, keep: !resp.Close}
	if resp.Body == http.NoBody {
		b.end(true)
		return resp, nil
	}
	resp.Body = b
	return resp, nil
}

// take returns an idle connection to an address, or nil if there is none. Connections that the server has closed are
// passed over.
func (d *direct) take(addr string) *line {
	for {
		l := d.pop(addr)
		if l == nil || l.usable() {
			return l
		}
		l.close()
	}
}

// pop removes the connection to an address that was used last.
func (d *direct) pop(addr string) *line {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.idle) - 1; i >= 0; i-- {
		if l := d.idle[i]; l.addr == addr {
			d.idle = slices.Delete(d.idle, i, i+1)
			return l
		}
	}
	return nil
}

// keep takes back a connection whose reply was read to its end.
func (d *direct) keep(l *line) {
	l.since = time.Now()
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		l.close()
		return
	}
	d.idle = append(d.idle, l)
	var old *line
	if len(d.idle) > d.most {
		old = d.idle[0]
		d.idle = slices.Delete(d.idle, 0, 1)
	}
	if d.sweeps == nil {
		d.sweeps = time.AfterFunc(idleFor, d.sweep)
	}
	d.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// sweep closes connections that were idle for too long.
func (d *direct) sweep() {
	d.mu.Lock()
	n := 0
	for n < len(d.idle) && time.Since(d.idle[n].since) >= idleFor {
		n++
	}
	old := slices.Clone(d.idle[:n])
	d.idle = slices.Delete(d.idle, 0, n)
	d.sweeps = nil
	if len(d.idle) > 0 {
		d.sweeps = time.AfterFunc(idleFor-time.Since(d.idle[0].since), d.sweep)
	}
	d.mu.Unlock()
	for _, l := range old {
		l.close()
	}
}

// close closes idle connections. Later requests work, but their connections are not kept.
func (d *direct) close() {
	d.mu.Lock()
	idle := d.idle
	d.idle, d.closed = nil, true
	if d.sweeps != nil {
		d.sweeps.Stop()
		d.sweeps = nil
	}
	d.mu.Unlock()
	for _, l := range idle {
		l.close()
	}
}
